//! Real servers for tests and benchmarks, each a plain process in a folder of its own on a free port of this host, and a
//! [`Proxy`] that breaks what goes between. Whatever cannot be started panics: a server that is missing is a failure.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod mariadb;
mod postgres;
mod process;
mod redis;
mod zookeeper;

pub use conformance_tests::Proxy;
pub use mariadb::MariaDbServer;
pub use postgres::PostgresServer;
pub use redis::RedisServer;
pub use zookeeper::ZookeeperServers;
