//! A Redis server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::ports::free_port;
use crate::process::{Disk, PATIENCE, Process};
use crate::single::{Program, Single};
use crate::{Authority, Certificate, ServerClock};

/// Debian's.
pub(crate) const PACKAGE: &str = "redis-server";

/// The arguments before the ports for clients with TLS, and for the other nodes of a cluster.
const TLS_PORT: &str = "--tls-port";
const BUS_PORT: &str = "--cluster-port";

/// A `redis-server` process. Dropping it kills it and removes its files.
pub type RedisServer = Single<Redis>;

impl RedisServer {
    /// A server that keeps nothing on disk.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server with more arguments, such as `--appendonly yes`. Its files last over a kill, though not over the host's
    /// end.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_on_ports(|| owned(arguments))
    }

    /// A server that saves each write to the disk before it answers, for who measures.
    pub fn start_durable() -> Self {
        let saving = || owned(&["--appendonly", "yes", "--appendfsync", "always"]);
        Self::start_in(watchdog::folder(Disk::Real), Vec::new(), saving)
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
        let port = format!("port={},state=online", replica.address().port());
        wait_for("the replica is in step", || {
            let info = ask(primary.address().port(), "INFO replication").unwrap_or_default();
            let replicas = info.matches("state=online").count();
            let waited = ask(primary.address().port(), &format!("SET in-step '' PX 1\r\nWAIT {replicas} 100"));
            info.contains(&port) && waited.is_some_and(|answer| answer.contains(&format!(":{replicas}\r\n")))
        });
        replica
    }

    /// A server that listens with TLS too, under this certificate, and that takes clients with a certificate of this CA
    /// alone, or any.
    pub fn start_tls(authority: &Authority, own: &Certificate, clients_have_one: bool) -> Self {
        Self::start_on_ports(|| {
            let (port, clients) = (free_port().to_string(), if clients_have_one { "yes" } else { "no" });
            let mut arguments: Vec<_> = [TLS_PORT, &port, "--tls-auth-clients", clients].map(str::to_owned).into();
            for (name, file) in [("cert", &own.certificate), ("key", &own.key), ("ca-cert", &authority.file())] {
                arguments.extend([format!("--tls-{name}-file"), file.display().to_string()]);
            }
            arguments
        })
    }

    /// A node of a cluster that has yet to be made.
    pub(crate) fn start_node() -> Self {
        let fixed = ["--cluster-enabled yes", "--cluster-node-timeout 1000", "--cluster-require-full-coverage no"];
        Self::start_on_ports(|| {
            let bus = format!("{BUS_PORT} {}", free_port());
            fixed.iter().chain([&bus.as_str()]).flat_map(|both| both.split(' ')).map(str::to_owned).collect()
        })
    }

    /// The port at which the nodes of a cluster talk to it.
    pub(crate) fn bus_port(&self) -> u16 {
        self.port_after(BUS_PORT).expect("it is a node of a cluster")
    }

    /// What it answers to a command, as it answers it.
    pub(crate) fn ask(&self, command: &str) -> String {
        ask(self.address().port(), command).unwrap_or_default()
    }

    /// A server that keeps nothing on disk, and its clock.
    pub fn start_with_clock() -> (Self, ServerClock) {
        let folder = watchdog::folder(Disk::Memory);
        let clock = ServerClock::new(folder.path());
        (Self::start_in(folder, clock.environment().into(), Vec::new), clock)
    }

    fn start_on_ports(arguments: impl Fn() -> Vec<String>) -> Self {
        Self::start_in(watchdog::folder(Disk::Memory), Vec::new(), arguments)
    }

    /// The port that this argument gave it.
    fn port_after(&self, argument: &str) -> Option<u16> {
        let mut arguments = self.arguments().iter();
        arguments.find(|given| *given == argument)?;
        arguments.next()?.parse().ok()
    }

    /// The port on which it listens with TLS.
    ///
    /// # Panics
    /// If it does not.
    pub fn tls_port(&self) -> u16 {
        self.port_after(TLS_PORT).expect("it was started with TLS")
    }

    /// Where it listens as well, a Unix socket.
    pub fn socket(&self) -> PathBuf {
        socket(self.folder())
    }

    /// The URL of its first database.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(ToString::to_string).collect()
}

/// Redis's program.
#[derive(Debug)]
pub struct Redis;

impl Program for Redis {
    const NAME: &str = "redis-server";

    fn spawn(folder: &Path, port: u16, arguments: &[String], environment: &[(&str, PathBuf)]) -> Option<Process> {
        let mut redis = Command::new("redis-server");
        redis
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--unixsocket"])
            .arg(socket(folder))
            .arg("--dir")
            .arg(folder)
            // Else a replica waits five seconds for others that may come.
            .args(["--repl-diskless-sync-delay", "0"])
            .args(arguments)
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut process = Process::spawn(&mut redis, PACKAGE);
        answers(&mut process, port).then_some(process)
    }

    fn keeps(arguments: &[String]) -> bool {
        arguments.windows(2).any(|pair| pair == ["--appendfsync", "always"])
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("redis.sock")
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
        let first = process_id(server.address().port());
        server.kill();
        assert_eq!(process_id(server.address().port()), None);
        server.restart();
        assert!(process_id(server.address().port()).is_some() && process_id(server.address().port()) != first);
        assert!(server.socket().exists());
    }
}
