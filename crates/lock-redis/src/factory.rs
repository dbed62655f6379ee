//! From a URL and settings to a connection.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{BackendFactory, DistributedLock, Result, Target};

use crate::RedisOptions;

/// Connects to the URLs of [`RedisOptions::new`].
///
/// Its own settings are `timeout`, see [`RedisOptions::timeout`]; `replicas`, see [`RedisOptions::replicas`]; `user`,
/// `password` and `db`, which go before what the URL says; `sentinel_user` and `sentinel_password`, see
/// [`RedisOptions::sentinel_login`]; and with TLS `ca`, see [`RedisOptions::ca`], `cert` and `key`, see
/// [`RedisOptions::client_certificate`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RedisFactory;

#[async_trait]
impl BackendFactory for RedisFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["redis", "unix", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let Target { url, prefix, mut params, .. } = target;
        let options = RedisOptions::from_url(&url)?.prefix(&prefix).settings(&mut params)?;
        params.finish("redis", &RedisOptions::SETTINGS)?;
        Ok(Arc::new(options.connect().await?))
    }
}
