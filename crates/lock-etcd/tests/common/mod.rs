//! The suite's harness: a cluster of so many members, which cases share. Each case has proxies and a prefix of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use etcd_client::{Client, GetOptions, KeyValue, SortOrder, SortTarget};
use lock_core::{DistributedLock, LockName, Registry};
use lock_etcd::{EtcdFactory, EtcdLock};
use test_servers::{EtcdCluster, Proxy};

pub(crate) struct EtcdHarness {
    pub(crate) name: &'static str,
    pub(crate) members: usize,
}

/// The cluster of all cases that are not alone.
static SHARED: OnceLock<EtcdCluster> = OnceLock::new();

static STORES: AtomicU64 = AtomicU64::new(0);

#[async_trait]
impl Harness for EtcdHarness {
    fn name(&self) -> &'static str {
        self.name
    }

    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        &[("token_range", "tokens count each change of the cluster: ten below the highest are too few for it")]
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(EtcdFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        let cluster = SHARED.get_or_init(|| EtcdCluster::start(self.members));
        Box::new(EtcdStore::at(cluster.addresses(), None))
    }

    async fn store_alone(&self) -> Box<dyn Store> {
        let cluster = EtcdCluster::start(self.members);
        Box::new(EtcdStore::at(cluster.addresses(), Some(cluster)))
    }
}

struct EtcdStore {
    proxies: Vec<Proxy>,
    members: Vec<SocketAddr>,
    prefix: String,
    /// If it is alone.
    cluster: Mutex<Option<EtcdCluster>>,
}

impl EtcdStore {
    fn at(members: Vec<SocketAddr>, cluster: Option<EtcdCluster>) -> Self {
        let proxies = members.iter().copied().map(Proxy::new).collect();
        let prefix = format!("case-{}", STORES.fetch_add(1, Ordering::Relaxed));
        Self { proxies, members, prefix, cluster: Mutex::new(cluster) }
    }

    /// Through the proxies.
    fn cluster_url(&self) -> String {
        let hosts: Vec<_> = self.proxies.iter().map(|proxy| proxy.address().to_string()).collect();
        format!("etcd://{}", hosts.join(","))
    }

    /// Past the proxies, by a connection that knows nothing of locks.
    async fn raw(&self) -> Client {
        let members: Vec<_> = self.members.iter().map(ToString::to_string).collect();
        Client::connect(members, None).await.unwrap()
    }

    /// What all keys of the lock begin with, by the rule in the manual.
    fn line(&self, name: &LockName) -> String {
        format!("{}/{}/", self.prefix, name.as_str().replace('%', "%25").replace('/', "%2F"))
    }

    /// The key of whoever holds the lock.
    async fn first(&self, name: &LockName) -> Option<KeyValue> {
        let first = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1);
        let mut found = self.raw().await.get(self.line(name), Some(first)).await.unwrap();
        found.take_kvs().pop()
    }

    /// Does this to the cluster, if it is alone.
    fn harm(&self, how: impl FnOnce(&mut EtcdCluster)) -> Result<(), NotOffered> {
        tokio::task::block_in_place(|| self.cluster.lock().unwrap().as_mut().map(how).ok_or(NotOffered))
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        Arc::new(EtcdLock::connect(&self.cluster_url(), &self.prefix).await.unwrap())
    }

    fn url(&self) -> Option<String> {
        Some(format!("{}?prefix={}", self.cluster_url(), self.prefix))
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("etcd://127.0.0.1:1,127.0.0.1:2".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let first = self.first(name).await;
        first.map(|key| key.value_str().unwrap().to_owned())
    }

    fn connections(&self) -> Vec<u64> {
        self.proxies.iter().map(Proxy::connections).collect()
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        let Some(fault) = fault.strike(&self.proxies) else { return Ok(()) };
        match fault {
            Fault::DeleteHold(name) => {
                if let Some(first) = self.first(&name).await {
                    self.raw().await.delete(first.key(), None).await.unwrap();
                }
            }
            Fault::Restart => {
                self.harm(|cluster| (0..self.members.len()).for_each(|member| cluster.restart(member)))?
            }
            Fault::ReplaceStore => self.harm(EtcdCluster::replace)?,
            Fault::PutForeign(name) => {
                self.raw().await.put(format!("{}stray", self.line(&name)), "no lock", None).await.unwrap();
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
