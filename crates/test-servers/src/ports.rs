//! Ports for servers.
//!
//! A port that was merely found free is soon another's: of a test beside this one, or of any connection that goes out,
//! for which the system takes ports of its own range. A server that is killed and started again finds its port taken.
//! So ours are from below that range, and each is kept for the life of this process, by a socket of its number in the
//! name space that the ports themselves belong to.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

const FIRST: u16 = 10_000;

/// A port that is free, and that no other test on this host is given as long as this process lives.
///
/// # Panics
/// If there is none.
pub(crate) fn free_port() -> u16 {
    static KEPT: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());
    let range = FIRST..end();
    // Not where the others begin to look.
    let start = rand::random_range(range.clone());
    for port in (start..range.end).chain(range.start..start) {
        let name = format!("oarlock-test-port-{port}");
        let ours = SocketAddr::from_abstract_name(name).and_then(|name| UnixDatagram::bind_addr(&name));
        if let Ok(ours) = ours
            && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
        {
            KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(ours);
            return port;
        }
    }
    panic!("no port of {range:?} is free");
}

/// The system's own range begins there, if that leaves enough.
fn end() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
    first.filter(|&first: &u16| first > FIRST + 2000).unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_is_given_once_and_outside_of_the_systems_range() {
        let ports: Vec<_> = (0..100).map(|_| free_port()).collect();
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), ports.len());
        assert!(ports.iter().all(|port| (FIRST..end()).contains(port)));
        let outgoing = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        assert!(outgoing >= end());
    }
}
