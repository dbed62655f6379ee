//! Many leases renewed at once, as the library's keeper does it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oarlock::{Claim, DistributedLock, LockName, OwnerId, Renewal};
use tokio::task::JoinSet;

use super::subject::one_of_many;
use crate::exit::{Failure, UNAVAILABLE};

/// How many are asked for at a time.
const AT_ONCE: usize = 64;

/// What is held, or perhaps held.
#[derive(Debug, Default)]
pub(super) struct Kept(Vec<Claim>);

impl Kept {
    /// Takes so many locks and renews all of them once. Answers how long the renewal took.
    pub(super) async fn renew(
        &mut self,
        store: &Arc<dyn DistributedLock>,
        count: u32,
        lease: Duration,
    ) -> Result<Duration, Failure> {
        for number in 0..count {
            let name = LockName::new(&one_of_many(number))?;
            self.0.push(Claim::new(name, owner(), lease));
        }
        let taken = each(store, &self.0, |store, claim| async move { store.try_lock(&claim).await }).await;
        for grant in taken {
            grant?.ok_or_else(|| Failure::new(UNAVAILABLE, "a lock of our own was held by another"))?;
        }
        let started = Instant::now();
        let renewed = store.renew(&self.0).await;
        let took = started.elapsed();
        for renewal in renewed {
            if renewal? == Renewal::NotHeld {
                return Err(Failure::new(UNAVAILABLE, "a lock was lost before its lease was over"));
            }
        }
        Ok(took)
    }

    /// Releases all that may be held.
    pub(super) async fn give_back(self, store: &Arc<dyn DistributedLock>) -> Result<(), Failure> {
        for released in each(store, &self.0, |store, claim| async move { store.unlock(&claim).await }).await {
            released?;
        }
        Ok(())
    }
}

/// Does something with each claim, some at a time.
async fn each<T, F>(
    store: &Arc<dyn DistributedLock>,
    claims: &[Claim],
    ask: impl Fn(Arc<dyn DistributedLock>, Claim) -> F,
) -> Vec<oarlock::Result<T>>
where
    T: Send + 'static,
    F: Future<Output = oarlock::Result<T>> + Send + 'static,
{
    let mut answers = Vec::new();
    for some in claims.chunks(AT_ONCE) {
        let asked: JoinSet<_> = some.iter().map(|claim| ask(Arc::clone(store), claim.clone())).collect();
        answers.extend(asked.join_all().await);
    }
    answers
}

/// One that nobody else has, in the form of the library's own.
fn owner() -> OwnerId {
    let random = format!("{:032x}", rand::random::<u128>());
    let parts = [&random[..8], &random[8..12], &random[12..16], &random[16..20], &random[20..]];
    OwnerId::from_store(&format!("oarlock-compare@localhost:{}#{}", std::process::id(), parts.join("-")))
}
