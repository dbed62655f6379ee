//! The choice of a backend by the scheme of its URL.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::config::Config;
use crate::url::{BackendUrl, Params};
use crate::{DistributedLock, Error, ErrorKind, Locks, Result};

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

/// Maps URL schemes to backends. A value, not a global: each application may have its own.
#[derive(Clone, Debug)]
pub struct Registry {
    built_in: BTreeMap<&'static str, Arc<dyn BackendFactory>>,
    absent: BTreeMap<&'static str, &'static str>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// A registry that knows `memory:`.
    pub fn new() -> Self {
        let mut registry = Self { built_in: BTreeMap::new(), absent: BTreeMap::new() };
        registry.register(crate::memory::MemoryFactory);
        registry
    }

    /// Adds a backend; of two with the same scheme the later one counts.
    pub fn register(&mut self, factory: impl BackendFactory) -> &mut Self {
        let factory: Arc<dyn BackendFactory> = Arc::new(factory);
        for scheme in factory.schemes() {
            self.absent.remove(scheme);
            self.built_in.insert(scheme, Arc::clone(&factory));
        }
        self
    }

    /// Says which cargo feature would switch a scheme on that is not built in.
    pub fn announce(&mut self, scheme: &'static str, feature: &'static str) -> &mut Self {
        self.absent.insert(scheme, feature);
        self
    }

    /// Connects to the backend that the config names, and checks what it requires.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend is not built in, naming the feature to switch on, or lacks what the
    /// config requires; otherwise as [`BackendFactory::connect`].
    ///
    /// # Cancel safety
    /// Nothing is held yet: a dropped connect leaves nothing behind.
    pub async fn connect(&self, config: Config) -> Result<Locks> {
        let (options, target) = config.into_parts()?;
        let factory = self.factory(&target)?;
        let name = factory.schemes()[0];
        let backend = factory.connect(target).await.map_err(|error| error.with_context("connect", name, None))?;
        options.build(backend)
    }

    /// The script that makes what the store has to have beforehand: see [`BackendFactory::schema`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend is not built in, or needs nothing beforehand; [`ErrorKind::Invalid`]
    /// for a wrong setting.
    pub fn schema(&self, config: Config) -> Result<String> {
        let (_, target) = config.into_parts()?;
        let factory = self.factory(&target)?;
        let name = factory.schemes()[0];
        factory.schema(target).map_err(|error| error.with_context("schema", name, None))
    }

    fn factory(&self, target: &Target) -> Result<&Arc<dyn BackendFactory>> {
        let scheme = target.url.scheme();
        self.built_in.get(scheme).ok_or_else(|| self.missing(scheme))
    }

    fn missing(&self, scheme: &str) -> Error {
        let message = match self.absent.get(scheme) {
            Some(feature) => format!("the backend {scheme:?} is not built in: switch on the cargo feature {feature:?}"),
            None => {
                let known: Vec<_> = self.built_in.keys().chain(self.absent.keys()).copied().collect();
                format!("no backend has the scheme {scheme:?}; there are {}", known.join(", "))
            }
        };
        Error::new(ErrorKind::Unsupported, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryFactory;

    /// Whatever is built in with the tests: these schemes are of this test.
    #[test]
    fn what_is_not_built_in_names_its_feature() {
        let mut registry = Registry::new();
        registry.announce("paper", "pencil").announce("memory", "brain").register(MemoryFactory);
        let missing = |url: &str| {
            let (_, target) = Config::from_url(url).unwrap().into_parts().unwrap();
            registry.factory(&target).map(drop)
        };
        let error = missing("paper://host").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("switch on the cargo feature \"pencil\""), "{error}");
        let error = missing("papyrus://host").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("there are memory, paper"), "{error}");
        missing("memory:").unwrap();
    }
}
