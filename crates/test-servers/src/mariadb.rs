//! A MariaDB server.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::initial::copy_of_initial;
use crate::process::{Disk, PATIENCE, Process, certified, folder, unprivileged};
use crate::single::{Program, Single};
use crate::{Authority, Certificate, ServerClock};

/// Debian has it where only root looks.
const MARIADBD: &str = "/usr/sbin/mariadbd";

/// Keeps commits over a kill, though not over the host's end.
const QUICK: &str = "--innodb-flush-log-at-trx-commit=2";

/// The sizes that it has unless they are set. With a small log it stops now and then to write pages.
const USUAL: [&str; 2] = ["--innodb-log-file-size=96M", "--innodb-buffer-pool-size=128M"];

/// A `mariadbd` process. Dropping it kills it and removes its files.
pub type MariaDbServer = Single<MariaDb>;

impl MariaDbServer {
    /// A server that keeps what was committed over a kill, though not over the host's end.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more arguments, such as `--max-connections=6`.
    pub fn start_with(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self::start_new(folder(Disk::Memory), [vec![QUICK.to_owned()], arguments].concat(), Vec::new())
    }

    /// A server that writes each commit to the disk, for who measures.
    pub fn start_durable() -> Self {
        Self::start_durable_with(&[])
    }

    /// The same with more arguments.
    pub fn start_durable_with(arguments: &[&str]) -> Self {
        let arguments = USUAL.iter().chain(arguments).map(ToString::to_string).collect();
        Self::start_new(folder(Disk::Real), arguments, Vec::new())
    }

    /// A server that has TLS too, under this certificate.
    pub fn start_tls(authority: &Authority, own: &Certificate) -> Self {
        let folder = folder(Disk::Memory);
        let [certificate, key, ca] = certified(folder.path(), authority, own).map(|file| file.display().to_string());
        let tls = [format!("--ssl-cert={certificate}"), format!("--ssl-key={key}"), format!("--ssl-ca={ca}")];
        Self::start_new(folder, [vec![QUICK.to_owned()], tls.into()].concat(), Vec::new())
    }

    /// A server, and its clock.
    pub fn start_with_clock() -> (Self, ServerClock) {
        let folder = folder(Disk::Memory);
        let clock = ServerClock::new(folder.path());
        (Self::start_new(folder, vec![QUICK.to_owned()], clock.environment().into()), clock)
    }

    fn start_new(folder: TempDir, arguments: Vec<String>, environment: Vec<(&'static str, PathBuf)>) -> Self {
        copy_of_initial(Path::new(MARIADBD), initialise, &folder.path().join("data"));
        Self::start_in(folder, environment, || arguments.clone())
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        socket(self.folder())
    }

    /// The URL of its database `mysql`, for its superuser, who has no password.
    pub fn url(&self) -> String {
        format!("mysql://root@{}/mysql", self.address())
    }
}

/// MariaDB's program.
#[derive(Debug)]
pub struct MariaDb;

impl Program for MariaDb {
    const NAME: &str = "mariadbd";

    fn spawn(folder: &Path, port: u16, arguments: &[String], environment: &[(&str, PathBuf)]) -> Option<Process> {
        let mut mariadbd = unprivileged(Path::new(MARIADBD));
        mariadbd.arg("--no-defaults").arg(format!("--datadir={}", folder.join("data").display()));
        mariadbd.arg(format!("--socket={}", socket(folder).display())).arg(format!("--port={port}"));
        mariadbd.arg(format!("--pid-file={}", folder.join("pid").display()));
        mariadbd.args(["--bind-address=127.0.0.1", "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=4M"]);
        mariadbd.args(["--innodb-data-file-path=ibdata1:4M:autoextend", "--performance-schema=OFF", "--skip-log-bin"]);
        // A server that starts removes what it takes for temporary tables of its former self, and would those of
        // another.
        mariadbd.arg(format!("--tmpdir={}", folder.display()));
        let mut process =
            Process::spawn(mariadbd.args(arguments).envs(environment.iter().cloned()), "mariadb-server-core");
        process.is_ready(|| greets(&socket(folder))).then_some(process)
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("mariadb.sock")
}

fn initialise(data: &Path) {
    let mut install = unprivileged(Path::new("mariadb-install-db"));
    // The folder for temporary files may be another user's.
    install.env("TMPDIR", data);
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    install.args(["--innodb-log-file-size=4M", "--innodb-data-file-path=ibdata1:4M:autoextend"]);
    let done = install.arg(format!("--datadir={}", data.display())).status();
    assert!(done.expect("install Debian's package mariadb-server-core").success(), "mariadb-install-db fails");
}

/// Does it greet who connects, and not with an error? By its socket, which no other server has.
fn greets(socket: &Path) -> bool {
    let greeting = || {
        let mut stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut greeting = [0; 5];
        stream.read_exact(&mut greeting).ok()?;
        Some(greeting[4])
    };
    // The version of its protocol.
    greeting() == Some(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_stops_and_starts_again() {
        let mut server = MariaDbServer::start();
        assert!(greets(&server.socket()));
        server.kill();
        assert!(!greets(&server.socket()));
        server.restart();
        assert!(greets(&server.socket()));
    }
}
