//! The suite on a cluster of three, each node behind a proxy.

mod common;

use std::sync::Arc;

use async_trait::async_trait;
use common::{raw, try_raw};
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_redis::{RedisFactory, RedisLock};
use redis::FromRedisValue;
use test_servers::{Cluster, Proxy};

conformance_tests::suite!(ClusterHarness);

struct ClusterHarness;

#[async_trait]
impl Harness for ClusterHarness {
    fn name(&self) -> &'static str {
        "redis-cluster"
    }

    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        const NODES: &str = "its nodes die one at a time, in tests/cluster.rs";
        &[("restarted_while_held", NODES), ("restarted_with_waiters", NODES)]
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(RedisFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        Box::new(ClusterStore(Cluster::start()))
    }
}

struct ClusterStore(Cluster);

impl ClusterStore {
    /// Asked of the node that has the key: the others refuse.
    async fn raw<T: FromRedisValue>(&self, cmd: &[&str]) -> T {
        for address in self.0.addresses() {
            match try_raw(address, cmd).await {
                Ok(answer) => return answer,
                Err(error) => assert!(error.redirect_node().is_some(), "{error}"),
            }
        }
        panic!("no node has the key of {cmd:?}");
    }
}

/// The lock's own key, and the one with its last grant.
fn keys(name: &LockName) -> (String, String) {
    (format!("oarlock:{name}"), format!("oarlock-grant-of:{{oarlock:{name}}}"))
}

#[async_trait]
impl Store for ClusterStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        Arc::new(RedisLock::connect(&self.0.url(), "oarlock").await.unwrap())
    }

    fn url(&self) -> Option<String> {
        Some(self.0.url())
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("redis+cluster://127.0.0.1:1,127.0.0.1:2".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        self.raw(&["GET", &keys(name).0]).await
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        match fault {
            Fault::HoldRequests => self.0.proxies().for_each(Proxy::hold_c2s),
            Fault::HoldRequestsOfPresent => self.0.proxies().for_each(Proxy::hold_c2s_of_present),
            Fault::HoldAnswers => self.0.proxies().for_each(Proxy::hold_s2c),
            Fault::ReleaseRequests | Fault::ReleaseAnswers => self.0.proxies().for_each(Proxy::forward),
            Fault::DeleteHold(name) => {
                let (lock, grant) = keys(&name);
                self.raw::<()>(&["DEL", &lock, &grant]).await;
            }
            Fault::ReplaceStore => {
                for address in self.0.addresses() {
                    raw::<()>(address, &["FLUSHALL"]).await;
                    raw::<()>(address, &["SCRIPT", "FLUSH"]).await;
                }
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
