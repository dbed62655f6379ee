//! Every verb of a backend is dropped wherever it waits. Then the owner's `unlock`, as the core calls it, leaves
//! nothing in the store, and nothing runs on in the process.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Claim, DistributedLock, ListQuery};

use crate::ctx::{Ctx, LONG, claim, holds, name, soon, until, waiters};
use crate::harness::Fault;
use crate::polls::{POLLS, no_task_but, polls, tasks};
use lock_core::testing::{Effect, Faulty};

type Client = Arc<dyn DistributedLock>;

/// What is asked when it is dropped.
#[derive(Clone, Copy, Debug)]
enum Verb {
    TryLock,
    TryLockHeld,
    Lock,
    LockHeld,
    Unlock,
    Leave,
    UnlockNothing,
    Renew,
    Inspect,
    List,
    Evict,
    Doctor,
    Close,
}

const VERBS: [Verb; 13] = [
    Verb::TryLock,
    Verb::TryLockHeld,
    Verb::Lock,
    Verb::LockHeld,
    Verb::Unlock,
    Verb::Leave,
    Verb::UnlockNothing,
    Verb::Renew,
    Verb::Inspect,
    Verb::List,
    Verb::Evict,
    Verb::Doctor,
    Verb::Close,
];

/// 57, 58, 59. Each verb is dropped after k polls, for all k until it ends.
pub(crate) async fn drop_every_verb(ctx: Ctx) {
    every_verb(&ctx, Effect::Pass).await;
}

/// The same with answers that the client gets late: what is dropped was done.
pub(crate) async fn drop_every_verb_reply_late(ctx: Ctx) {
    every_verb(&ctx, Effect::DelayReply(Duration::from_millis(1))).await;
}

/// The same with answers that are held on their way, again and again.
pub(crate) async fn drop_every_verb_answer_held(ctx: Ctx) {
    let mut holding = tokio::spawn({
        let ctx = ctx.clone();
        async move {
            loop {
                ctx.inject(Fault::HoldAnswers).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
                ctx.inject(Fault::ReleaseAnswers).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    tokio::select! {
        () = every_verb(&ctx, Effect::Pass) => {}
        // It ends only if the harness cannot hold answers.
        ended = &mut holding => std::panic::resume_unwind(ended.unwrap_err().into_panic()),
    }
    holding.abort();
    // It has the store until then.
    assert!(holding.await.unwrap_err().is_cancelled());
}

async fn every_verb(ctx: &Ctx, effect: Effect) {
    let before = tasks();
    let (faulty, other) = (Faulty::new(ctx.backend().await), ctx.backend().await);
    let client = faulty.backend();
    faulty.everything(effect);
    // What a client needs for good, it has once all was done.
    for verb in VERBS {
        drop_after(usize::MAX, verb, ctx, &client, &other).await;
    }
    let standing = settled().await;
    for verb in VERBS {
        for most in 0.. {
            assert!(most < POLLS, "{verb:?} never ends");
            if drop_after(most, verb, ctx, &client, &other).await {
                break;
            }
        }
        no_task_but(standing).await;
    }
    for client in [client, other] {
        client.close().await.unwrap();
    }
    drop(faulty);
    no_task_but(before).await;
}

/// How many tasks there are when those that are about to end have ended: as many as a while ago.
async fn settled() -> usize {
    let mut last = usize::MAX;
    while tasks() < last {
        last = tasks();
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    last
}

/// Whether it came to its end; in any case, nothing is left of it.
async fn drop_after(most: usize, verb: Verb, ctx: &Ctx, client: &Client, other: &Client) -> bool {
    let (mut ours, theirs) = (claim("x", LONG), claim("x", LONG));
    // In line where there is one.
    ours.fair = client.capabilities().fair;
    let held_by = async |client: &Client, claim: &Claim| {
        client.try_lock(claim).await.unwrap().unwrap_or_else(|| panic!("{verb:?} after {most} polls left the lock"));
    };
    let ended = match verb {
        Verb::TryLock => polls(most, client.try_lock(&ours)).await.map(|granted| granted.unwrap().unwrap()).is_some(),
        Verb::Lock => polls(most, client.lock(&ours)).await.map(Result::unwrap).is_some(),
        Verb::TryLockHeld => {
            held_by(other, &theirs).await;
            polls(most, client.try_lock(&ours)).await.map(|denied| assert_eq!(denied.unwrap(), None)).is_some()
        }
        Verb::LockHeld => {
            held_by(other, &theirs).await;
            let release = async {
                if most == usize::MAX {
                    // A client that waits for the first time may start what it needs for good. Not all stores show it.
                    let in_line = async { while waiters(&**other, "x").await == 0 {} };
                    let _ = tokio::time::timeout(Duration::from_secs(1), in_line).await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                other.unlock(&theirs).await.unwrap();
            };
            let lock = polls(most, client.lock(&ours));
            soon("the grant", async { tokio::join!(lock, release) }).await.0.map(Result::unwrap).is_some()
        }
        Verb::Unlock => {
            held_by(client, &ours).await;
            polls(most, client.unlock(&ours)).await.map(Result::unwrap).is_some()
        }
        Verb::Leave => {
            held_by(other, &theirs).await;
            let in_line = async {
                if client.capabilities().fair {
                    until("one in line", async || waiters(&**other, "x").await == 1).await;
                }
            };
            tokio::select! {
                biased;
                granted = client.lock(&ours) => panic!("{granted:?} of a held lock"),
                () = in_line => {}
            }
            polls(most, client.unlock(&ours)).await.map(Result::unwrap).is_some()
        }
        Verb::UnlockNothing => polls(most, client.unlock(&ours)).await.map(Result::unwrap).is_some(),
        Verb::Renew => {
            let second = claim("y", LONG);
            held_by(client, &ours).await;
            client.try_lock(&second).await.unwrap().unwrap();
            let both = [ours.clone(), second.clone()];
            let ended = polls(most, client.renew(&both)).await;
            for held in &both {
                assert!(holds(&**client, held).await, "a renewal dropped after {most} polls ended the hold");
            }
            client.unlock(&second).await.unwrap();
            ended.is_some()
        }
        Verb::Inspect | Verb::List | Verb::Doctor => {
            held_by(client, &ours).await;
            let looking = async {
                match verb {
                    Verb::Inspect => drop(client.inspect(&ours.name).await.unwrap()),
                    Verb::List => drop(client.list(&ListQuery::default()).await.unwrap()),
                    _ => drop(client.doctor().await.unwrap()),
                }
            };
            let ended = polls(most, looking).await;
            assert!(holds(&**client, &ours).await, "{verb:?} dropped after {most} polls ended the hold");
            ended.is_some()
        }
        Verb::Evict => {
            held_by(client, &ours).await;
            polls(most, other.evict(&ours.name)).await.map(|evicted| evicted.unwrap().unwrap()).is_some()
        }
        Verb::Close => {
            held_by(client, &ours).await;
            let closing = ctx.backend().await;
            assert_eq!(closing.try_lock(&theirs).await.unwrap(), None);
            let ended = polls(most, closing.close()).await.map(Result::unwrap).is_some();
            drop(closing);
            assert!(holds(&**client, &ours).await, "another client's close ended the hold");
            ended
        }
    };
    let unlocked = client.unlock(&ours).await;
    // Where a hold ends together with its session, its owner may not learn from the first release what ended it.
    match verb {
        Verb::Evict if unlocked.is_err() => client.unlock(&ours).await.unwrap(),
        _ => unlocked.unwrap(),
    };
    if matches!(verb, Verb::TryLockHeld | Verb::Leave) {
        assert!(holds(&**other, &theirs).await, "{verb:?} dropped after {most} polls ended another's hold");
        other.unlock(&theirs).await.unwrap();
    }
    assert_eq!(ctx.store().raw_holder(&name("x")).await, None, "{verb:?} after {most} polls");
    assert_eq!(other.list(&ListQuery::default()).await.unwrap().locks, [], "{verb:?} after {most} polls");
    held_by(other, &theirs).await;
    assert_eq!(waiters(&**client, "x").await, 0, "{verb:?} after {most} polls");
    other.unlock(&theirs).await.unwrap();
    ended
}
