//! From a URL and settings to a connection.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{BackendFactory, DistributedLock, Error, ErrorKind, Result, Target};

use crate::RedisOptions;

/// Connects to `redis://user:password@host:port/database`, the same with TLS, `rediss://…`, and `unix:/path/to/socket`.
///
/// Its own settings are `timeout`, see [`RedisOptions::timeout`]; `user`, `password` and `db`, which go before what the URL
/// says; and with TLS `ca`, see [`RedisOptions::ca`], `cert` and `key`, see [`RedisOptions::client_certificate`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RedisFactory;

#[async_trait]
impl BackendFactory for RedisFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["redis", "unix", "rediss", "redis+sentinel", "redis+cluster"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let Target { url, prefix, mut params, .. } = target;
        let later = match url.scheme() {
            "redis+sentinel" => Some("Sentinel"),
            "redis+cluster" => Some("Redis Cluster"),
            _ => None,
        };
        if let Some(later) = later {
            let message = format!("{later} comes with a later release; redis://, rediss:// and unix: are here");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let options = RedisOptions::from_url(&url)?.prefix(&prefix).settings(&mut params)?;
        params.finish("redis", &RedisOptions::SETTINGS)?;
        Ok(Arc::new(options.connect().await?))
    }
}
