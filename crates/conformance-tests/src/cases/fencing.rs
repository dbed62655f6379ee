//! Tokens: the store's, known at the grant, and of use.

use std::sync::Arc;
use std::time::Duration;

use lock_core::memory::MemoryLock;
use lock_core::{ErrorKind, Fence, FencingToken, Locks, StoreToken};

use crate::ctx::{BOUND, Ctx, LONG, claim, name, take, token_in_store};
use crate::harness::Fault;

/// 34. The token is known at the grant and stays the same, over renewals and after the loss.
pub(crate) async fn token_known_at_grant(ctx: Ctx) {
    let locks = ctx.locks(ctx.lease()).await;
    let guard = take(&locks, "x").await;
    let token = guard.fencing_token();
    tokio::time::sleep(ctx.lease()).await;
    assert_eq!(guard.fencing_token(), token);
    let view = guard.lease();
    guard.unlock().await.unwrap();
    assert_eq!(view.fencing_token(), token);
}

/// 35. The token comes from the store: the store has the same, and a client that begins later gets a higher one.
pub(crate) async fn token_from_store(ctx: Ctx) {
    let mut last = None;
    for _ in 0..5 {
        // A client of its own each time: a counter in the client would begin again.
        let locks = ctx.locks(LONG).await;
        let guard = take(&locks, "x").await;
        let token = guard.fencing_token();
        assert_eq!(token_in_store(&locks, "x").await, Some(token.store()));
        assert!(Some(token) > last);
        last = Some(token);
        guard.unlock().await.unwrap();
    }
}

/// 37. The order of tokens is kept past 2^31, and past 2^53, where a number in floating point would lose it.
pub(crate) async fn token_range(ctx: Ctx) {
    let backend = ctx.backend().await;
    let first = claim("x", LONG);
    let mut last = backend.try_lock(&first).await.unwrap().unwrap().token;
    backend.unlock(&first).await.unwrap();
    for above in [1 << 31, 1 << 53, StoreToken::MAX - 10] {
        ctx.inject(Fault::RaiseToken(name("x"), above)).await;
        for _ in 0..3 {
            let next = claim("x", LONG);
            let token = backend.try_lock(&next).await.unwrap().unwrap().token;
            assert!(token.get() > above && token > last, "{token:?} after {last:?}");
            assert!(i64::from(FencingToken::new(token)) > i64::from(FencingToken::new(last)));
            assert_eq!(backend.inspect(&name("x")).await.unwrap().into_holder().unwrap().token, token);
            last = token;
            backend.unlock(&next).await.unwrap();
        }
    }
}

/// 118. A resource that has seen another store's tokens accepts this one's, and the other way round; and this one's
///      again when the application has come back.
pub(crate) async fn tokens_rise_over_stores(ctx: Ctx) {
    let fence = Fence::new();
    for here in [false, true, false, true, false] {
        let locks = if here { ctx.locks(LONG).await } else { Locks::new(Arc::new(MemoryLock::new())) };
        let guard = take(&locks, "x").await;
        fence.check(guard.fencing_token()).unwrap();
        guard.unlock().await.unwrap();
        assert!(locks.shutdown(BOUND).await.unreleased.is_empty());
        // A server's clock may tell milliseconds.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// 122. Tokens are raised above a number, of a free lock and of a held one, and on from there, beside clients that were
///      there before; what is above it already stays.
pub(crate) async fn tokens_raised(ctx: Ctx) {
    let (locks, before) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    take(&before, "y").await.unlock().await.unwrap();
    let held = take(&before, "x").await;
    let above = held.fencing_token().get() + (1 << 40);
    for name in ["x", "y", "unused"] {
        locks.raise_tokens(name, above).await.unwrap();
        locks.raise_tokens(name, above - 1000).await.unwrap();
    }
    assert!(held.is_held());
    held.unlock().await.unwrap();
    for name in ["x", "y", "unused"] {
        let mut last = above;
        for locks in [&before, &locks, &ctx.locks(LONG).await, &before] {
            let guard = take(locks, name).await;
            assert!(guard.fencing_token().get() > last, "{name}: {} after {last}", guard.fencing_token());
            last = guard.fencing_token().get();
            guard.unlock().await.unwrap();
        }
        // Not raised twice.
        assert!(last < above + (1 << 39), "{last} after {above}");
    }
    assert_eq!(locks.raise_tokens("x", u64::MAX).await.unwrap_err().kind(), ErrorKind::Invalid);
}

/// 123. A resource has seen tokens that no clock reaches: with them as the floor, each acquisition is above them.
pub(crate) async fn tokens_above_a_floor(ctx: Ctx) {
    let locks = ctx.locks(LONG).await;
    let guard = take(&locks, "x").await;
    let floor = guard.fencing_token().get() + (1 << 40);
    guard.unlock().await.unwrap();
    let mut last = floor;
    for name in ["x", "x", "unused", "x"] {
        let guard = locks.mutex(name).token_floor(floor).wait(BOUND).lock().await.unwrap();
        assert!(guard.fencing_token().get() > floor, "{} is not above {floor}", guard.fencing_token());
        if name == "x" {
            assert!(guard.fencing_token().get() > last);
            last = guard.fencing_token().get();
        }
        guard.unlock().await.unwrap();
    }
}

/// 38. A resource that checks tokens refuses the older holder's, and names both.
pub(crate) async fn resource_rejects_stale(ctx: Ctx) {
    let fence = Fence::new();
    let (locks, other) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let old = take(&locks, "x").await;
    fence.check(old.fencing_token().get()).unwrap();
    other.evict("x").await.unwrap().unwrap();
    let new = take(&other, "x").await;
    fence.check(new.fencing_token().get()).unwrap();
    let stale = fence.check(old.fencing_token().get()).unwrap_err();
    assert_eq!(stale.presented, old.fencing_token().get());
    assert_eq!(stale.newest, new.fencing_token().get());
    let message = stale.to_string();
    assert!(message.contains(&stale.presented.to_string()) && message.contains(&stale.newest.to_string()));
}
