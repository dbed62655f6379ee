//! What can be chosen, and the way from a URL to the stores.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{BackendFactory, DistributedLock, Error, ErrorKind, Registry, Result, Target, check_timeout};

use crate::QuorumLock;
use crate::member::{Connect, Member};

/// What can be chosen of a quorum.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QuorumOptions {
    pub(crate) timeout: Duration,
    pub(crate) rejoin_after: Option<Duration>,
}

impl Default for QuorumOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(5), rejoin_after: None }
    }
}

impl QuorumOptions {
    /// The settings in a URL or a config.
    pub(crate) const SETTINGS: [&'static str; 3] = ["store", "timeout", "rejoin_after"];

    /// How long a store may take to answer, 5 s unless set, if a majority of the others has not answered sooner. What
    /// bounds the requests of each store itself counts too.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A store that has lost all it kept does not count for so long, which is the longest lease: longer ones are
    /// refused. Without it, a store that restarts empty may have a second holder, see [what it cannot
    /// promise](crate#what-it-cannot-promise). A store that is new counts only after this time, too. Meanwhile `lock`
    /// waits, and `try_lock` is [`ErrorKind::Unavailable`].
    #[must_use]
    pub fn rejoin_after(mut self, longest_lease: Duration) -> Self {
        self.rejoin_after = Some(longest_lease);
        self
    }

    /// Over these stores, each by a client of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an even number of stores or a single one, or if two are one and the same, which the
    /// first lock finds if it has to make one of them, such as an SQLite file;
    /// [`ErrorKind::Unsupported`] for a store that does not let its tokens be raised under claims that wait.
    ///
    /// # Cancel safety
    /// Nothing is held yet.
    pub async fn over(self, stores: impl IntoIterator<Item = Arc<dyn DistributedLock>>) -> Result<QuorumLock> {
        let stores = stores.into_iter().enumerate();
        let members: Vec<_> = stores.map(|(place, store)| Member::connected(place, store)).collect();
        check_count(members.len())?;
        QuorumLock::open(members, self).await
    }
}

/// Connects to `quorum:?store=URL&store=URL&store=URL`, an odd number of stores of a registry.
///
/// Its own settings are `timeout`, see [`QuorumOptions::timeout`], and `rejoin_after`, see
/// [`QuorumOptions::rejoin_after`]. What else a store's URL has is that store's own.
#[derive(Clone, Debug)]
pub struct QuorumFactory(Registry);

impl QuorumFactory {
    /// Over the stores that this registry knows now.
    pub fn over(registry: Registry) -> Self {
        Self(registry)
    }
}

#[async_trait]
impl BackendFactory for QuorumFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["quorum"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let Target { url, prefix, mut params, .. } = target;
        if !url.rest().is_empty() {
            return Err(invalid("quorum: names no store itself: write quorum:?store=URL&store=URL&store=URL"));
        }
        let urls = params.take_stores();
        let mut options = QuorumOptions::default();
        options.timeout = params.take_duration("timeout")?.unwrap_or(options.timeout);
        check_timeout(options.timeout)?;
        options.rejoin_after = params.take_duration("rejoin_after")?;
        params.finish("quorum", &QuorumOptions::SETTINGS)?;
        check_count(urls.len())?;
        let mut members = Vec::new();
        for (place, url) in urls.iter().enumerate() {
            let of = |error: Error| Error::new(error.kind(), format!("store {}: {error}", place + 1));
            if let Some(same) = urls[..place].iter().position(|before| before == url) {
                return Err(invalid(&format!("stores {} and {} are the same store", same + 1, place + 1)));
            }
            let target = self.0.target(url, &prefix).map_err(of)?;
            if target.prefix != prefix {
                return Err(of(invalid("the prefix is the same in all stores: set it beside them")));
            }
            let mode = target.params.clone().take("mode");
            check_kind(target.url.scheme(), mode.as_deref()).map_err(of)?;
            let registry = self.0.clone();
            let connect: Connect = Box::new(move || {
                let (registry, target) = (registry.clone(), target.clone());
                Box::pin(async move { registry.connect_to(target).await })
            });
            members.push(Member::new(place, connect));
        }
        Ok(Arc::new(QuorumLock::open(members, options).await?))
    }
}

/// Stores that answer are asked what they can do. These are refused at once, also while they are away: else they would be
/// left out for now, and refused when they are back.
fn check_kind(scheme: &str, mode: Option<&str>) -> Result<()> {
    let what = match (scheme, mode) {
        ("memcached" | "etcd" | "etcds" | "zookeeper" | "zk", _) => scheme.to_owned(),
        ("postgres" | "postgresql" | "mysql" | "mariadb", Some("session")) => format!("{scheme} by sessions"),
        _ => return Ok(()),
    };
    let wrong = format!("{what} cannot be in a quorum: its tokens cannot be raised under claims that wait");
    Err(Error::new(ErrorKind::Unsupported, wrong))
}

fn check_count(stores: usize) -> Result<()> {
    match stores {
        0 => Err(invalid("a quorum needs stores: write quorum:?store=URL&store=URL&store=URL")),
        1 => Err(invalid("a quorum of one store is that store: use its own URL")),
        2 => Err(invalid("a quorum of two stores ends with either: name three")),
        even if even % 2 == 0 => {
            Err(invalid(&format!("a quorum has an odd number of stores, and not {even}: name one more, or one fewer")))
        }
        _ => Ok(()),
    }
}

fn invalid(wrong: &str) -> Error {
    Error::new(ErrorKind::Invalid, wrong)
}
