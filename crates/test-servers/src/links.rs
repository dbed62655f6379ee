//! The ways between the servers of one store, each through a proxy, so that a server can be cut off from the others.

use std::net::Ipv4Addr;

use crate::Proxy;

#[derive(Debug)]
pub(crate) struct Links {
    /// By which the server of the row reaches the server of the column.
    ways: Vec<Vec<Proxy>>,
    cut: Vec<bool>,
}

impl Links {
    /// Between servers that listen for each other at these ports.
    pub(crate) fn between(ports: &[u16]) -> Self {
        let to_all = |_| ports.iter().map(|port| Proxy::new((Ipv4Addr::LOCALHOST, *port).into())).collect();
        Self { ways: ports.iter().map(to_all).collect(), cut: vec![false; ports.len()] }
    }

    /// The port at which one finds the other.
    pub(crate) fn port(&self, from: usize, to: usize) -> u16 {
        self.ways[from][to].address().port()
    }

    /// From now on nothing goes between a server and the others.
    pub(crate) fn cut(&mut self, server: usize) {
        self.cut[server] = true;
        self.apply();
    }

    /// What was held goes on, except to and from others that are cut off.
    pub(crate) fn heal(&mut self, server: usize) {
        self.cut[server] = false;
        self.apply();
    }

    fn apply(&self) {
        for (from, ways) in self.ways.iter().enumerate() {
            for (to, way) in ways.iter().enumerate() {
                if self.cut[from] || self.cut[to] { way.hold() } else { way.forward() }
            }
        }
    }
}
