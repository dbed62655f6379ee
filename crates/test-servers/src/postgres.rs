//! A PostgreSQL server.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::process::{Disk, Process, copy_of_initial, folder, free_port, unprivileged};

/// The password of the user `postgres`, which is asked for over TCP.
const PASSWORD: &str = "s3cr3t";

/// A `postgres` process. Dropping it kills it and removes its files.
#[derive(Debug)]
pub struct PostgresServer {
    /// Before the folder, which it uses until it is dropped.
    process: Process,
    folder: TempDir,
    port: u16,
    settings: Vec<String>,
}

impl PostgresServer {
    /// A server that keeps what was committed over a kill, though not over the host's end.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with these settings, such as `max_connections=6`.
    pub fn start_with(settings: &[&str]) -> Self {
        Self::start_on(Disk::Memory, &[&["fsync=off"], settings].concat())
    }

    /// A server that writes each commit to the disk, for who measures, with these settings.
    pub fn start_durable(settings: &[&str]) -> Self {
        Self::start_on(Disk::Real, settings)
    }

    fn start_on(disk: Disk, settings: &[&str]) -> Self {
        let folder = folder(disk);
        copy_of_initial("postgres", initialise, &folder.path().join("data"));
        let settings: Vec<_> = settings.iter().map(ToString::to_string).collect();
        // Another process may take a port between our finding it free and the server's taking it.
        for _ in 0..20 {
            let port = free_port();
            if let Some(process) = spawn(folder.path(), port, &settings) {
                return Self { process, folder, port, settings };
            }
        }
        panic!("postgres does not start");
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The folder of its Unix socket.
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// The URL of its first database, for its superuser.
    pub fn url(&self) -> String {
        Self::url_at(self.address())
    }

    /// The same past a proxy that listens there.
    pub fn url_at(address: SocketAddr) -> String {
        format!("postgres://postgres:{PASSWORD}@{address}/postgres")
    }

    /// The same over the Unix socket.
    pub fn socket_url(&self) -> String {
        format!("postgres://postgres@localhost:{}/postgres?host={}", self.port, self.socket_folder().display())
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops all its processes where they are; connections stay open and nothing is answered.
    pub fn pause(&self) {
        self.process.signal(Signal::SIGSTOP);
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        self.process.signal(Signal::SIGCONT);
    }

    /// `kill -9`, and a new process on the same port and files.
    pub fn restart(&mut self) {
        self.kill();
        self.process =
            spawn(self.folder.path(), self.port, &self.settings).expect("postgres starts again on its own files");
    }
}

/// Where Debian's package and others keep the server's programs.
fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    let found = folders.into_iter().rev().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| PathBuf::from(name))
}

fn initialise(data: &Path) {
    let password = data.with_extension("password");
    fs::write(&password, PASSWORD).expect("a new file");
    let mut initdb = unprivileged(&program("initdb"));
    initdb.args(["--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--auth=trust", "--auth-host=md5"]);
    initdb.args(["--wal-segsize=1", "--no-sync"]).arg("--pgdata").arg(data).arg("--pwfile").arg(&password);
    let done = initdb.status().expect("install Debian's package postgresql-15");
    fs::remove_file(&password).expect("our own file");
    assert!(done.success(), "initdb fails");
}

fn spawn(folder: &Path, port: u16, settings: &[String]) -> Option<Process> {
    let data = folder.join("data");
    let status = data.join("postmaster.pid");
    // Of a process that was killed.
    let _ = fs::remove_file(&status);
    let mut postgres = unprivileged(&program("postgres"));
    postgres.arg("-D").arg(&data).arg("-k").arg(folder).args(["-p", &port.to_string()]);
    for setting in ["listen_addresses=127.0.0.1", "shared_buffers=16MB", "max_connections=200", "autovacuum_naptime=5s"]
    {
        postgres.args(["-c", setting]);
    }
    for setting in settings {
        postgres.args(["-c", setting]);
    }
    let mut process = Process::spawn(&mut postgres, "postgresql-15");
    // What its own tools go by.
    let ready =
        || fs::read_to_string(&status).is_ok_and(|status| status.lines().nth(7).map(str::trim) == Some("ready"));
    process.is_ready(ready).then_some(process)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn it_starts_stops_and_starts_again() {
        let mut server = PostgresServer::start();
        // Its port another server may take.
        let socket = server.socket_folder().join(format!(".s.PGSQL.{}", server.address().port()));
        assert!(UnixStream::connect(&socket).is_ok());
        server.kill();
        assert!(UnixStream::connect(&socket).is_err());
        server.restart();
        assert!(UnixStream::connect(&socket).is_ok());
    }
}
