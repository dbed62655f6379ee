//! The suite on clusters of three, each node behind a proxy.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use common::{raw, try_raw};
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_redis::{RedisFactory, RedisLock};
use redis::FromRedisValue;
use test_servers::{Cluster, Proxy};

conformance_tests::suite!(ClusterHarness);

/// Clusters that no case uses now. The nodes send clients to their proxies, so a cluster is one case's at a time, and
/// the next one's under another prefix.
static FREE: Mutex<Vec<Cluster>> = Mutex::new(Vec::new());

static STORES: AtomicU64 = AtomicU64::new(0);

struct ClusterHarness;

#[async_trait]
impl Harness for ClusterHarness {
    fn name(&self) -> &'static str {
        "redis-cluster"
    }

    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        const NODES: &str = "its nodes die one at a time, in tests/servers/cluster.rs";
        &[("restarted_while_held", NODES), ("kept_hold_survives_a_restart", NODES), ("restarted_with_waiters", NODES)]
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(RedisFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        let free = FREE.lock().unwrap().pop();
        let prefix = format!("case-{}", STORES.fetch_add(1, Ordering::Relaxed));
        Box::new(ClusterStore {
            cluster: Some(free.unwrap_or_else(Cluster::start)),
            prefix,
            shared: true,
            raised: AtomicBool::new(false),
        })
    }

    async fn store_alone(&self) -> Box<dyn Store> {
        Box::new(ClusterStore {
            cluster: Some(Cluster::start()),
            prefix: "oarlock".to_owned(),
            shared: false,
            raised: AtomicBool::new(false),
        })
    }
}

struct ClusterStore {
    /// Until it is given back.
    cluster: Option<Cluster>,
    prefix: String,
    shared: bool,
    /// Are its tokens?
    raised: AtomicBool,
}

impl Drop for ClusterStore {
    fn drop(&mut self) {
        // Who knows in which state a case that failed left it.
        if self.shared && !self.raised.load(Ordering::Relaxed) && !std::thread::panicking() {
            let cluster = self.cluster.take().expect("it is given back once");
            cluster.proxies().for_each(Proxy::reset);
            cluster.proxies().for_each(Proxy::forward);
            FREE.lock().unwrap().push(cluster);
        }
    }
}

impl ClusterStore {
    fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("it is there until it is given back")
    }

    /// Asked of the node that has the key: the others refuse.
    async fn raw<T: FromRedisValue>(&self, cmd: &[&str]) -> T {
        for address in self.cluster().addresses() {
            match try_raw(address, cmd).await {
                Ok(answer) => return answer,
                Err(error) => assert!(error.redirect_node().is_some(), "{error}"),
            }
        }
        panic!("no node has the key of {cmd:?}");
    }

    /// The lock's own key, and the one with its last grant.
    fn keys(&self, name: &LockName) -> (String, String) {
        let lock = format!("{}:{name}", self.prefix);
        let grant = format!("oarlock-grant-of:{{{lock}}}");
        (lock, grant)
    }
}

#[async_trait]
impl Store for ClusterStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        Arc::new(RedisLock::connect(&self.cluster().url(), &self.prefix).await.unwrap())
    }

    fn url(&self) -> Option<String> {
        Some(format!("{}?prefix={}", self.cluster().url(), self.prefix))
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("redis+cluster://127.0.0.1:1,127.0.0.1:2".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        self.raw(&["GET", &self.keys(name).0]).await
    }

    fn connections(&self) -> Vec<u64> {
        self.cluster().proxies().map(Proxy::connections).collect()
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        let Some(fault) = fault.strike(self.cluster().proxies()) else { return Ok(()) };
        match fault {
            Fault::DeleteHold(name) => {
                let (lock, grant) = self.keys(&name);
                self.raw::<()>(&["DEL", &lock, &grant]).await;
            }
            Fault::ReplaceStore => {
                for address in self.cluster().addresses() {
                    raw::<()>(address, &["FLUSHALL"]).await;
                    raw::<()>(address, &["SCRIPT", "FLUSH"]).await;
                }
            }
            Fault::RaiseToken(name, above) => {
                let slot: u64 = self.raw(&["CLUSTER", "KEYSLOT", &self.keys(&name).0]).await;
                for address in self.cluster().addresses() {
                    for tokens in raw::<Vec<String>>(address, &["KEYS", "oarlock-tokens:*"]).await {
                        if raw::<u64>(address, &["CLUSTER", "KEYSLOT", &tokens]).await == slot {
                            raw::<()>(address, &["SET", &tokens, &above.to_string()]).await;
                        }
                    }
                }
                // The next case's tokens would begin there.
                self.raised.store(true, Ordering::Relaxed);
            }
            Fault::PutForeign(name) => {
                self.raw::<i64>(&["LPUSH", &self.keys(&name).0, "no lock"]).await;
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
