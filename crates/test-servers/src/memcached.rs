//! A memcached server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};

use crate::process::{Disk, PATIENCE, Process, unprivileged};
use crate::single::{Program, Single};

/// Debian's, both of the package and of the program.
const PACKAGE: &str = "memcached";

/// A `memcached` process. Dropping it kills it.
pub type MemcachedServer = Single<Memcached>;

impl MemcachedServer {
    /// A server that evicts nothing and takes no `flush_all`.
    pub fn start() -> Self {
        Self::start_with(&["-M", "-F"])
    }

    /// A server with these arguments, such as `-m 2`.
    pub fn start_with(arguments: &[&str]) -> Self {
        let owned = || arguments.iter().map(ToString::to_string).collect();
        Self::start_in(watchdog::folder(Disk::Memory), Vec::new(), owned)
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("memcached://{}", self.address())
    }

    /// What it answers to a command, as it answers it, without the end of its last line.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn ask(&self, command: &str) -> String {
        ask(self.address().port(), command).expect("it answers")
    }

    /// The keys of all its items, as it lists them: with a percent sign and two digits for what is neither a letter nor
    /// a digit.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn keys(&self) -> Vec<String> {
        // It does not answer what is sent behind this at once. It makes one such list at a time.
        let is_over = |answer: &[u8]| answer.ends_with(b"END\r\n") || answer.starts_with(b"BUSY");
        let list = || converse(self.address().port(), "lru_crawler metadump hash\r\n", is_over).expect("it answers");
        let listed = std::iter::repeat_with(list).find(|listed| !listed.starts_with("BUSY")).unwrap_or_default();
        let keys = listed.lines().filter_map(|line| line.strip_prefix("key=")?.split(' ').next());
        keys.map(str::to_owned).collect()
    }
}

/// memcached's program.
#[derive(Debug)]
pub struct Memcached;

impl Program for Memcached {
    const NAME: &str = PACKAGE;

    fn spawn(_: &Path, port: u16, arguments: &[String], environment: &[(&str, PathBuf)]) -> Option<Process> {
        let mut memcached = unprivileged(Path::new(PACKAGE));
        memcached
            .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-t", "2"])
            .args(arguments)
            .envs(environment.iter().cloned());
        let mut process = Process::spawn(&mut memcached, PACKAGE);
        let id = process.id();
        let is_closed = arguments.iter().any(|argument| argument == "-Y");
        // A port that another server has answers too.
        process.is_ready(|| process_id(port) == Some(id) || is_closed && asks_for_a_login(port)).then_some(process)
    }

    fn keeps(_: &[String]) -> bool {
        false
    }
}

/// The process id that the server at this port says it has.
fn process_id(port: u16) -> Option<u32> {
    let answer = ask(port, "stats")?;
    answer.lines().find_map(|line| line.strip_prefix("STAT pid "))?.trim().parse().ok()
}

fn asks_for_a_login(port: u16) -> bool {
    ask(port, "stats").is_some_and(|answer| answer.contains("unauthenticated"))
}

/// What the server at this port answers to a command.
fn ask(port: u16, command: &str) -> Option<String> {
    // One that wants a login answers no more than that.
    let is_over = |answer: &[u8]| answer.ends_with(b"MN\r\n") || answer.ends_with(b" unauthenticated\r\n");
    let answer = converse(port, &format!("{command}\r\nmn\r\n"), is_over)?;
    Some(answer.trim_end_matches("MN\r\n").trim_end_matches("\r\n").to_owned())
}

/// What it answers to this, until that is so, or it ends the connection.
fn converse(port: u16, said: &str, is_over: impl Fn(&[u8]) -> bool) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(said.as_bytes()).ok()?;
    let (mut answer, mut some) = (Vec::new(), [0; 4096]);
    while !is_over(&answer) {
        match stream.read(&mut some).ok()? {
            0 if answer.is_empty() => return None,
            0 => return String::from_utf8(answer).ok(),
            length => answer.extend_from_slice(&some[..length]),
        }
    }
    String::from_utf8(answer).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_stops_and_starts_again_with_nothing() {
        let mut server = MemcachedServer::start();
        let first = process_id(server.address().port());
        assert_eq!(server.ask("set a 0 0 1\r\nx"), "STORED");
        server.kill();
        assert_eq!(process_id(server.address().port()), None);
        server.restart();
        let second = process_id(server.address().port());
        assert!(second.is_some() && second != first);
        assert_eq!(server.ask("get a"), "END");
    }
}
