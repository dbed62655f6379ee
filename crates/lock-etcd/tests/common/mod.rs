//! The suite's harness: a cluster of so many members, each behind a proxy.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use etcd_client::{Client, DeleteOptions, GetOptions, SortOrder, SortTarget};
use lock_core::{DistributedLock, LockName, Registry};
use lock_etcd::{EtcdFactory, EtcdLock};
use test_servers::{EtcdCluster, Proxy};

pub(crate) struct EtcdHarness {
    pub(crate) name: &'static str,
    pub(crate) members: usize,
}

#[async_trait]
impl Harness for EtcdHarness {
    fn name(&self) -> &'static str {
        self.name
    }

    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        &[("token_range", "the token is the cluster's revision, which counts changes and cannot be set")]
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(EtcdFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        let members = self.members;
        let cluster = tokio::task::spawn_blocking(move || EtcdCluster::start(members)).await.unwrap();
        let proxies = cluster.addresses().into_iter().map(Proxy::new).collect();
        Box::new(EtcdStore { proxies, cluster: Mutex::new(cluster) })
    }
}

struct EtcdStore {
    proxies: Vec<Proxy>,
    cluster: Mutex<EtcdCluster>,
}

impl EtcdStore {
    /// Past the proxies, by a connection that knows nothing of locks.
    async fn raw(&self) -> Client {
        let members: Vec<_> = self.cluster.lock().unwrap().addresses().iter().map(ToString::to_string).collect();
        Client::connect(members, None).await.unwrap()
    }
}

/// What all keys of the lock begin with, by the rule in the manual.
fn line(name: &LockName) -> String {
    format!("oarlock/{}/", name.as_str().replace('%', "%25").replace('/', "%2F"))
}

#[async_trait]
impl Store for EtcdStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        Arc::new(EtcdLock::connect(&self.url().unwrap(), "oarlock").await.unwrap())
    }

    fn url(&self) -> Option<String> {
        let hosts: Vec<_> = self.proxies.iter().map(|proxy| proxy.address().to_string()).collect();
        Some(format!("etcd://{}", hosts.join(",")))
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("etcd://127.0.0.1:1,127.0.0.1:2".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let first = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1);
        let found = self.raw().await.get(line(name), Some(first)).await.unwrap();
        found.kvs().first().map(|key| key.value_str().unwrap().to_owned())
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        match fault {
            Fault::HoldRequests => self.proxies.iter().for_each(Proxy::hold_c2s),
            Fault::HoldRequestsOfPresent => self.proxies.iter().for_each(Proxy::hold_c2s_of_present),
            Fault::HoldAnswers => self.proxies.iter().for_each(Proxy::hold_s2c),
            Fault::ReleaseRequests | Fault::ReleaseAnswers => self.proxies.iter().for_each(Proxy::forward),
            Fault::DeleteHold(name) => {
                let all = DeleteOptions::new().with_prefix();
                self.raw().await.delete(line(&name), Some(all)).await.unwrap();
            }
            Fault::Restart => tokio::task::block_in_place(|| {
                let mut cluster = self.cluster.lock().unwrap();
                (0..self.proxies.len()).for_each(|member| cluster.restart(member));
            }),
            Fault::ReplaceStore => tokio::task::block_in_place(|| self.cluster.lock().unwrap().replace()),
            Fault::PutForeign(name) => {
                self.raw().await.put(format!("{}stray", line(&name)), "no lock", None).await.unwrap();
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
