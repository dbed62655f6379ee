//! The client crate without a lock, for what tests do by other means than ours.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::time::Duration;

use test_servers::ZookeeperServers;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions};

pub(crate) const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// Past the proxies, by a session that knows nothing of locks.
pub(crate) async fn raw(servers: &ZookeeperServers) -> Client {
    let hosts: Vec<_> = servers.addresses().iter().map(ToString::to_string).collect();
    // Longer than servers take to start again.
    let session = Duration::from_secs(100);
    Client::connector().with_session_timeout(session).connect(&hosts.join(",")).await.unwrap()
}
