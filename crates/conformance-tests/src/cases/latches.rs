//! Latches, which open when all have arrived.

use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::testing::{Effect, Verb};

use crate::ctx::{Ctx, LONG, soon};

/// 246. It opens when all parties have arrived, each counted once, and for one generation.
pub(crate) async fn opens_when_all_have_arrived(ctx: Ctx) {
    let (ours, others) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let (latch, same) = (ours.latch("import", 3), others.latch("import", 3));
    let waiting = tokio::spawn({
        let latch = latch.clone().within(None);
        async move { latch.wait().await }
    });
    let first = latch.arrive("eu/1").await.unwrap();
    assert_eq!((first.first, first.arrived, first.of), (true, 1, 3));
    for latch in [&latch, &same] {
        let again = latch.arrive("eu/1").await.unwrap();
        assert_eq!((again.first, again.arrived), (false, 1));
    }
    assert!(!same.arrive("us-1").await.unwrap().is_open());
    // Both at the same time count once too.
    let (one, other) = tokio::join!(latch.arrive("us-2 "), same.arrive("us-2 "));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(one.first != other.first && (one.is_open() || other.is_open()), "{one:?} {other:?}");
    soon("the opening", waiting).await.unwrap().unwrap();
    same.wait().await.unwrap();
    assert_eq!(same.arrived().await.unwrap(), ["eu/1", "us-1", "us-2 "]);

    assert!(!latch.arrive("us-1").await.unwrap().first);
    let stranger = latch.arrive("us-3").await.unwrap_err();
    assert!(stranger.kind() == ErrorKind::Invalid && stranger.to_string().contains("us-1"), "{stranger}");
    for wrong in
        [ours.latch("import", 4).arrive("us-3").await.unwrap_err(), ours.latch("import", 4).wait().await.unwrap_err()]
    {
        assert!(wrong.kind() == ErrorKind::Invalid && wrong.to_string().contains("of 3 parties"), "{wrong}");
    }

    let next = same.generation(1);
    assert!(next.arrived().await.unwrap().is_empty());
    next.arrive("us-1").await.unwrap();
    let missed = next.within(Duration::from_millis(100)).wait().await.unwrap_err();
    assert!(missed.kind() == ErrorKind::Timeout && missed.to_string().contains("1 of 3"), "{missed}");
    assert!(missed.to_string().contains("us-1"), "{missed}");
    for (latch, party) in [(ours.latch("import", 0), "a"), (ours.latch("x", 2), ""), (ours.latch("x", 2), "a@b")] {
        assert_eq!(latch.arrive(party).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

/// 247. Replies to an arrival are lost, and its client ends: it counts all the same, or is repeated.
pub(crate) async fn arrivals_whose_replies_are_lost(ctx: Ctx) {
    let (faulty, ours) = ctx.faulty(LONG).await;
    let others = ctx.locks(LONG).await;
    let latch = ours.latch("import", 2);
    faulty.once(Verb::TryLock, Effect::LoseReply);
    assert_eq!(latch.arrive("a").await.unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(soon("the repetition", latch.arrive("a")).await.unwrap().arrived, 1);
    faulty.once(Verb::Keep, Effect::LoseReply);
    assert_eq!(latch.arrive("b").await.unwrap_err().kind(), ErrorKind::Unknown);
    let again = soon("the repetition", latch.arrive("b")).await.unwrap();
    assert!(again.is_open());
    assert!(ours.shutdown(Duration::from_secs(5)).await.unreleased.is_empty());
    soon("the opening", others.latch("import", 2).wait()).await.unwrap();
}
