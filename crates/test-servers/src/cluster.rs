//! A cluster.

use std::net::SocketAddr;

use crate::redis::wait_for;
use crate::{Proxy, RedisServer};

/// A Redis Cluster: three primaries that share the slots evenly, each behind a [`Proxy`] that the others and the
/// clients are told to use. Dropping it kills them.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<(RedisServer, Proxy)>,
}

/// The slots of each primary.
const RANGES: [(u16, u16); 3] = [(0, 5460), (5461, 10_922), (10_923, 16_383)];

impl Cluster {
    /// Starts it, and waits until its nodes agree.
    pub fn start() -> Self {
        let nodes: Vec<_> = RANGES.iter().map(|_| start()).collect();
        for ((first, last), (node, _)) in RANGES.iter().zip(&nodes) {
            node.ask(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        }
        for (number, (node, _)) in nodes.iter().enumerate() {
            node.ask(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
            nodes[0].0.ask(&format!("CLUSTER MEET 127.0.0.1 {} {}", node.address().port(), node.bus_port()));
        }
        let this = Self { nodes };
        this.agreed();
        this
    }

    /// Adds a replica of a primary, which takes its place should it die.
    pub fn add_replica(&mut self, of: usize) {
        let primary = self.nodes[of].0.ask("CLUSTER MYID");
        let primary = primary.lines().nth(1).expect("a node's name").to_owned();
        let (node, proxy) = start();
        node.ask(&format!(
            "CLUSTER MEET 127.0.0.1 {} {}",
            self.nodes[0].0.address().port(),
            self.nodes[0].0.bus_port()
        ));
        wait_for("the new node knows the primary", || node.ask("CLUSTER NODES").contains(&primary));
        wait_for("the new node is a replica", || node.ask(&format!("CLUSTER REPLICATE {primary}")).contains("+OK"));
        wait_for("it is in step", || node.ask("INFO replication").contains("master_link_status:up"));
        self.nodes.push((node, proxy));
        self.agreed();
    }

    /// Waits until all nodes know all, and all slots are served.
    pub fn agreed(&self) {
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        wait_for("the nodes agree", || {
            self.nodes.iter().all(|(node, _)| {
                let info = node.ask("CLUSTER INFO");
                let connected = !node.ask("CLUSTER NODES").contains("disconnected");
                connected && info.contains("cluster_state:ok") && info.contains(&known)
            })
        });
    }

    /// A node: the primaries first, by their slots, then the replicas.
    pub fn node(&mut self, number: usize) -> &mut RedisServer {
        &mut self.nodes[number].0
    }

    /// The proxies in front of the nodes.
    pub fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        self.nodes.iter().map(|(_, proxy)| proxy)
    }

    /// Where the nodes listen, past their proxies.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|(node, _)| node.address()).collect()
    }

    /// The URL of the locks in it.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.proxies().map(|proxy| proxy.address().to_string()).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }
}

fn start() -> (RedisServer, Proxy) {
    let node = RedisServer::start_node();
    let proxy = Proxy::new(node.address());
    node.ask(&format!("CONFIG SET cluster-announce-port {}", proxy.address().port()));
    (node, proxy)
}
