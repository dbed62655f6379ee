//! The client crate without a lock, for what tests do by other means than ours.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::time::Duration;

use test_servers::ZookeeperServers;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions};

pub(crate) const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// Past the proxies, by a session that knows nothing of locks.
pub(crate) async fn raw(servers: &ZookeeperServers) -> Client {
    let hosts: Vec<_> = servers.addresses().iter().map(ToString::to_string).collect();
    raw_at(&hosts.join(",")).await
}

/// The same, at these of them.
pub(crate) async fn raw_at(hosts: &str) -> Client {
    // Longer than servers take to start again.
    let session = Duration::from_secs(100);
    Client::connector().with_session_timeout(session).connect(hosts).await.unwrap()
}

/// Does another session than the node's own watch it? (A holder watches its own.)
pub(crate) async fn is_watched(servers: &ZookeeperServers, raw: &Client, node: &str) -> bool {
    let Some(stat) = raw.check_stat(node).await.unwrap() else { return false };
    let own = format!("{:#x}", stat.ephemeral_owner);
    let watches = servers.ask(0, "wchp").unwrap();
    let mut watchers =
        watches.lines().skip_while(|line| *line != node).skip(1).take_while(|line| !line.starts_with('/'));
    watchers.any(|session| session.trim() != own && !session.trim().is_empty())
}
