//! A PostgreSQL server.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::initial::copy_of_initial;
use crate::process::{Disk, Process, certified, folder, give_away, unprivileged};
use crate::single::{Program, Single};
use crate::{Authority, Certificate, ServerClock};

/// The password of the user `postgres`, which is asked for over TCP.
pub(crate) const PASSWORD: &str = "s3cr3t";

/// A `postgres` process. Dropping it kills it and removes its files.
pub type PostgresServer = Single<Postgres>;

impl PostgresServer {
    /// A server that keeps what was committed over a kill, though not over the host's end.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with these settings, such as `max_connections=6`.
    pub fn start_with(settings: &[&str]) -> Self {
        Self::start_new(folder(Disk::Memory), &[&["fsync=off"], settings].concat(), Vec::new())
    }

    /// A server that writes each commit to the disk, for who measures, with these settings.
    pub fn start_durable(settings: &[&str]) -> Self {
        Self::start_new(folder(Disk::Real), settings, Vec::new())
    }

    /// A server that has TLS too, under this certificate, and that over TCP takes only clients that use it, with a
    /// certificate of this CA if that is asked for.
    pub fn start_tls(authority: &Authority, own: &Certificate, clients_have_one: bool) -> Self {
        let folder = folder(Disk::Memory);
        let [certificate, key, ca] = certified(folder.path(), authority, own).map(|file| file.display().to_string());
        let clients = folder.path().join("clients");
        let certificates = if clients_have_one { "clientcert=verify-ca" } else { "" };
        fs::write(&clients, format!("local all all trust\nhostssl all all all md5 {certificates}\n"))
            .expect("a new file");
        give_away(&clients);
        let tls = [
            format!("ssl_cert_file={certificate}"),
            format!("ssl_key_file={key}"),
            format!("ssl_ca_file={ca}"),
            format!("hba_file={}", clients.display()),
        ];
        Self::start_new(
            folder,
            &[&["fsync=off", "ssl=on"], &tls.each_ref().map(String::as_str)[..]].concat(),
            Vec::new(),
        )
    }

    /// A server, and its clock.
    pub fn start_with_clock() -> (Self, ServerClock) {
        let folder = folder(Disk::Memory);
        let clock = ServerClock::new(folder.path());
        (Self::start_new(folder, &["fsync=off"], clock.environment().into()), clock)
    }

    /// A standby that gets from `through` what the primary commits, and for which the primary does not wait.
    pub fn start_standby(primary: &PostgresServer, through: SocketAddr) -> Self {
        let folder = folder(Disk::Memory);
        let mut copy = unprivileged(&program("pg_basebackup"));
        copy.arg("-D").arg(folder.path().join("data")).arg("-h").arg(primary.socket_folder());
        copy.args(["-p", &primary.address().port().to_string(), "-U", "postgres"]);
        copy.args(["-c", "fast", "-X", "stream", "-R", "--no-sync"]);
        assert!(copy.status().expect("install Debian's package postgresql-client-15").success(), "pg_basebackup fails");
        let from =
            format!("primary_conninfo=host={} port={} user=postgres password={PASSWORD}", through.ip(), through.port());
        Self::start_in(folder, Vec::new(), || owned(&["fsync=off", &from]))
    }

    fn start_new(folder: TempDir, settings: &[&str], environment: Vec<(&'static str, PathBuf)>) -> Self {
        copy_of_initial(&program("postgres"), initialise, &folder.path().join("data"));
        Self::start_in(folder, environment, || owned(settings))
    }

    /// The folder of its Unix socket.
    pub fn socket_folder(&self) -> &Path {
        self.folder()
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
        let (port, folder) = (self.address().port(), self.socket_folder().display());
        format!("postgres://postgres@localhost:{port}/postgres?host={folder}")
    }
}

fn owned(settings: &[&str]) -> Vec<String> {
    settings.iter().map(ToString::to_string).collect()
}

/// PostgreSQL's program.
#[derive(Debug)]
pub struct Postgres;

impl Program for Postgres {
    const NAME: &str = "postgres";

    /// Without waiting for its clients to go.
    const GOODBYE: Signal = Signal::SIGINT;

    fn spawn(folder: &Path, port: u16, settings: &[String], environment: &[(&str, PathBuf)]) -> Option<Process> {
        let data = folder.join("data");
        let status = data.join("postmaster.pid");
        // Of a process that was killed.
        let _ = fs::remove_file(&status);
        let mut postgres = unprivileged(&program("postgres"));
        postgres.arg("-D").arg(&data).arg("-k").arg(folder).args(["-p", &port.to_string()]);
        let ours = [
            "listen_addresses=127.0.0.1",
            "shared_buffers=16MB",
            "max_connections=200",
            "autovacuum_naptime=5s",
            // Else it is outside of its folder, and stays when the server is killed.
            "dynamic_shared_memory_type=mmap",
        ];
        for setting in ours.into_iter().chain(settings.iter().map(String::as_str)) {
            postgres.args(["-c", setting]);
        }
        let mut process = Process::spawn(postgres.envs(environment.iter().cloned()), "postgresql-15");
        // What its own tools go by.
        let ready =
            || fs::read_to_string(&status).is_ok_and(|status| status.lines().nth(7).map(str::trim) == Some("ready"));
        process.is_ready(ready).then_some(process)
    }

    /// A killed server leaves a few bytes of shared memory to the next on its files, by a number that it wrote down.
    fn tidy(folder: &Path) {
        let status = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
        if let Some(id) = status.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            let removed = Command::new("ipcrm").args(["-m", id]).stderr(Stdio::null()).status();
            // It is gone if the server ended in good order.
            removed.expect("install Debian's package util-linux");
        }
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
