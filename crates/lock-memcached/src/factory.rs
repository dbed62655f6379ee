//! From a URL and settings to a connection.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{BackendFactory, DistributedLock, Result, Target};

use crate::MemcachedOptions;

/// Connects to the URLs of [`MemcachedOptions::new`].
///
/// Its own setting is `timeout`, see [`MemcachedOptions::timeout`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MemcachedFactory;

#[async_trait]
impl BackendFactory for MemcachedFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["memcached"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let Target { url, prefix, mut params, .. } = target;
        let options = MemcachedOptions::from_url(&url)?.prefix(&prefix).settings(&mut params)?;
        params.finish("memcached", &MemcachedOptions::SETTINGS)?;
        Ok(Arc::new(options.connect().await?))
    }
}
