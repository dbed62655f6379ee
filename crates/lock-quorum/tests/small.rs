//! Over three stores in memory that misbehave to order.

#[path = "small/opening.rs"]
mod opening;
#[path = "small/rejoining.rs"]
mod rejoining;
#[path = "small/rules.rs"]
mod rules;

use std::sync::Arc;
use std::time::Duration;

use lock_core::memory::MemoryLock;
use lock_core::testing::Faulty;
use lock_core::{Claim, DistributedLock, LockName, OwnerId};
use lock_quorum::{QuorumLock, QuorumOptions};

const LONG: Duration = Duration::from_secs(300);

/// How long a store may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Three stores of which others know nothing.
struct Stores([MemoryLock; 3]);

impl Stores {
    fn new() -> Self {
        Self([(); 3].map(|()| MemoryLock::new()))
    }

    /// A client, and the way to each store.
    async fn client(&self) -> (QuorumLock, [Faulty; 3]) {
        let faulty = [0, 1, 2].map(|store| Faulty::new(Arc::new(self.0[store].client())));
        let quorum = QuorumOptions::default().timeout(TIMEOUT).over(faulty.iter().map(Faulty::backend)).await.unwrap();
        (quorum, faulty)
    }

    /// Who has the lock in each.
    async fn holders(&self) -> [Option<OwnerId>; 3] {
        let mut holders = [None, None, None];
        for (holder, store) in holders.iter_mut().zip(&self.0) {
            *holder = store.holder(&name()).await.unwrap().map(|holder| holder.owner);
        }
        holders
    }
}

fn name() -> LockName {
    LockName::new("x").unwrap()
}

fn claim(owner: &str) -> Claim {
    Claim::new(name(), OwnerId::from_store(owner), LONG)
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap()
}
