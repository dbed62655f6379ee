//! A Redis server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use conformance_tests::torture;
use tempfile::TempDir;

use crate::process::{PATIENCE, Process, free_port};
use crate::tortured::{Store, apart};
use crate::{Authority, Certificate, ServerClock};

/// Debian's.
pub(crate) const PACKAGE: &str = "redis-server";

/// A `redis-server` process. Dropping it kills it and removes its files.
#[derive(Debug)]
pub struct RedisServer {
    /// Before the folder, which it uses until it is dropped.
    process: Process,
    folder: TempDir,
    port: u16,
    tls_port: Option<u16>,
    bus_port: Option<u16>,
    arguments: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
}

impl RedisServer {
    /// A server that keeps nothing on disk.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server with more arguments, such as `--appendonly yes`.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::try_ports(|| (None, arguments.iter().map(ToString::to_string).collect()))
    }

    /// A replica of another, once it follows that one's writes.
    pub fn start_replica(primary: &RedisServer, arguments: &[&str]) -> Self {
        Self::start_replica_through(primary.address(), primary, arguments)
    }

    /// The same, where the writes come from this address.
    pub fn start_replica_through(address: SocketAddr, primary: &RedisServer, arguments: &[&str]) -> Self {
        let port = address.port().to_string();
        let replica = Self::start_with(&[&["--replicaof", "127.0.0.1", &port], arguments].concat());
        // The primary calls it online some time before that, and `WAIT` tells.
        let port = format!("port={},state=online", replica.port);
        wait_for("the replica is in step", || {
            let info = ask(primary.port, "INFO replication").unwrap_or_default();
            let replicas = info.matches("state=online").count();
            let waited = ask(primary.port, &format!("SET in-step '' PX 1\r\nWAIT {replicas} 100"));
            info.contains(&port) && waited.is_some_and(|answer| answer.contains(&format!(":{replicas}\r\n")))
        });
        replica
    }

    /// A server that listens with TLS too, under this certificate, and that takes clients with a certificate of this CA
    /// alone, or any.
    pub fn start_tls(authority: &Authority, own: &Certificate, clients_have_one: bool) -> Self {
        Self::try_ports(|| {
            let port = free_port();
            let clients = if clients_have_one { "yes" } else { "no" };
            let mut arguments: Vec<_> =
                ["--tls-port", &port.to_string(), "--tls-auth-clients", clients].map(str::to_owned).into();
            for (name, file) in [("cert", &own.certificate), ("key", &own.key), ("ca-cert", &authority.file())] {
                arguments.extend([format!("--tls-{name}-file"), file.display().to_string()]);
            }
            (Some(port), arguments)
        })
    }

    /// A node of a cluster that has yet to be made.
    pub(crate) fn start_node() -> Self {
        let fixed = ["--cluster-enabled yes", "--cluster-node-timeout 1000", "--cluster-require-full-coverage no"];
        let mut node = Self::try_ports(|| {
            let bus = format!("--cluster-port {}", free_port());
            (None, fixed.iter().chain([&bus.as_str()]).flat_map(|both| both.split(' ')).map(str::to_owned).collect())
        });
        node.bus_port = node.arguments.last().and_then(|port| port.parse().ok());
        node
    }

    /// The port at which the nodes of a cluster talk to it.
    pub(crate) fn bus_port(&self) -> u16 {
        self.bus_port.expect("it is a node of a cluster")
    }

    /// What it answers to a command, as it answers it.
    pub(crate) fn ask(&self, command: &str) -> String {
        ask(self.port, command).unwrap_or_default()
    }

    /// A server that keeps nothing on disk, and its clock.
    pub fn start_with_clock() -> (Self, ServerClock) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let clock = ServerClock::new(folder.path());
        (Self::try_in(folder, clock.environment().into(), || (None, Vec::new())), clock)
    }

    fn try_ports(arguments: impl Fn() -> (Option<u16>, Vec<String>)) -> Self {
        Self::try_in(tempfile::tempdir().expect("a temporary folder"), Vec::new(), arguments)
    }

    fn try_in(
        folder: TempDir,
        environment: Vec<(&'static str, PathBuf)>,
        arguments: impl Fn() -> (Option<u16>, Vec<String>),
    ) -> Self {
        // Another process may take a port between our finding it free and the server's taking it.
        for _ in 0..20 {
            let port = free_port();
            let (tls_port, arguments) = arguments();
            let mut process = spawn(&folder, port, &arguments, &environment);
            if answers(&mut process, port) {
                return Self { process, folder, port, tls_port, bus_port: None, arguments, environment };
            }
        }
        panic!("redis-server does not start");
    }

    /// Its process, to be tortured.
    pub fn apart(self) -> Vec<Box<dyn torture::Server>> {
        apart(self)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The port on which it listens with TLS.
    ///
    /// # Panics
    /// If it does not.
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("it was started with TLS")
    }

    /// Where it listens as well, a Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// The URL of its first database.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops the process where it is; connections stay open and nothing is answered.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// `kill -9`, and a new process on the same port and files.
    pub fn restart(&mut self) {
        self.kill();
        self.start_again(0);
    }
}

impl Store for RedisServer {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.address()]
    }

    fn keeps(&self) -> bool {
        self.arguments.windows(2).any(|pair| pair == ["--appendfsync", "always"])
    }

    fn process(&mut self, _: usize) -> &mut Process {
        &mut self.process
    }

    fn start_again(&mut self, _: usize) {
        self.process = spawn(&self.folder, self.port, &self.arguments, &self.environment);
        assert!(answers(&mut self.process, self.port), "redis-server does not start again");
    }
}

fn spawn(folder: &TempDir, port: u16, arguments: &[String], environment: &[(&str, PathBuf)]) -> Process {
    let mut redis = Command::new("redis-server");
    redis
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--unixsocket"])
        .arg(folder.path().join("redis.sock"))
        .arg("--dir")
        .arg(folder.path())
        // Else a replica waits five seconds for others that may come.
        .args(["--repl-diskless-sync-delay", "0"])
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Process::spawn(&mut redis, PACKAGE)
}

/// Does it answer a command, and does it live? A port that another server has answers too.
pub(crate) fn answers(process: &mut Process, port: u16) -> bool {
    let id = process.id();
    process.is_ready(|| process_id(port) == Some(id))
}

/// The process id that the server at this port says it has, once it has loaded its data.
fn process_id(port: u16) -> Option<u32> {
    let answer = ask(port, "INFO").filter(|answer| !answer.contains("\nloading:1"))?;
    let line = answer.lines().find_map(|line| line.strip_prefix("process_id:"))?;
    line.trim().parse().ok()
}

/// What the server at this port answers to a command, as it answers it.
pub(crate) fn ask(port: u16, command: &str) -> Option<String> {
    const END: &[u8] = b"+PONG\r\n";
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    // A server that loads its data knows no PING, and a sentinel no QUIT.
    stream.write_all(format!("{command}\r\nPING\r\nQUIT\r\n").as_bytes()).ok()?;
    let (mut answer, mut some) = (Vec::new(), [0; 4096]);
    while !answer.windows(END.len()).any(|part| part == END) {
        match stream.read(&mut some).ok()? {
            0 => break,
            length => answer.extend_from_slice(&some[..length]),
        }
    }
    String::from_utf8(answer).ok()
}

pub(crate) fn wait_for(what: &str, so: impl Fn() -> bool) {
    let late = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < late, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_stops_and_starts_again() {
        let mut server = RedisServer::start();
        let first = process_id(server.port);
        server.kill();
        assert_eq!(process_id(server.port), None);
        server.restart();
        assert!(process_id(server.port).is_some() && process_id(server.port) != first);
        assert!(server.socket().exists());
    }
}
