//! What makes a backend of a URL.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::connect::url::{BackendUrl, Params};
use crate::contract::{DistributedLock, Error, ErrorKind, Result};

/// Where to connect to: what a factory gets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Target {
    /// The backend's URL.
    pub url: BackendUrl,
    /// The prefix under which the store keeps the locks: the same name under another prefix is another lock.
    pub prefix: String,
    /// The settings that are the backend's own, from the URL and the config. The factory takes what it knows and calls
    /// [`Params::finish`].
    pub params: Params,
}

/// Connects to the stores of some URL schemes.
#[async_trait]
pub trait BackendFactory: fmt::Debug + Send + Sync + 'static {
    /// The schemes, in lower case.
    fn schemes(&self) -> &'static [&'static str];

    /// Connects, in bounded time.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a wrong URL or setting, [`ErrorKind::Unavailable`] and [`ErrorKind::Refused`] as the
    /// store says.
    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>>;

    /// The script that makes what the store has to have beforehand, for operators who give their programs no right to
    /// make it. Asks no store.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a wrong URL or setting, [`ErrorKind::Unsupported`] if the store needs nothing
    /// beforehand.
    fn schema(&self, target: Target) -> Result<String> {
        let message = format!("a store of {:?} needs nothing made beforehand", target.url.scheme());
        Err(Error::new(ErrorKind::Unsupported, message))
    }
}
