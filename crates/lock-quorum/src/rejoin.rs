//! A store that restarted empty is kept out for as long as a lease may last.
//!
//! Each store has a mark: a hold that nobody renews, kept for years. A store without one is new or has lost what it
//! kept, and gets one. It counts again when its mark is older than the longest lease: then whoever held a lock there
//! before it was emptied holds it no longer. The mark is read after the store has granted, so a store that lost both
//! in between does not count either. And it has to be that old when the lock was asked for: the token of an earlier
//! grant was drawn while the store's clock could be behind what others had drawn before.

use std::time::Duration;

use lock_core::{Claim, ErrorKind, Grant, Instant, LockName, OwnerId, Result};
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

/// A claim to a lock of the quorum's own.
pub(crate) fn own(name: &str, client: &Client) -> Claim {
    let name = LockName::new(format!("{OWN}{name}").as_str()).expect("it is a name");
    let owner = OwnerId::from_store(&format!("quorum@store:0#{:032x}", rand::rng().random::<u128>()));
    let capabilities = client.capabilities();
    let lease = MAKING.max(capabilities.min_lease);
    Claim::new(name, owner, capabilities.max_lease.map_or(lease, |longest| longest.min(lease)))
}

/// For how long the store has had its mark, which is made if there is none.
pub(crate) async fn marked_for(client: &Client) -> Result<Duration> {
    let claim = own("mark", client);
    match client.holder(&claim.name).await {
        Ok(Some(mark)) if mark.kept => return Ok(mark.held_for),
        // Somebody is making it.
        Ok(Some(_)) => return Ok(Duration::ZERO),
        Ok(None) => {}
        // A file in which no lock was taken yet.
        Err(error) if error.kind() == ErrorKind::Refused => {}
        Err(error) => return Err(error),
    }
    if client.try_lock(&claim).await?.is_some() {
        client.keep(&claim, YEARS).await?;
    }
    Ok(Duration::ZERO)
}

impl Inner {
    /// Which of the stores may count that granted a lock, none of them before `first`.
    pub(crate) async fn fit(&self, grants: &[(usize, Grant)], first: Instant) -> Vec<bool> {
        let Some(longest) = self.options.rejoin_after else { return vec![true; self.members.len()] };
        let requests = grants.iter().map(|(place, _)| {
            let member = &self.members[*place];
            let request: Request<'_, Duration> = Box::pin(async move { marked_for(member.client()?).await });
            (*place, request)
        });
        let is_fit = |answer: &Option<Result<Duration>>| {
            let longest = longest + self.clock.now().saturating_duration_since(first);
            matches!(answer, Some(Ok(age)) if *age > longest)
        };
        let decided = |answers: &[Option<Result<Duration>>]| {
            answers.iter().filter(|answer| is_fit(answer)).count() >= self.majority()
        };
        let answers = gather(&self.members, requests, self.options.timeout, decided).await;
        answers.iter().map(is_fit).collect()
    }
}
