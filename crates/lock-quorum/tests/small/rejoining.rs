//! A store that restarts empty.

use std::sync::Arc;
use std::time::Duration;

use lock_core::memory::MemoryLock;
use lock_core::{Claim, DistributedLock, ErrorKind, LockName, OwnerId};
use lock_quorum::{QuorumLock, QuorumOptions};

const LEASE: Duration = Duration::from_secs(1);

fn claim(owner: &str) -> Claim {
    Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), LEASE)
}

async fn over(stores: [&MemoryLock; 3], rejoin: bool) -> QuorumLock {
    let options = if rejoin { QuorumOptions::default().rejoin_after(LEASE) } else { QuorumOptions::default() };
    options.over(stores.map(|store| Arc::new(store.client()) as Arc<dyn DistributedLock>)).await.unwrap()
}

/// Who holds in the first two stores, of which the second restarts empty, has another beside it if that counts at once.
async fn second_holder(rejoin: bool) -> bool {
    let [a, b, c, emptied] = [(); 4].map(|()| MemoryLock::new());
    let before = over([&a, &b, &c], rejoin).await;
    if rejoin {
        let early = before.try_lock(&claim("too early")).await.unwrap_err();
        assert!(early.kind() == ErrorKind::Unavailable && early.to_string().contains("rejoin_after"), "{early}");
        for store in [&a, &b, &c] {
            assert!(store.holder(&claim("too early").name).await.unwrap().is_none(), "something is left");
        }
        // Whoever waits goes on waiting, also beside another.
        let waiting = ["in time", "beside it"].map(|owner| {
            let (before, claim) = (before.clone(), claim(owner));
            tokio::spawn(async move {
                before.lock(&claim).await.unwrap();
                before.unlock(&claim).await.unwrap();
            })
        });
        for waiting in waiting {
            tokio::time::timeout(LEASE * 20, waiting).await.unwrap().unwrap();
        }
    }
    before.try_lock(&claim("first")).await.unwrap().unwrap();
    c.unlock(&claim("first")).await.unwrap();
    let after = over([&a, &emptied, &c], rejoin).await;
    let second = after.try_lock(&claim("second")).await.unwrap().is_some();
    if !rejoin {
        return second;
    }
    assert!(!second);
    let told = after.doctor().await.unwrap();
    assert!(told.iter().any(|found| found.setting == "store 2 is new, or has lost what it kept"), "{told:?}");
    tokio::time::sleep(LEASE + Duration::from_millis(20)).await;
    // It counts again, and what was held before is over.
    after.try_lock(&claim("third")).await.unwrap().unwrap();
    false
}

#[tokio::test]
async fn a_store_that_restarts_empty_may_have_a_second_holder() {
    assert!(second_holder(false).await);
}

#[tokio::test]
async fn it_has_none_if_it_is_kept_out_for_the_longest_lease() {
    assert!(!second_holder(true).await);
}

#[tokio::test]
async fn longer_leases_than_that_are_refused() {
    let [a, b, c] = [(); 3].map(|()| MemoryLock::new());
    let quorum = over([&a, &b, &c], true).await;
    assert_eq!(quorum.capabilities().max_lease, Some(LEASE));
    let mut long = claim("a");
    long.lease = LEASE * 2;
    assert_eq!(quorum.try_lock(&long).await.unwrap_err().kind(), ErrorKind::Invalid);
}
