//! The suite on a real server, which cases share: each has a proxy and a prefix of its own.

mod common;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use async_trait::async_trait;
use common::raw;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_redis::{RedisFactory, RedisLock};
use redis::FromRedisValue;
use test_servers::{Proxy, RedisServer};

conformance_tests::suite!(RedisHarness);

/// The server of all cases that are not alone.
static SHARED: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

static STORES: AtomicU64 = AtomicU64::new(0);

struct RedisHarness;

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
        Box::new(RedisStore::at(SHARED.address(), None))
    }

    async fn store_alone(&self) -> Box<dyn Store> {
        let server = RedisServer::start();
        Box::new(RedisStore::at(server.address(), Some(server)))
    }
}

struct RedisStore {
    proxy: Proxy,
    address: SocketAddr,
    prefix: String,
    /// If it is alone.
    server: Mutex<Option<RedisServer>>,
}

impl RedisStore {
    fn at(address: SocketAddr, server: Option<RedisServer>) -> Self {
        let prefix = format!("case-{}", STORES.fetch_add(1, Ordering::Relaxed));
        Self { proxy: Proxy::new(address), address, prefix, server: Mutex::new(server) }
    }

    /// Past the proxy.
    async fn raw<T: FromRedisValue>(&self, cmd: &[&str]) -> T {
        raw(self.address, cmd).await
    }

    /// The lock's own key, and the one with its last grant.
    fn keys(&self, name: &LockName) -> (String, String) {
        let lock = format!("{}:{name}", self.prefix);
        let grant = format!("oarlock-grant-of:{{{lock}}}");
        (lock, grant)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        Arc::new(RedisLock::connect(&format!("redis://{}", self.proxy.address()), &self.prefix).await.unwrap())
    }

    fn url(&self) -> Option<String> {
        Some(format!("redis://{}?prefix={}", self.proxy.address(), self.prefix))
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("redis://127.0.0.1:1".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        self.raw(&["GET", &self.keys(name).0]).await
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        match fault {
            Fault::HoldRequests => self.proxy.hold_c2s(),
            Fault::HoldRequestsOfPresent => self.proxy.hold_c2s_of_present(),
            Fault::HoldAnswers => self.proxy.hold_s2c(),
            Fault::CutOff => self.proxy.cut(),
            Fault::ReleaseRequests | Fault::ReleaseAnswers => self.proxy.forward(),
            Fault::DeleteHold(name) => {
                let (lock, grant) = self.keys(&name);
                self.raw::<()>(&["DEL", &lock, &grant]).await;
            }
            Fault::Restart => self.server.lock().unwrap().as_mut().ok_or(NotOffered)?.restart(),
            Fault::ReplaceStore => {
                self.raw::<()>(&["FLUSHALL"]).await;
                self.raw::<()>(&["SCRIPT", "FLUSH"]).await;
            }
            Fault::RaiseToken(name, above) => self.raw::<()>(&["SET", &self.keys(&name).1, &above.to_string()]).await,
            Fault::PutForeign(name) => {
                self.raw::<i64>(&["LPUSH", &self.keys(&name).0, "no lock"]).await;
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
