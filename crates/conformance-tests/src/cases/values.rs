//! What a holder shows, and those who look.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{
    Claim, DistributedLock, ErrorKind, Leadership, ListQuery, LockValue, Observed, Observer, Proclaimed, Unlocked,
};

use crate::ctx::{BOUND, Ctx, LONG, claim, holds, name, soon, take, until, waiters};
use lock_core::testing::{Effect, Verb};

fn value(text: &str) -> LockValue {
    LockValue::new(text).unwrap()
}

/// A claim that shows this.
fn showing(lock: &str, lease: Duration, text: &str) -> Claim {
    let mut claim = claim(lock, lease);
    claim.value = Some(value(text));
    claim
}

/// What the holder shows.
async fn shown(backend: &dyn DistributedLock, lock: &str) -> Option<String> {
    let holder = backend.holder(&name(lock)).await.unwrap()?;
    let inspected = backend.inspect(&name(lock)).await.unwrap().into_holder().unwrap();
    assert_eq!((&inspected.owner, &inspected.value), (&holder.owner, &holder.value));
    let listed = backend.list(&ListQuery::new(lock)).await.unwrap().locks;
    let listed = listed.into_iter().find(|status| status.name.as_str() == lock).unwrap();
    assert_eq!(listed.into_holder().unwrap().value, holder.value);
    holder.value.map(|value| value.as_str().to_owned())
}

/// 190. It is there from the grant on, its owner changes it, it goes with the hold; that of a waiter is not seen.
pub(crate) async fn value_stands_with_its_hold(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let first = showing("x", LONG, "first");
    let grant = ours.try_lock(&first).await.unwrap().unwrap();
    assert_eq!(ours.try_lock(&first).await.unwrap().unwrap().token, grant.token);
    assert_eq!(shown(&*others, "x").await.as_deref(), Some("first"));
    let second = showing("x", LONG, "second");
    let waiting = tokio::spawn({
        let (others, second) = (Arc::clone(&others), second.clone());
        async move { others.lock(&second).await.unwrap() }
    });
    until("it waits", async || !others.capabilities().fair || waiters(&*others, "x").await == 1).await;
    assert_eq!(ours.proclaim(&first, &value("changed")).await.unwrap(), Proclaimed::Shown);
    assert_eq!(shown(&*others, "x").await.as_deref(), Some("changed"));
    assert!(holds(&*ours, &first).await);
    assert_eq!(shown(&*others, "x").await.as_deref(), Some("changed"));
    assert_eq!(ours.unlock(&first).await.unwrap(), Unlocked::Released);
    soon("the grant", waiting).await.unwrap();
    assert_eq!(shown(&*ours, "x").await.as_deref(), Some("second"));
    assert_eq!(others.unlock(&second).await.unwrap(), Unlocked::Released);
    ours.try_lock(&claim("x", LONG)).await.unwrap().unwrap();
    assert_eq!(shown(&*others, "x").await, None);
}

/// 191. Neither who has lost the lock nor who waits for it changes what is shown.
pub(crate) async fn only_the_holder_proclaims(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let first = showing("x", LONG, "first");
    assert_eq!(ours.proclaim(&first, &value("early")).await.unwrap(), Proclaimed::NotHeld);
    ours.try_lock(&first).await.unwrap().unwrap();
    ours.evict(&name("x")).await.unwrap().unwrap();
    assert_eq!(ours.proclaim(&first, &value("late")).await.unwrap(), Proclaimed::NotHeld);
    let second = showing("x", LONG, "second");
    soon("the grant", others.lock(&second)).await.unwrap();
    assert_eq!(ours.proclaim(&first, &value("late")).await.unwrap(), Proclaimed::NotHeld);
    assert_eq!(shown(&*ours, "x").await.as_deref(), Some("second"));
    // The lease is over, and nobody else came.
    let short = showing("y", ctx.lease(), "short");
    ours.try_lock(&short).await.unwrap().unwrap();
    until("its end", async || others.holder(&name("y")).await.unwrap().is_none()).await;
    assert_eq!(ours.proclaim(&short, &value("late")).await.unwrap(), Proclaimed::NotHeld);
    assert_eq!(others.holder(&name("y")).await.unwrap(), None);
}

/// 192. Any text is shown as it is: long, in any script, with quotes and line breaks.
pub(crate) async fn values_of_every_kind(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let texts =
        ["\"a'b\\c\r\n\t;--", "Größe 漢字 🦀", &"x".repeat(4096), &"\u{7f}é".repeat(1000), " ", "{\"port\": 1}"];
    let claim = showing("x", LONG, "begin");
    ours.try_lock(&claim).await.unwrap().unwrap();
    for (at, text) in texts.into_iter().enumerate() {
        assert_eq!(ours.proclaim(&claim, &value(text)).await.unwrap(), Proclaimed::Shown);
        assert_eq!(shown(&*others, "x").await.as_deref(), Some(text));
        let lock = format!("of its own {at}");
        others.try_lock(&showing(&lock, LONG, text)).await.unwrap().unwrap();
        assert_eq!(shown(&*ours, &lock).await.as_deref(), Some(text));
    }
}

/// What is seen next: who leads with which value, or that nobody does.
async fn seen(observer: &mut Observer) -> Option<(lock_core::StoreToken, String)> {
    match soon("a change", observer.next()).await.unwrap() {
        Observed::Held(holder) => Some((holder.token, holder.value.unwrap().as_str().to_owned())),
        Observed::Free => None,
        other => panic!("{other:?}"),
    }
}

/// 193. Three clients lead by turns until they resign or are evicted: an observer sees each, in order, with its value.
pub(crate) async fn leaders_are_seen_in_order(ctx: Ctx) {
    let clients = [ctx.locks(LONG).await, ctx.locks(LONG).await, ctx.locks(LONG).await];
    let watching = ctx.locks(LONG).await;
    // Where the first grant makes the store, nothing can be seen before.
    take(&watching, "other").await.unlock().await.unwrap();
    let mut observer = watching.election("x").observe().unwrap();
    assert_eq!(seen(&mut observer).await, None);
    let mut last = None;
    for round in 0..6_usize {
        let (locks, text) = (&clients[round % 3], format!("leader {round}"));
        let leadership: Leadership = locks.election("x").wait(BOUND).campaign(text.as_str()).await.unwrap();
        let mut now = seen(&mut observer).await;
        // That nobody led in between is seen or not.
        if now.is_none() {
            now = seen(&mut observer).await;
        }
        let now = now.unwrap();
        assert_eq!((now.0, &now.1), (leadership.fencing_token().store(), &text));
        assert!(last.is_none_or(|last| last < now.0));
        last = Some(now.0);
        leadership.proclaim("moved").await.unwrap();
        assert_eq!(seen(&mut observer).await, Some((now.0, "moved".to_owned())));
        if round % 2 == 0 {
            leadership.resign().await.unwrap();
        } else {
            watching.evict("x").await.unwrap().unwrap();
            let error = leadership.proclaim("late").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost);
            assert!(!leadership.is_held());
        }
    }
}

/// 194. A store that is away is seen as that, and after it what is there by then.
pub(crate) async fn observer_in_an_outage(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(LONG).await;
    let others = ctx.locks(LONG).await;
    let first = others.election("x").campaign("first").await.unwrap();
    let mut observer = locks.election("x").observe().unwrap();
    assert_eq!(seen(&mut observer).await.unwrap().1, "first");
    faulty.always(Verb::Inspect, Effect::AWAY);
    assert!(matches!(soon("blindness", observer.next()).await.unwrap(), Observed::Blind(_)));
    first.resign().await.unwrap();
    let _second = others.election("x").campaign("second").await.unwrap();
    faulty.always(Verb::Inspect, Effect::Pass);
    assert_eq!(seen(&mut observer).await.unwrap().1, "second");
}
