//! The choice of a backend by the scheme of its URL.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::Locks;
use crate::connect::both;
use crate::connect::config::Config;
use crate::connect::factory::{BackendFactory, Target};
use crate::connect::memory::MemoryFactory;
use crate::connect::settings::{SETTINGS, meant};
use crate::contract::{DistributedLock, Error, ErrorKind, Result};

/// What stands in the URL of one of several stores, though every store has it.
const OF_ONE: [&str; 2] = ["prefix", "password_file"];

/// The scheme of `lock-quorum`, whose stores are several too.
pub(super) const QUORUM: &str = "quorum";

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
    /// A registry that knows `memory:`, and `both:` for two stores that it knows.
    pub fn new() -> Self {
        let mut registry = Self { built_in: BTreeMap::new(), absent: BTreeMap::new() };
        registry.register(MemoryFactory);
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
        let backend = if target.url.scheme() == both::SCHEME {
            let connected = both::connect(self, target).await;
            connected.map_err(|error| error.with_context("connect", both::SCHEME, None))?
        } else {
            self.connect_to(target).await?
        };
        options.build(backend)
    }

    /// Where one of several stores is that are one together, by its URL. It may have a prefix of its own; what concerns the
    /// locks stands in the URL of the whole. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a wrong URL, one of a store that is made of several itself, and a setting that is the
    /// whole's; [`ErrorKind::Unsupported`] if the backend is not built in.
    pub fn target(&self, url: &str, prefix: &str) -> Result<Target> {
        let config = Config::from_url(url)?;
        if let Some(url) = config.url() {
            if [both::SCHEME, QUORUM].contains(&url.scheme()) {
                let wrong = format!("a store of several cannot be {}: itself", url.scheme());
                return Err(Error::new(ErrorKind::Invalid, wrong));
            }
            let is_common = |key: &&String| SETTINGS.contains(&key.as_str()) && !OF_ONE.contains(&key.as_str());
            if let Some(key) = url.params().0.keys().find(is_common) {
                let wrong = format!("{key:?} is a setting of all stores: it does not belong into the URL of one");
                return Err(Error::new(ErrorKind::Invalid, wrong));
            }
        }
        let (_, target) = config.prefix(prefix).into_parts()?;
        self.factory(&target).map(|_| target)
    }

    /// Connects to one store, without what the core adds to it.
    ///
    /// # Errors
    /// As [`BackendFactory::connect`]; [`ErrorKind::Unsupported`] if the backend is not built in.
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn connect_to(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let factory = self.factory(&target)?;
        let name = factory.schemes()[0];
        factory.connect(target).await.map_err(|error| error.with_context("connect", name, None))
    }

    /// The script that makes what the store has to have beforehand: see [`BackendFactory::schema`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend is not built in, or needs nothing beforehand; [`ErrorKind::Invalid`]
    /// for a wrong setting.
    pub fn schema(&self, config: Config) -> Result<String> {
        let (_, target) = config.into_parts()?;
        if target.url.scheme() == both::SCHEME {
            let wrong = "both: is two stores: print the script of each by its own URL";
            return Err(Error::new(ErrorKind::Unsupported, wrong));
        }
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
                let known: Vec<_> =
                    self.built_in.keys().chain(self.absent.keys()).copied().chain([both::SCHEME]).collect();
                {
                    let meant = meant(scheme, known.iter().copied());
                    let hint = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or(";".to_owned());
                    format!("no backend has the scheme {scheme:?}{hint} there are {}", known.join(", "))
                }
            }
        };
        Error::new(ErrorKind::Unsupported, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
