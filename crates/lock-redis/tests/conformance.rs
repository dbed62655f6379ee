//! The suite on a real server, behind a proxy.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_redis::{RedisFactory, RedisLock};
use redis::{Cmd, FromRedisValue};
use test_servers::{Proxy, RedisServer};

conformance_tests::suite!(RedisHarness);

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
        let server = RedisServer::start();
        let proxy = Proxy::new(server.address());
        Box::new(RedisStore { proxy, address: server.address(), server: Mutex::new(server) })
    }
}

struct RedisStore {
    proxy: Proxy,
    address: SocketAddr,
    server: Mutex<RedisServer>,
}

impl RedisStore {
    /// Past the proxy, by a connection that knows nothing of locks.
    async fn raw<T: FromRedisValue>(&self, cmd: &[&str]) -> T {
        let client = redis::Client::open(format!("redis://{}", self.address)).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut raw = Cmd::new();
        raw.arg(cmd);
        raw.query_async(&mut connection).await.unwrap()
    }
}

/// The lock's own key, and the one with its last grant.
fn keys(name: &LockName) -> (String, String) {
    (format!("oarlock:{name}"), format!("oarlock-grant-of:{{oarlock:{name}}}"))
}

#[async_trait]
impl Store for RedisStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        Arc::new(RedisLock::connect(&self.url().unwrap(), "oarlock").await.unwrap())
    }

    fn url(&self) -> Option<String> {
        Some(format!("redis://{}", self.proxy.address()))
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("redis://127.0.0.1:1".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        self.raw(&["GET", &keys(name).0]).await
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        match fault {
            Fault::HoldRequests => self.proxy.hold_c2s(),
            Fault::HoldRequestsOfPresent => self.proxy.hold_c2s_of_present(),
            Fault::HoldAnswers => self.proxy.hold_s2c(),
            Fault::ReleaseRequests | Fault::ReleaseAnswers => self.proxy.forward(),
            Fault::DeleteHold(name) => {
                let (lock, grant) = keys(&name);
                self.raw::<()>(&["DEL", &lock, &grant]).await;
            }
            Fault::Restart => self.server.lock().unwrap().restart(),
            Fault::ReplaceStore => {
                self.raw::<()>(&["FLUSHALL"]).await;
                self.raw::<()>(&["SCRIPT", "FLUSH"]).await;
            }
            Fault::RaiseToken(name, above) => self.raw::<()>(&["SET", &keys(&name).1, &above.to_string()]).await,
            Fault::PutForeign(name) => {
                self.raw::<i64>(&["LPUSH", &keys(&name).0, "no lock"]).await;
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
