//! The stores of this process by their URLs.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use async_trait::async_trait;

use crate::connect::factory::{BackendFactory, Target};
use crate::contract::{DistributedLock, Error, ErrorKind, Result};
use crate::memory::MemoryLock;

/// `memory:` and `memory:name`: each name is one store of the process, so that two connections to the same URL exclude
/// each other as they would anywhere else.
#[derive(Debug)]
pub(super) struct MemoryFactory;

static STORES: LazyLock<Mutex<BTreeMap<String, MemoryLock>>> = LazyLock::new(Mutex::default);

#[async_trait]
impl BackendFactory for MemoryFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["memory"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        target.params.finish("memory", &[])?;
        let name = target.url.path()?;
        if name.starts_with('/') {
            return Err(Error::new(ErrorKind::Invalid, "memory: takes no path, only a name as in memory:orders"));
        }
        // The prefix is a part of the store's name: the same lock under another prefix is another lock.
        let store = format!("{}\0{name}", target.prefix);
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::new(stores.entry(store).or_default().client()))
    }
}
