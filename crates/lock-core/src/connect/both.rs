//! `both:?from=URL&to=URL`: two stores as one.

use std::sync::Arc;

use crate::both::Both;
use crate::connect::config::Config;
use crate::connect::factory::Target;
use crate::connect::registry::Registry;
use crate::connect::settings::SETTINGS;
use crate::contract::{DistributedLock, Error, ErrorKind, Result};

pub(super) const SCHEME: &str = "both";

/// Connects to the two stores, by the factories of this registry.
pub(super) async fn connect(registry: &Registry, target: Target) -> Result<Arc<dyn DistributedLock>> {
    let Target { url, prefix, mut params } = target;
    let invalid = |wrong: &str| Error::new(ErrorKind::Invalid, wrong);
    if !url.rest().is_empty() {
        return Err(invalid("both: names no store itself: write both:?from=URL&to=URL"));
    }
    let urls = params.take_both(["from", "to"])?;
    let (from, to) = urls.ok_or_else(|| invalid("both: needs two stores: write both:?from=URL&to=URL"))?;
    let tokens = params.take_parsed("tokens")?.unwrap_or_default();
    params.finish(SCHEME, &["from", "to", "tokens"])?;
    if from == to {
        return Err(invalid("from and to are the same store"));
    }
    let from = registry.connect_to(of("from", &from, &prefix)?).await?;
    let to = registry.connect_to(of("to", &to, &prefix)?).await?;
    Ok(Arc::new(Both::new(from, to, tokens)?))
}

/// One of the two. It may have a prefix of its own; what concerns the locks stands in the URL of both.
fn of(which: &str, url: &str, prefix: &str) -> Result<Target> {
    let wrong = |wrong: &str| Error::new(ErrorKind::Invalid, format!("{which}: {wrong}"));
    let config = Config::from_url(url).map_err(|error| wrong(error.message()))?;
    if let Some(url) = config.url() {
        if url.scheme() == SCHEME {
            return Err(wrong("a store of both: cannot be both: itself"));
        }
        let common =
            |key: &&String| SETTINGS.contains(&key.as_str()) && !["prefix", "password_file"].contains(&key.as_str());
        if let Some(key) = url.params().0.keys().find(common) {
            return Err(wrong(&format!("{key:?} is a setting of both stores: it does not belong into the URL of one")));
        }
    }
    let (_, target) = config.prefix(prefix).into_parts().map_err(|error| wrong(error.message()))?;
    Ok(target)
}
