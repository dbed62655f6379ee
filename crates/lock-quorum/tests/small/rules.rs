//! The rules by which a quorum grants, renews and releases.

use std::time::Duration;

use lock_core::memory::Verb;
use lock_core::testing::{Effect, Faulty};
use lock_core::{Capabilities, DistributedLock, ErrorKind, Renewal, Result, StoreToken, Unlocked};
use lock_quorum::QuorumLock;
use tokio::task::JoinHandle;

use super::{Stores, TIMEOUT, claim, soon};

#[tokio::test]
async fn one_store_of_three_may_be_away() {
    let stores = Stores::new();
    let ((one, ways), (other, _)) = (stores.client().await, stores.client().await);
    ways[1].everything(Effect::AWAY);
    one.try_lock(&claim("a")).await.unwrap().unwrap();
    assert!(other.try_lock(&claim("b")).await.unwrap().is_none());
    assert!(matches!(one.renew(&[claim("a")]).await[..], [Ok(Renewal::Held { .. })]));
    assert_eq!(one.unlock(&claim("a")).await.unwrap(), Unlocked::Released);
    other.try_lock(&claim("b")).await.unwrap().unwrap();
}

#[tokio::test]
async fn without_a_majority_it_grants_nothing_and_keeps_nothing() {
    let stores = Stores::new();
    let (quorum, ways) = stores.client().await;
    for way in &ways[..2] {
        way.everything(Effect::AWAY);
    }
    assert_eq!(quorum.try_lock(&claim("a")).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(quorum.lock(&claim("a")).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(stores.holders().await, [None, None, None]);
}

#[tokio::test]
async fn a_holder_without_a_majority_is_renewed_no_more() {
    let stores = Stores::new();
    let (quorum, ways) = stores.client().await;
    let before = quorum.try_lock(&claim("a")).await.unwrap().unwrap().valid_until;
    for way in &ways[1..] {
        way.everything(Effect::AWAY);
    }
    let renewed = quorum.renew(&[claim("a")]).await.remove(0);
    assert_eq!(renewed.unwrap_err().kind(), ErrorKind::Unknown);
    ways.iter().for_each(|way| way.everything(Effect::Pass));
    assert!(
        matches!(quorum.renew(&[claim("a")]).await[..], [Ok(Renewal::Held { valid_until })] if valid_until >= before)
    );
    for store in &stores.0[1..] {
        store.script().lose("x");
    }
    assert!(matches!(quorum.renew(&[claim("a")]).await[..], [Ok(Renewal::NotHeld)]));
}

#[tokio::test]
async fn a_hold_outlives_stores_that_lose_it_one_by_one() {
    let stores = Stores::new();
    let (quorum, _) = stores.client().await;
    let token = quorum.try_lock(&claim("a")).await.unwrap().unwrap().token;
    for store in &stores.0 {
        store.script().lose("x");
        assert!(matches!(quorum.renew(&[claim("a")]).await[..], [Ok(Renewal::Held { .. })]));
        assert_eq!(stores.holders().await.iter().flatten().count(), 3, "it is taken again");
    }
    assert_eq!(quorum.unlock(&claim("a")).await.unwrap(), Unlocked::Released);
    assert_eq!(stores.holders().await, [None, None, None]);
    assert!(quorum.try_lock(&claim("b")).await.unwrap().unwrap().token > token);
}

/// The floor goes with the hold: two stores that never granted it before are the majority of the next holder.
#[tokio::test]
async fn tokens_rise_though_a_hold_has_moved_to_other_stores() {
    let stores = Stores::new();
    stores.0[0].raise_tokens(&claim("a").name, StoreToken::new(1 << 52).unwrap()).await.unwrap();
    let ((one, to_one), (other, to_other)) = (stores.client().await, stores.client().await);
    to_one[2].everything(Effect::AWAY);
    let token = one.try_lock(&claim("a")).await.unwrap().unwrap().token;
    to_one[2].everything(Effect::Pass);
    one.renew(&[claim("a")]).await.remove(0).unwrap();
    assert_eq!(stores.holders().await.iter().flatten().count(), 3, "the third store has it, too");
    assert_eq!(one.unlock(&claim("a")).await.unwrap(), Unlocked::Released);
    to_other[0].everything(Effect::AWAY);
    assert!(other.try_lock(&claim("b")).await.unwrap().unwrap().token > token);
}

/// Begins to renew the lock, and goes on when that has asked this of the store.
async fn renews(quorum: &QuorumLock, way: &Faulty, verb: Verb) -> JoinHandle<Vec<Result<Renewal>>> {
    let (quorum, before) = (quorum.clone(), way.calls(verb));
    let renewing = tokio::spawn(async move { quorum.renew(&[claim("a")]).await });
    soon(async {
        while way.calls(verb) == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    renewing
}

#[tokio::test]
async fn what_is_taken_again_is_released_though_the_release_came_first() {
    let stores = Stores::new();
    let (quorum, ways) = stores.client().await;
    quorum.try_lock(&claim("a")).await.unwrap().unwrap();
    stores.0[0].script().lose("x");
    ways[0].once(Verb::TryLock, Effect::DelayRequest(Duration::from_millis(100)));
    let renewing = renews(&quorum, &ways[0], Verb::TryLock).await;
    assert_eq!(quorum.unlock(&claim("a")).await.unwrap(), Unlocked::Released);
    renewing.await.unwrap();
    soon(async {
        while stores.holders().await != [None, None, None] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// 280. A renewal is on its way when the lock is released, and finds nothing any more at two stores: one that was
/// released already, and one that never granted it. The release is still on its way to the third.
#[tokio::test]
async fn a_renewal_that_a_release_overtakes_does_not_answer_for_it() {
    let stores = Stores::new();
    let (quorum, ways) = stores.client().await;
    stores.0[2].try_lock(&claim("first")).await.unwrap().unwrap();
    quorum.try_lock(&claim("a")).await.unwrap().unwrap();
    ways[0].once(Verb::Renew, Effect::DelayRequest(Duration::from_millis(100)));
    ways[1].once(Verb::Unlock, Effect::DelayRequest(Duration::from_millis(300)));
    let renewing = renews(&quorum, &ways[0], Verb::Renew).await;
    assert_eq!(quorum.unlock(&claim("a")).await.unwrap(), Unlocked::Released);
    assert!(matches!(renewing.await.unwrap()[..], [Ok(Renewal::NotHeld)]));
    assert_eq!(stores.holders().await, [None, None, Some(claim("first").owner)]);
}

/// A store that lost a hold grants it once more, and nobody hears it in time: so that is given back, and does not count
/// until then, when the store says that it is held.
#[tokio::test]
async fn what_is_given_back_does_not_count() {
    let stores = Stores::new();
    let (quorum, ways) = stores.client().await;
    quorum.try_lock(&claim("a")).await.unwrap().unwrap();
    stores.0[0].script().lose("x");
    ways[0].once(Verb::TryLock, Effect::DelayReply(TIMEOUT));
    ways[0].always(Verb::Unlock, Effect::AWAY);
    assert!(matches!(quorum.renew(&[claim("a")]).await[..], [Ok(Renewal::Held { .. })]));
    assert_eq!(stores.holders().await.iter().flatten().count(), 3);
    ways[1].everything(Effect::AWAY);
    assert_eq!(quorum.renew(&[claim("a")]).await.remove(0).unwrap_err().kind(), ErrorKind::Unknown);
    ways.iter().for_each(|way| way.everything(Effect::Pass));
    soon(async {
        while stores.holders().await[0].is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(matches!(quorum.renew(&[claim("a")]).await[..], [Ok(Renewal::Held { .. })]));
    assert_eq!(stores.holders().await.iter().flatten().count(), 3, "by another name");
    assert_eq!(quorum.unlock(&claim("a")).await.unwrap(), Unlocked::Released);
    assert_eq!(stores.holders().await, [None, None, None]);
}

/// A store does not answer when a waiter gives it back, and is asked again by another owner. Whoever gives up then gives
/// back all that it asked for.
#[tokio::test]
async fn whoever_gives_up_gives_back_every_turn() {
    let stores = Stores::new();
    let (quorum, ways) = stores.client().await;
    for store in &stores.0[..2] {
        store.try_lock(&claim("first")).await.unwrap().unwrap();
    }
    ways[2].always(Verb::Unlock, Effect::AWAY);
    let before = ways[2].calls(Verb::TryLock);
    let waiting = {
        let quorum = quorum.clone();
        tokio::spawn(async move { quorum.lock(&claim("a")).await })
    };
    let asked = async |often: usize| {
        while ways[2].calls(Verb::TryLock) < before + often {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(asked(1)).await;
    // Two stores seem to be free then, and one of them knows the owner by its old name.
    stores.0[1].unlock(&claim("first")).await.unwrap();
    soon(asked(3)).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(stores.holders().await[2], Some(claim("a").owner));
    ways[2].always(Verb::Unlock, Effect::Pass);
    quorum.unlock(&claim("a")).await.unwrap();
    assert_eq!(stores.holders().await[1..], [None, None]);
}

/// 279. Whoever waits gives back what too few stores granted, and is granted it later; then the first release lands once
/// more. The hold goes on, and all see its owner by the one name.
#[tokio::test]
async fn a_release_that_lands_again_ends_no_later_hold() {
    let stores = Stores::new();
    let ((one, ways), (other, _)) = (stores.client().await, stores.client().await);
    for store in &stores.0[..2] {
        store.try_lock(&claim("first")).await.unwrap().unwrap();
    }
    let before = ways[2].calls(Verb::Unlock);
    let waiting = {
        let one = one.clone();
        tokio::spawn(async move { one.lock(&claim("a")).await })
    };
    soon(async {
        while ways[2].calls(Verb::Unlock) == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for store in &stores.0[..2] {
        store.unlock(&claim("first")).await.unwrap();
    }
    let grant = soon(waiting).await.unwrap().unwrap();
    stores.0[2].unlock(&claim("a")).await.unwrap();
    assert!(matches!(one.renew(&[claim("a")]).await[..], [Ok(Renewal::Held { .. })]));
    assert_eq!(stores.holders().await.iter().flatten().count(), 3);
    stores.0[2].unlock(&claim("a")).await.unwrap();
    assert_eq!(stores.holders().await.iter().flatten().count(), 3, "without a renewal that takes it again");
    assert!(other.try_lock(&claim("b")).await.unwrap().is_none());
    let holder = other.inspect(&claim("a").name).await.unwrap().into_holder().unwrap();
    assert_eq!((holder.owner, holder.token), (claim("a").owner, grant.token));
    let evicted = other.evict_owner(&claim("a").name, &claim("a").owner).await.unwrap().unwrap();
    assert_eq!(evicted.owner, claim("a").owner);
    assert_eq!(stores.holders().await, [None, None, None]);
}

/// 100 of the first store and 50 of the second, and then 51 of the second and 50 of the third: that would be less.
#[tokio::test]
async fn tokens_rise_though_each_store_counts_for_itself() {
    let stores = Stores::new();
    let ahead = StoreToken::new(1 << 52).unwrap();
    stores.0[0].raise_tokens(&claim("a").name, ahead).await.unwrap();
    let ((one, to_one), (other, to_other)) = (stores.client().await, stores.client().await);
    to_one[2].everything(Effect::AWAY);
    to_other[0].everything(Effect::AWAY);
    let mut last = ahead;
    for client in [&one, &other, &one, &other] {
        let token = client.try_lock(&claim("a")).await.unwrap().unwrap().token;
        assert!(token > last, "{token:?} after {last:?}");
        last = token;
        assert_eq!(client.unlock(&claim("a")).await.unwrap(), Unlocked::Released);
    }
}

#[tokio::test]
async fn without_a_floor_at_a_majority_there_is_no_grant() {
    let stores = Stores::new();
    stores.0[0].raise_tokens(&claim("a").name, StoreToken::new(1 << 52).unwrap()).await.unwrap();
    let (quorum, ways) = stores.client().await;
    for way in &ways {
        way.always(Verb::RaiseTokens, Effect::AWAY);
    }
    assert_eq!(quorum.try_lock(&claim("a")).await.unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(quorum.unlock(&claim("a")).await.unwrap(), Unlocked::Released);
    // One that takes it is enough, whichever that is.
    ways[2].everything(Effect::Pass);
    quorum.try_lock(&claim("b")).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_a_store_did_that_did_not_answer_is_released_too() {
    let stores = Stores::new();
    let (quorum, ways) = stores.client().await;
    ways[0].once(Verb::TryLock, Effect::LoseReply);
    quorum.try_lock(&claim("a")).await.unwrap().unwrap();
    assert_eq!(stores.holders().await.iter().flatten().count(), 3);
    ways[0].once(Verb::Unlock, Effect::AWAY);
    assert_eq!(quorum.unlock(&claim("a")).await.unwrap(), Unlocked::Released);
    // By a release that is repeated.
    soon(async {
        while stores.holders().await != [None, None, None] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_store_that_is_silent_costs_a_moment() {
    let stores = Stores::new();
    let (quorum, ways) = stores.client().await;
    ways[0].everything(Effect::DelayReply(Duration::from_secs(3600)));
    let before = tokio::time::Instant::now();
    quorum.try_lock(&claim("a")).await.unwrap().unwrap();
    assert!(before.elapsed() < super::TIMEOUT, "a majority answers, and no time-out is waited for");
}

#[tokio::test]
async fn a_waiter_finds_a_lock_free_that_one_store_does_not() {
    let stores = Stores::new();
    stores.0[0].try_lock(&claim("who was killed before it had a majority")).await.unwrap().unwrap();
    let (quorum, _) = stores.client().await;
    quorum.try_lock(&claim("a")).await.unwrap().unwrap();
    let waiting = {
        let (quorum, _) = stores.client().await;
        tokio::spawn(async move { quorum.lock(&claim("b")).await })
    };
    soon(async {
        while quorum.inspect(&claim("a").name).await.unwrap().waiters.len() != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    quorum.unlock(&claim("a")).await.unwrap();
    soon(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn it_says_what_it_cannot_do() {
    let can: Capabilities = Stores::new().client().await.0.capabilities();
    assert!(can.raises_tokens && can.numbers_grants && !can.fair && !can.keeps && !can.values);
    assert!(!can.modes.shared && !can.modes.permits);
}
