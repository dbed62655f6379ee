//! Real servers for tests and benchmarks, each a plain process in a folder of its own on a free port of this host, and a
//! [`Proxy`] that breaks what goes between. Whatever cannot be started panics: a server that is missing is a failure.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod etcd;
mod proxy;
mod redis;

use std::net::{Ipv4Addr, TcpListener};

pub use etcd::EtcdCluster;
pub use proxy::Proxy;
pub use redis::RedisServer;

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}
