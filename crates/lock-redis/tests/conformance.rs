//! The suite on a real server, which cases share: each has a proxy and a database of its own.

mod common;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use async_trait::async_trait;
use common::raw_of;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_redis::{RedisFactory, RedisLock};
use redis::FromRedisValue;
use test_servers::{Proxy, RedisServer};

conformance_tests::suite!(RedisHarness);

/// The server of all cases that are not alone.
static SHARED: LazyLock<RedisServer> =
    LazyLock::new(|| RedisServer::start_with(&["--databases", &DATABASES.to_string()]));

/// Each store has a database of its own, since its tokens are counted by one key.
pub(crate) const DATABASES: u64 = 10_000;

static STORES: AtomicU64 = AtomicU64::new(0);

pub(crate) struct RedisHarness;

#[async_trait]
impl Harness for RedisHarness {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(RedisFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        assert!(number < DATABASES);
        Box::new(RedisStore::at(SHARED.address(), number, None))
    }

    async fn store_alone(&self) -> Box<dyn Store> {
        let server = RedisServer::start();
        Box::new(RedisStore::at(server.address(), 0, Some(server)))
    }
}

pub(crate) const PREFIX: &str = "case";

pub(crate) struct RedisStore {
    proxy: Proxy,
    address: SocketAddr,
    database: u64,
    /// If it is alone.
    server: Mutex<Option<RedisServer>>,
}

impl RedisStore {
    pub(crate) fn at(address: SocketAddr, database: u64, server: Option<RedisServer>) -> Self {
        Self { proxy: Proxy::new(address), address, database, server: Mutex::new(server) }
    }

    /// Past the proxy.
    async fn raw<T: FromRedisValue>(&self, cmd: &[&str]) -> T {
        raw_of(self.address, self.database, cmd).await
    }

    /// The lock's own key, and the one with its grant.
    fn keys(&self, name: &LockName) -> (String, String) {
        let lock = format!("{PREFIX}:{name}");
        let grant = format!("oarlock-grant-of:{{{lock}}}");
        (lock, grant)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        let url = format!("redis://{}/{}", self.proxy.address(), self.database);
        Arc::new(RedisLock::connect(&url, PREFIX).await.unwrap())
    }

    fn url(&self) -> Option<String> {
        Some(format!("redis://{}/{}?prefix={PREFIX}", self.proxy.address(), self.database))
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("redis://127.0.0.1:1".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        self.raw(&["GET", &self.keys(name).0]).await
    }

    fn connections(&self) -> Vec<u64> {
        vec![self.proxy.connections()]
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        let Some(fault) = fault.strike([&self.proxy]) else { return Ok(()) };
        match fault {
            Fault::DeleteHold(name) => {
                let (lock, grant) = self.keys(&name);
                self.raw::<()>(&["DEL", &lock, &grant]).await;
            }
            Fault::Restart => self.server.lock().unwrap().as_mut().ok_or(NotOffered)?.restart(),
            Fault::ReplaceStore => {
                self.raw::<()>(&["FLUSHDB"]).await;
                self.raw::<()>(&["SCRIPT", "FLUSH"]).await;
            }
            Fault::RaiseToken(_, above) => self.raw::<()>(&["SET", "oarlock-tokens", &above.to_string()]).await,
            Fault::PutForeign(name) => {
                self.raw::<i64>(&["LPUSH", &self.keys(&name).0, "no lock"]).await;
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
