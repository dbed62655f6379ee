//! A Redis server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::free_port;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A `redis-server` process. Dropping it kills it and removes its files.
#[derive(Debug)]
pub struct RedisServer {
    folder: TempDir,
    port: u16,
    arguments: Vec<String>,
    child: Child,
}

impl RedisServer {
    /// A server that keeps nothing on disk.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server with more arguments, such as `--appendonly yes`.
    pub fn start_with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        // Another process may take a port between our finding it free and the server's taking it.
        for _ in 0..20 {
            let port = free_port();
            let mut child = spawn(&folder, port, &arguments);
            if answers(&mut child, port) {
                return Self { folder, port, arguments, child };
            }
        }
        panic!("redis-server does not start");
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
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
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops the process where it is; connections stay open and nothing is answered.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// `kill -9`, and a new process on the same port and files.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.folder, self.port, &self.arguments);
        assert!(answers(&mut self.child, self.port), "redis-server does not start again");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a process id"));
        kill(pid, signal).expect("the server runs");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(folder: &TempDir, port: u16, arguments: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--unixsocket"])
        .arg(folder.path().join("redis.sock"))
        .arg("--dir")
        .arg(folder.path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed (Debian's package redis-server)")
}

/// Does it answer a command, and does it live? A port that another server has answers too.
fn answers(child: &mut Child, port: u16) -> bool {
    let late = Instant::now() + PATIENCE;
    while Instant::now() < late {
        if child.try_wait().expect("our child").is_some() {
            return false;
        }
        if process_id(port) == Some(child.id()) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// The process id that the server at this port says it has.
fn process_id(port: u16) -> Option<u32> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(b"INFO server\r\nQUIT\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let line = answer.lines().find_map(|line| line.strip_prefix("process_id:"))?;
    line.trim().parse().ok()
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
