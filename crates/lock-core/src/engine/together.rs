//! Several locks in one request, while all of them are free. Whoever finds that they are not takes them one after the
//! other, and learns by that what is wrong, if anything is.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::contract::options::LockOptions;
use crate::contract::{Instant, LockName};
use crate::engine::core::{Core, sleep_until};
use crate::engine::queue::{Entry, Ticket};
use crate::engine::request::Pending;
use crate::engine::telemetry::Began;
use crate::engine::{LockGuard, timing};

/// The locks of these names, each for one holder, in the names' order. `None`: they were not all free, or the store
/// cannot do this or has failed; then none of them is held, or the release goes on in the background.
pub(crate) async fn together(
    core: &Arc<Core>,
    names: Vec<LockName>,
    options: &LockOptions,
    deadline: Option<Instant>,
) -> Option<Vec<LockGuard>> {
    let suits = core.capabilities.takes_all && options.token_floor == 0;
    if !suits || core.check_open("lock").is_err() || options.check(&core.capabilities).is_err() {
        return None;
    }
    let is_free = |name| {
        // As one that does not wait: nobody of the process who does is overtaken, since the store's line is asked.
        let ticket = Ticket { options, owner: None, waits: false };
        matches!(core.queue.enter(name, ticket), Entry::Ask(None))
    };
    if !names.iter().all(is_free) {
        return None;
    }
    let began = Began::now();
    let lease = core.lease(options);
    let claims: Vec<_> = names.into_iter().map(|name| core.claim(name, lease, options, None)).collect();
    let mut pending: Vec<_> = claims.iter().map(|claim| Pending::arm(Arc::clone(core), claim.clone())).collect();
    let answer = tokio::select! {
        biased;
        answer = core.backend.try_lock_all(&claims) => answer,
        () = core.closed.cancelled() => return None,
        () = sleep_until(&*core.clock, deadline) => return None,
    };
    match answer {
        Ok(Some(grants)) if grants.len() == claims.len() => {
            let taken = pending.iter_mut().zip(grants).map(|(pending, grant)| {
                let claim = pending.claim.take().expect("nothing was undone");
                // One that is over already gives itself back, and so do the others.
                core.guard(claim, grant, options, None, None).ok()
            });
            let guards = taken.collect::<Vec<_>>().into_iter().collect::<Option<Vec<_>>>()?;
            guards.iter().for_each(|guard| core.telemetry.acquired(began, Ok(Some(guard))));
            Some(guards)
        }
        Ok(Some(_)) => None,
        Ok(None) => {
            pending.iter_mut().for_each(|pending| pending.claim = None);
            None
        }
        Err(error) => {
            tracing::debug!(%error, "not taken together");
            if error.is_refused() {
                pending.iter_mut().for_each(|pending| pending.claim = None);
            } else {
                let late = core.clock.now() + timing::GRACE;
                join_all(pending.into_iter().map(|pending| pending.undo(late))).await;
            }
            None
        }
    }
}
