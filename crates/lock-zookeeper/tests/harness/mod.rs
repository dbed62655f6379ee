//! Servers for the suite, which cases share, each below a path of its own and behind proxies of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_zookeeper::{ZookeeperFactory, ZookeeperOptions};
use test_servers::{Proxy, ZookeeperServers};
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};

use crate::raw::{PERSISTENT, raw};

pub(crate) struct ZookeeperHarness {
    pub(crate) name: &'static str,
    pub(crate) servers: usize,
}

impl ZookeeperHarness {
    fn start(&self) -> ZookeeperServers {
        ZookeeperServers::start_with(self.servers, &[])
    }
}

/// The servers of all cases that are not alone.
static SHARED: OnceLock<ZookeeperServers> = OnceLock::new();

/// A host that is busy with other tests may take its time.
const PATIENCE: Duration = Duration::from_secs(15);

static STORES: AtomicU64 = AtomicU64::new(0);

#[async_trait]
impl Harness for ZookeeperHarness {
    fn name(&self) -> &'static str {
        self.name
    }

    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        const SERVERS: &str = "its servers die one at a time, in tests/servers/restart.rs";
        const DECLARED: [(&str, &str); 4] = [
            ("token_range", "tokens count each change of the ensemble: ten below the highest are too few for it"),
            ("restarted_while_held", SERVERS),
            ("kept_hold_survives_a_restart", SERVERS),
            ("restarted_with_waiters", SERVERS),
        ];
        if self.servers == 1 { &DECLARED[..1] } else { &DECLARED }
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(ZookeeperFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        Box::new(ZookeeperStore::below_a_path_of(SHARED.get_or_init(|| self.start())).await)
    }

    async fn store_alone(&self) -> Box<dyn Store> {
        let servers = self.start();
        let store = ZookeeperStore::below_a_path_of(&servers).await;
        Box::new(ZookeeperStore { servers: Mutex::new(Some(servers)), ..store })
    }
}

struct ZookeeperStore {
    path: String,
    raw: Client,
    proxies: Vec<Proxy>,
    /// If it is alone.
    servers: Mutex<Option<ZookeeperServers>>,
}

/// The lock's path, by the words of the manual: what is not printable ASCII, `/` and `%` are escaped.
fn folder(name: &LockName) -> String {
    let escape = |byte: u8| match byte {
        b'/' | b'%' => format!("%{byte:02X}"),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    let escaped: String = match name.as_str() {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        name => name.bytes().map(escape).collect(),
    };
    format!("/oarlock/{escaped}")
}

impl ZookeeperStore {
    async fn below_a_path_of(servers: &ZookeeperServers) -> Self {
        let path = format!("/case-{}", STORES.fetch_add(1, Ordering::Relaxed));
        let raw = raw(servers).await;
        raw.create(&path, b"", &PERSISTENT).await.unwrap();
        let raw = raw.chroot(path.clone()).unwrap();
        let proxies = servers.addresses().into_iter().map(Proxy::new).collect();
        Self { path, raw, proxies, servers: Mutex::new(None) }
    }

    fn restart(&self) -> Result<(), NotOffered> {
        let mut servers = self.servers.lock().unwrap();
        let servers = servers.as_mut().ok_or(NotOffered)?;
        tokio::task::block_in_place(|| (0..self.proxies.len()).for_each(|number| servers.restart(number)));
        Ok(())
    }

    /// Through the proxies.
    fn servers_url(&self) -> String {
        let hosts: Vec<_> = self.proxies.iter().map(|proxy| proxy.address().to_string()).collect();
        format!("zookeeper://{}{}", hosts.join(","), self.path)
    }

    async fn first(&self, name: &LockName) -> Option<String> {
        let folder = folder(name);
        self.raw.sync("/").await.unwrap();
        let children = match self.raw.list_children(&folder).await {
            Err(ZkError::NoNode) => return None,
            children => children.unwrap(),
        };
        let first = children.into_iter().min_by_key(|child| child.rsplit('-').next().unwrap().to_owned())?;
        Some(format!("{folder}/{first}"))
    }

    async fn empty(&self) {
        let mut found = vec!["/".to_owned()];
        let mut at = 0;
        while at < found.len() {
            // Meanwhile somebody may take away what was there.
            let children = self.raw.list_children(&found[at]).await.unwrap_or_default();
            let parent = found[at].trim_end_matches('/').to_owned();
            found.extend(children.into_iter().map(|child| format!("{parent}/{child}")));
            at += 1;
        }
        for path in found[1..].iter().rev() {
            let _ = self.raw.delete(path, None).await;
        }
    }
}

#[async_trait]
impl Store for ZookeeperStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        let options = ZookeeperOptions::new(&self.servers_url()).unwrap().prefix("oarlock").timeout(PATIENCE);
        Arc::new(options.connect().await.unwrap())
    }

    fn url(&self) -> Option<String> {
        Some(format!("{}?timeout={}s", self.servers_url(), PATIENCE.as_secs()))
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("zookeeper://127.0.0.1:1".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let (data, _) = self.raw.get_data(&self.first(name).await?).await.ok()?;
        Some(String::from_utf8(data).unwrap())
    }

    fn connections(&self) -> Vec<u64> {
        self.proxies.iter().map(Proxy::connections).collect()
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        let Some(fault) = fault.strike(&self.proxies) else { return Ok(()) };
        match fault {
            Fault::DeleteHold(name) => {
                if let Some(first) = self.first(&name).await {
                    self.raw.delete(&first, None).await.unwrap();
                }
                // Empty, the server may remove it as well.
                let _ = self.raw.delete(&folder(&name), None).await;
            }
            Fault::Restart => {
                self.restart()?;
                // The session goes on, over another connection.
                while matches!(self.raw.sync("/").await, Err(ZkError::ConnectionLoss)) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            Fault::ReplaceStore => self.empty().await,
            Fault::PutForeign(name) => {
                let _ = self.raw.delete(&folder(&name), None).await;
                let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
                self.raw.create(&folder(&name), b"no lock", &ephemeral).await.unwrap();
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
