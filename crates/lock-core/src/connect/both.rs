//! `both:?from=URL&to=URL`: two stores as one.

use std::sync::Arc;

use crate::both::Both;
use crate::connect::factory::Target;
use crate::connect::registry::Registry;
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
    let from = registry.connect_to(of(registry, "from", &from, &prefix)?).await?;
    let to = registry.connect_to(of(registry, "to", &to, &prefix)?).await?;
    Ok(Arc::new(Both::new(from, to, tokens)?))
}

/// One of the two, which may have a prefix of its own.
fn of(registry: &Registry, which: &str, url: &str, prefix: &str) -> Result<Target> {
    registry.target(url, prefix).map_err(|error| Error::new(error.kind(), format!("{which}: {}", error.message())))
}
