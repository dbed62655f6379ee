//! Real servers for tests and benchmarks, each a plain process in a folder of its own on a free port of this host, and
//! a [`Proxy`] that breaks what goes between. Whatever cannot be started panics: a server that is missing is a failure.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod certificates;
mod clock;
mod cluster;
mod etcd;
mod initial;
mod links;
mod mariadb;
mod memcached;
mod peers;
mod pgbouncer;
mod ports;
mod postgres;
mod process;
mod redis;
mod sentinel;
mod single;
mod statements;
mod tortured;
mod zookeeper;

pub use certificates::{Authority, Certificate};
pub use clock::ServerClock;
pub use cluster::Cluster;
pub use conformance_tests::Proxy;
pub use etcd::{EtcdCluster, GrpcProxy};
pub use initial::kept_as;
pub use mariadb::MariaDbServer;
pub use memcached::MemcachedServer;
pub use peers::{curator_mutex, etcdctl_lock, go_mutex, kazoo_locks, redis_py_lock};
pub use pgbouncer::PgBouncer;
pub use postgres::PostgresServer;
pub use process::status_of;
pub use redis::RedisServer;
pub use sentinel::Sentinels;
pub use single::Single;
pub use statements::Statements;
pub use watchdog::{Disk, folder};
pub use zookeeper::{ZookeeperServers, curator};
