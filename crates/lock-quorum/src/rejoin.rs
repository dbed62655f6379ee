//! A store that restarted empty is kept out for as long as a lease may last.
//!
//! Each store has a mark: a hold that nobody renews, kept for years. A store without one is new or has lost what it
//! kept, and gets one. It counts again when its mark is older than the longest lease: then whoever held a lock there
//! before it was emptied holds it no longer. The mark is read after the store has granted, so a store that lost both
//! in between does not count either. And it has to be that old when the lock was asked for: the token of an earlier
//! grant was drawn while the store's clock could be behind what others had drawn before.

use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Grant, Instant, LockName, OwnerId, Result};
use rand::RngExt;

use crate::Inner;
use crate::gather::{Request, gather};
use crate::member::Client;

/// What the names of the locks begin with that are the quorum's own.
const OWN: &str = "oarlock-quorum/";

/// How long a mark stays: a store is left out once more after that.
const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// For how long one may take to make a mark.
const MAKING: Duration = Duration::from_secs(10);

/// Is this no application's lock?
pub(crate) fn is_own(name: &LockName) -> bool {
    name.as_str().starts_with(OWN)
}

/// The name of a lock of the quorum's own.
fn own_name(name: &str) -> LockName {
    LockName::new(format!("{OWN}{name}").as_str()).expect("it is a name")
}

/// What shows whether two stores are the same.
pub(crate) fn probe() -> LockName {
    own_name("probe")
}

fn mark() -> LockName {
    own_name("mark")
}

/// A claim to a lock of the quorum's own, for so long where the store gives that, and no longer than a mark takes.
pub(crate) fn own(name: LockName, client: &Client, lease: Duration) -> Claim {
    let owner = OwnerId::from_store(&format!("quorum@store:0#{:032x}", rand::rng().random::<u128>()));
    let capabilities = client.capabilities();
    let lease = lease.min(MAKING).max(capabilities.min_lease);
    Claim::new(name, owner, capabilities.max_lease.map_or(lease, |longest| longest.min(lease)))
}

/// For how long the store has had its mark; `None`: it has none.
pub(crate) async fn marked(client: &Client) -> Result<Option<Duration>> {
    match client.holder(&mark()).await {
        Ok(Some(holder)) if holder.kept => Ok(Some(holder.held_for)),
        // Somebody is making it.
        Ok(Some(_)) => Ok(Some(Duration::ZERO)),
        Ok(None) => Ok(None),
        // A file in which no lock was taken yet.
        Err(error) if error.kind() == ErrorKind::Refused => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same of a mark that is made if there is none.
pub(crate) async fn marked_for(client: &Client) -> Result<Duration> {
    if let Some(age) = marked(client).await? {
        return Ok(age);
    }
    let claim = own(mark(), client, MAKING);
    if client.try_lock(&claim).await?.is_some() {
        client.keep(&claim, YEARS).await?;
    }
    Ok(Duration::ZERO)
}

/// The lock was not granted, for too many stores do not count for so long.
pub(crate) fn young(left: Duration, undone: bool) -> Error {
    let wrong = format!(
        "most of the stores that could grant the lock are new, or have lost what they kept: by rejoin_after they count \
         in {} s",
        seconds(left)
    );
    Error::new(if undone { ErrorKind::Unavailable } else { ErrorKind::Unknown }, wrong)
}

/// In whole seconds, and not too early.
pub(crate) fn seconds(left: Duration) -> u128 {
    left.as_millis().div_ceil(1000)
}

impl Inner {
    /// How long it is until each store may count that granted a lock, none of them before `first`. `None`: it did not say.
    pub(crate) async fn fit(&self, grants: &[(usize, Grant)], first: Instant) -> Vec<Option<Duration>> {
        let Some(longest) = self.options.rejoin_after else { return vec![Some(Duration::ZERO); self.members.len()] };
        let requests = grants.iter().map(|(place, _)| {
            let member = &self.members[*place];
            let request: Request<'_, Duration> = Box::pin(async move { marked_for(member.client()?).await });
            (*place, request)
        });
        let left = |answer: &Option<Result<Duration>>| {
            let longest = longest + self.clock.now().saturating_duration_since(first);
            let age = answer.as_ref()?.as_ref().ok()?;
            // As old is not older.
            Some(if *age > longest { Duration::ZERO } else { longest - *age + Duration::from_millis(1) })
        };
        let decided = |answers: &[Option<Result<Duration>>]| {
            answers.iter().filter(|answer| left(answer) == Some(Duration::ZERO)).count() >= self.majority()
        };
        let answers = gather(&self.members, requests, self.options.timeout, decided).await;
        answers.iter().map(left).collect()
    }
}
