//! A backend that is compared: its URL, and our own connection to it.

use std::time::Duration;

use oarlock::{Config, ListQuery, LockStatus, Locks, Scope};
use tokio::time::{Instant, sleep};

use crate::exit::{CONFIG, Failure};

/// How long locks and waiters may take to go by themselves before they are ended.
const GRACE: Duration = Duration::from_secs(4);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// One of many locks. All steps use the same ones, since a store may keep a little of each for a while.
pub(super) fn one_of_many(number: u32) -> String {
    format!("many/{number}")
}

#[derive(Debug)]
pub(crate) struct Subject {
    /// How the report calls it.
    pub(crate) name: String,
    /// A secret.
    pub(crate) url: String,
    /// The same without what is secret.
    pub(crate) shown: String,
    pub(crate) locks: Locks,
}

impl Subject {
    /// Connects to `[NAME=]URL`.
    pub(crate) async fn connect(text: &str, prefix: &str) -> Result<Self, Failure> {
        let (name, url) = split(text);
        let locks = connect(url, prefix).await?;
        // Before its first lock, SQLite has nothing that could be looked at.
        if let Some(first) = locks.mutex("first").try_lock().await? {
            first.unlock().await?;
        }
        let config = Config::from_url(url).map_err(|error| Failure::config(&error))?;
        let shown = config.url().map(ToString::to_string).unwrap_or_default();
        let name = name.unwrap_or(locks.capabilities().backend).to_owned();
        Ok(Self { name, url: url.to_owned(), shown, locks })
    }

    /// The lease of locks whose holder is not killed, or of all if the store gives none so short.
    pub(crate) fn lease(&self, wanted: Duration) -> Duration {
        wanted.max(self.locks.capabilities().min_lease)
    }

    /// Waits until nothing is left under our prefix, and ends what does not go by itself. Answers what stays.
    pub(crate) async fn sweep(&self) -> Result<Vec<String>, Failure> {
        let started = Instant::now();
        loop {
            let left = self.left().await?;
            if left.is_empty() || started.elapsed() > 2 * GRACE {
                return Ok(left.into_iter().map(|lock| lock.name.to_string()).collect());
            }
            if started.elapsed() > GRACE {
                for lock in left.iter().filter(|lock| lock.holder().is_some()) {
                    self.locks.evict(lock.name.as_str()).await?;
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn left(&self) -> Result<Vec<LockStatus>, Failure> {
        Ok(self.locks.list(&ListQuery::default()).await?.locks)
    }
}

/// The name, if there is one, and the URL. A URL's scheme comes before any `=`.
fn split(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((name, url)) if !name.is_empty() && !name.contains(':') => (Some(name), url),
        _ => (None, text),
    }
}

/// Connects with our own prefix.
pub(super) async fn connect(url: &str, prefix: &str) -> Result<Locks, Failure> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    if let Some(own) = ["prefix", "label"]
        .iter()
        .find(|own| query.split('&').any(|pair| pair.split_once('=').is_some_and(|(key, _)| key == **own)))
    {
        return Err(Failure::new(CONFIG, format!("compare has a {own} of its own: leave it out of the URL")));
    }
    let failed = |error: oarlock::Error| Failure::config(&error);
    let ours = format!("prefix = \"{prefix}\"\nlabel = \"{LABEL}\"");
    let config = Config::from_url(url).map_err(failed)?.overlay(Config::from_toml(&ours).map_err(failed)?);
    let locks = oarlock::connect_with(config).await.map_err(failed)?;
    if locks.capabilities().scope == Scope::Process {
        let backend = locks.capabilities().backend;
        let message = format!("{backend} locks within one process only: there is nothing to compare between processes");
        return Err(Failure::new(CONFIG, message));
    }
    Ok(locks)
}

const LABEL: &str = "oarlock-compare";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_before_the_url() {
        assert_eq!(split("cache=redis://host?x=1"), (Some("cache"), "redis://host?x=1"));
        assert_eq!(split("redis://host?x=1"), (None, "redis://host?x=1"));
        assert_eq!(split("sqlite:a=b.db"), (None, "sqlite:a=b.db"));
    }
}
