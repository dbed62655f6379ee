#![doc = include_str!("manual/links.md")]
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "blocking")]
pub mod blocking;
pub mod manual;

pub use lock_core::*;
#[cfg(feature = "etcd")]
pub use lock_etcd as etcd;
pub use lock_fence as fence;
#[cfg(feature = "memcached")]
pub use lock_memcached as memcached;
#[cfg(feature = "quorum")]
pub use lock_quorum as quorum;
#[cfg(feature = "redis")]
pub use lock_redis as redis;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub use lock_sql as sql;
#[cfg(feature = "zookeeper")]
pub use lock_zookeeper as zookeeper;
#[cfg(feature = "macros")]
pub use oarlock_macros::{locked, once};

/// The URL of the embedded default: a SQLite file in the user's state folder.
pub const DEFAULT_URL: &str = "sqlite:";

/// A registry with every backend that is built in. It knows the schemes of those that are not, and which cargo feature
/// switches them on.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    for (scheme, feature) in [
        ("sqlite", "sqlite"),
        ("redis", "redis"),
        ("rediss", "redis"),
        ("unix", "redis"),
        ("redis+sentinel", "redis"),
        ("rediss+sentinel", "redis"),
        ("redis+cluster", "redis"),
        ("rediss+cluster", "redis"),
        ("memcached", "memcached"),
        ("zookeeper", "zookeeper"),
        ("zk", "zookeeper"),
        ("etcd", "etcd"),
        ("etcds", "etcd"),
        ("postgres", "postgres"),
        ("postgresql", "postgres"),
        ("mysql", "mysql"),
        ("mariadb", "mysql"),
        ("quorum", "quorum"),
    ] {
        registry.announce(scheme, feature);
    }
    #[cfg(feature = "etcd")]
    registry.register(lock_etcd::EtcdFactory);
    #[cfg(feature = "memcached")]
    registry.register(lock_memcached::MemcachedFactory);
    #[cfg(feature = "mysql")]
    registry.register(lock_sql::MySqlFactory);
    #[cfg(feature = "postgres")]
    registry.register(lock_sql::PostgresFactory);
    #[cfg(feature = "redis")]
    registry.register(lock_redis::RedisFactory);
    #[cfg(feature = "sqlite")]
    registry.register(lock_sql::SqliteFactory);
    #[cfg(feature = "zookeeper")]
    registry.register(lock_zookeeper::ZookeeperFactory);
    #[cfg(feature = "quorum")]
    {
        let stores = registry.clone();
        registry.register(lock_quorum::QuorumFactory::over(stores));
    }
    registry
}

/// Connects to the store of this URL, with every setting from its parameters.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a wrong URL or parameter, [`ErrorKind::Unsupported`] for a backend that is not built in
/// (the error names the feature to switch on), else as the store says.
pub async fn connect(url: &str) -> Result<Locks> {
    connect_with(Config::from_url(url)?).await
}

/// Connects as a config says; without a URL in it, to [`DEFAULT_URL`].
///
/// # Errors
/// As [`connect`].
pub async fn connect_with(config: Config) -> Result<Locks> {
    let config = match config.url() {
        Some(_) => config,
        None => config.overlay(Config::from_url(DEFAULT_URL)?),
    };
    registry().connect(config).await
}
