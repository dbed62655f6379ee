//! Tokens of two clients while the base is raised, deleted, or made by somebody else.

use etcd_client::Client;
use lock_core::{Claim, DistributedLock, Grant, LockName, OwnerId};
use test_servers::EtcdCluster;

use super::*;
use crate::EtcdLock;

/// Never over while a test runs.
const LONG: Duration = Duration::from_secs(300);

const BOUND: Duration = Duration::from_secs(20);

fn claim(name: &str, owner: &str) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store(owner), LONG)
}

async fn connect(cluster: &EtcdCluster) -> EtcdLock {
    EtcdLock::connect(&cluster.url(), "oarlock").await.unwrap()
}

async fn raw(cluster: &EtcdCluster) -> Client {
    Client::connect([cluster.addresses()[0].to_string()], None).await.unwrap()
}

async fn granted(lock: &EtcdLock, claim: &Claim) -> Grant {
    let locking = tokio::time::timeout(BOUND, lock.lock(claim));
    locking.await.expect("nobody else wants it").unwrap()
}

async fn token(lock: &EtcdLock, owner: &str) -> u64 {
    let claim = claim("x", owner);
    let grant = granted(lock, &claim).await;
    lock.unlock(&claim).await.unwrap();
    grant.token.get()
}

async fn raise(lock: &EtcdLock, above: u64) {
    lock.raise_tokens(&LockName::new("x").unwrap(), StoreToken::new(above).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_raises_tokens_raises_those_of_all() {
    let cluster = EtcdCluster::start(1);
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    let before = token(&one, "a").await;
    assert!(token(&other, "b").await > before);
    let above = before + 1_000_000_000_000;
    raise(&one, above).await;
    // By trying as well as by waiting.
    let grant = other.try_lock(&claim("x", "c")).await.unwrap().unwrap();
    assert!(grant.token.get() > above && grant.token.get() < above + 1000, "{grant:?}");
    other.unlock(&claim("x", "c")).await.unwrap();
    let next = token(&one, "d").await;
    assert!(next > grant.token.get());
    // What they are above already changes nothing.
    raise(&other, before).await;
    let last = token(&other, "e").await;
    assert!(last > next && last < next + 1000, "{last}");
}

/// A claim that was made before keeps its token, however late it is granted, and whoever looks sees that one.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_keeps_the_token_that_it_was_made_with() {
    let cluster = EtcdCluster::start(1);
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    let (holder, waiter, last) = (claim("x", "holder"), claim("x", "waiter"), claim("x", "last"));
    let first = granted(&one, &holder).await;
    let shown = async || other.inspect(&holder.name).await.unwrap();
    let wait_for = |lock: &EtcdLock, claim: &Claim| {
        let (lock, claim) = (lock.clone(), claim.clone());
        tokio::spawn(async move { granted(&lock, &claim).await })
    };
    let in_line = async |waiters: usize| {
        while shown().await.waiters.len() < waiters {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waiting = wait_for(&other, &waiter);
    in_line(1).await;
    let above = first.token.get() + 1_000_000_000_000;
    raise(&one, above).await;
    assert_eq!(shown().await.into_holder().unwrap().token, first.token);
    assert_eq!(one.try_lock(&holder).await.unwrap().unwrap().token, first.token, "it is asked for again");
    let late = wait_for(&one, &last);
    in_line(2).await;
    one.unlock(&holder).await.unwrap();
    let second = waiting.await.unwrap().token;
    assert!(second > first.token && second.get() < above);
    assert_eq!(shown().await.into_holder().unwrap().token, second);
    other.unlock(&waiter).await.unwrap();
    assert!(late.await.unwrap().token.get() > above);
}

/// Which base it was made with cannot be read any more: a token that is too high would be above those of who waits.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_claim_before_a_raise_and_a_compaction_no_token_is_shown() {
    let cluster = EtcdCluster::start(1);
    let lock = connect(&cluster).await;
    let (before, after) = (claim("before", "a"), claim("after", "b"));
    let grant = granted(&lock, &before).await;
    raise(&lock, grant.token.get() + 1_000_000_000_000).await;
    let other = granted(&lock, &after).await;
    let mut raw = raw(&cluster).await;
    let present = raw.put("z", "", None).await.unwrap().header().unwrap().revision();
    raw.compact(present, None).await.unwrap();
    let shown = async |claim: &Claim| lock.inspect(&claim.name).await.unwrap().into_holder().unwrap().token;
    assert_eq!((shown(&before).await, shown(&after).await), (Holder::NO_TOKEN, other.token));
    let again = lock.try_lock(&before).await.unwrap_err();
    assert!(again.to_string().contains("is compacted"), "{again}");
    lock.unlock(&before).await.unwrap();
    assert!(granted(&lock, &claim("before", "c")).await.token > other.token);
}

/// Somebody deletes it while clients run: the next claims are granted, and tokens rise.
#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_is_deleted_is_made_anew_and_higher() {
    let cluster = EtcdCluster::start(1);
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    let mut raw = raw(&cluster).await;
    // Far above any clock.
    let above = token(&one, "a").await + 1_000_000_000_000;
    raise(&one, above).await;
    let mut last = token(&other, "b").await;
    for turn in 0..3 {
        raw.delete("oarlock/%tokens", None).await.unwrap();
        for lock in [&one, &other] {
            let next = token(lock, &turn.to_string()).await;
            assert!(next > last, "{turn}: {next} after {last}");
            last = next;
        }
    }
}

/// A newcomer whose clock is behind makes it anew: who knew a higher one raises it.
#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_fell_is_raised() {
    let cluster = EtcdCluster::start(1);
    let lock = connect(&cluster).await;
    let before = token(&lock, "a").await;
    let mut raw = raw(&cluster).await;
    raw.delete("oarlock/%tokens", None).await.unwrap();
    raw.put("oarlock/%tokens", "1000", None).await.unwrap();
    assert!(token(&lock, "b").await > before);
    assert!(token(&connect(&cluster).await, "c").await > before);
    raw.put("oarlock/%tokens", "1000", None).await.unwrap();
    assert!(token(&lock, "d").await > before);
}
