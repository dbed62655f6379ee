//! Names, leases and stored values of any kind; and nothing that would let others in.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{ErrorKind, ListQuery, LockName};
use tracing::field::{Field, Visit};
use tracing::span;

use crate::ctx::{Ctx, LONG, claim, holds, name, soon, take};
use crate::harness::Fault;

/// 89. Any text is a lock of its own or is refused: all are held at once, and each is found as it was written.
pub(crate) async fn names(ctx: Ctx) {
    let long = "x".repeat(LockName::MAX_LEN);
    let nearly = format!("{}y", "x".repeat(LockName::MAX_LEN - 1));
    let good = [
        "a",
        "A",
        " a",
        "a ",
        " ",
        "..",
        ".",
        "/",
        "a/b",
        "a//b",
        "/a",
        "a/",
        "../a",
        "{a}",
        "{}",
        "a:b",
        "a%b",
        "a_b",
        "a*",
        "%61",
        "1",
        "01",
        "1.0",
        "null",
        "J\u{f6}b",
        "Jo\u{308}b",
        "\u{df}",
        "ss",
        "\u{1f600}",
        "\u{1f600}\u{1f3fd}",
        "\u{200b}",
        &long,
        &nearly,
    ];
    let (locks, other) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let mut held = Vec::new();
    for name in good {
        let guard = locks.mutex(name).try_lock().await.unwrap();
        held.push(guard.unwrap_or_else(|| panic!("{name:?} is the same lock as another")));
    }
    for guard in &held {
        assert_eq!(ctx.store().raw_holder(guard.name()).await.as_deref(), Some(guard.owner().as_str()));
        assert!(other.mutex(guard.name().as_str()).try_lock().await.unwrap().is_none());
    }
    let page = other.list(&ListQuery::default()).await.unwrap();
    let listed: Vec<_> = page.locks.iter().map(|lock| lock.name.as_str()).collect();
    let mut wanted = good.to_vec();
    wanted.sort_unstable();
    assert_eq!(listed, wanted);
    for guard in held {
        guard.unlock().await.unwrap();
    }
    for bad in ["", "a\0b", "\n", "\u{7f}", "\u{9f}", &format!("{long}x"), &"x".repeat(1 << 20)] {
        let mutex = locks.mutex(bad);
        assert_eq!(mutex.try_lock().await.unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        assert_eq!(mutex.lock().await.unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        assert_eq!(locks.inspect(bad).await.unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
    }
}

/// 90. Leases and waits of nothing and of for ever are refused or bounded; nothing overflows.
pub(crate) async fn lease_zero_and_huge(ctx: Ctx) {
    let locks = ctx.locks(LONG).await;
    let mutex = locks.mutex("x");
    for mutex in [
        mutex.clone().lease(Duration::ZERO),
        mutex.clone().lease(Duration::MAX),
        mutex.clone().hold_for(Duration::ZERO),
        mutex.clone().hold_for(Duration::MAX),
        mutex.clone().max_hold(Duration::MAX),
    ] {
        assert_eq!(mutex.try_lock().await.unwrap_err().kind(), ErrorKind::Invalid, "{mutex:?}");
    }
    // A wait of nothing is over at once, or finds the lock free.
    let first = mutex.clone().wait(Duration::ZERO).lock().await;
    assert!(first.as_ref().map_or_else(|error| error.kind() == ErrorKind::Timeout, |_| true), "{first:?}");
    drop(first);
    // The longest that is allowed works, a year, unless the store has a limit and says so.
    match soon("the lock", mutex.clone().lease(Duration::from_secs(365 * 86_400)).lock()).await {
        Ok(guard) => {
            assert!(guard.remaining() > LONG);
            let left = locks.inspect("x").await.unwrap().into_holder().unwrap().remaining;
            assert!(left > LONG && left <= Duration::from_secs(366 * 86_400));
            guard.unlock().await.unwrap();
        }
        Err(error) => assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("lease"), "{error}"),
    }
    // A backend asked past the core neither panics nor grants less than it says.
    let backend = ctx.backend().await;
    for lease in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let odd = claim("odd", lease);
        if let Ok(Some(grant)) = backend.try_lock(&odd).await {
            let left = backend
                .inspect(&odd.name)
                .await
                .unwrap()
                .into_holder()
                .map_or(Duration::ZERO, |holder| holder.remaining);
            let end = backend.clock().now() + left + Duration::from_millis(1);
            assert!(end >= grant.valid_until || left.is_zero(), "{lease:?}");
        }
        backend.evict(&odd.name).await.unwrap();
    }
}

/// 91. Something that is no lock of ours stands at the lock's place: an error, neither a panic nor a grant, and other
///     locks work.
pub(crate) async fn foreign_value(ctx: Ctx) {
    let (backend, other) = (ctx.backend().await, ctx.backend().await);
    let held = claim("held", LONG);
    backend.try_lock(&held).await.unwrap().unwrap();
    ctx.inject(Fault::PutForeign(name("x"))).await;
    for client in [&backend, &other] {
        let foreign = claim("x", LONG);
        let answer = soon("an answer", client.try_lock(&foreign)).await;
        let error = answer.expect_err("a grant or a denial");
        assert!(!error.to_string().is_empty());
        // Whatever these say, they say it without a panic.
        drop(soon("an answer", client.unlock(&foreign)).await);
        drop(soon("an answer", client.renew(std::slice::from_ref(&foreign))).await);
        drop(soon("an answer", client.inspect(&foreign.name)).await);
    }
    assert!(holds(&*backend, &held).await);
    assert_eq!(other.try_lock(&claim("held", LONG)).await.unwrap(), None);
    assert!(other.try_lock(&claim("free", LONG)).await.unwrap().is_some());
}

/// 94. Every acquisition has an owner with 128 random bits, which stand in the store and in no log, error or `Debug`.
pub(crate) async fn owner_unguessable(ctx: Ctx) {
    // The log of one thread: on a runtime of its own, with all its tasks on that thread.
    let alone = std::thread::spawn(move || {
        let logged = Logged::default();
        let text = Arc::clone(&logged.0);
        // With a single subscriber, `tracing` lets whichever thread comes first decide for all whether a line is of
        // interest; with two it asks them.
        let _second = tracing::Dispatch::new(Logged::default());
        let _guard = tracing::subscriber::set_default(logged);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (secrets, shown) = runtime.block_on(seen_and_stored(&ctx));
        let logged = text.lock().unwrap().clone();
        assert!(logged.contains("suite@"), "nothing was logged: {logged}");
        for secret in &secrets {
            let random = secret.rsplit('#').next().unwrap();
            let digits: Vec<_> = random.chars().filter(char::is_ascii_hexdigit).collect();
            assert!(digits.len() >= 32, "{} digits", digits.len());
            assert!(!logged.contains(random), "in the log");
            for shown in &shown {
                assert!(!shown.contains(random), "in {shown}");
            }
        }
        assert_eq!(secrets.iter().collect::<HashSet<_>>().len(), secrets.len());
    });
    tokio::task::spawn_blocking(|| alone.join().unwrap()).await.unwrap();
}

/// Some owners as the store has them, and everything that their library showed meanwhile.
async fn seen_and_stored(ctx: &Ctx) -> (Vec<String>, Vec<String>) {
    let locks = ctx.locks(LONG).await;
    let (mut secrets, mut shown) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let guard = take(&locks, "x").await;
        secrets.push(ctx.store().raw_holder(guard.name()).await.unwrap());
        let mutex = locks.mutex("x").wait(Duration::from_millis(20));
        let error = mutex.lock().await.unwrap_err();
        let status = locks.inspect("x").await.unwrap();
        shown.extend([format!("{guard:?}"), format!("{locks:?}"), format!("{mutex:?}"), format!("{error:?}{error}")]);
        shown.extend([format!("{status:?}"), format!("{:?}", guard.lease()), guard.owner().to_string()]);
        // A loss is logged too.
        locks.evict("x").await.unwrap();
        drop(guard);
    }
    (secrets, shown)
}

/// Everything that is logged, as text.
#[derive(Default)]
struct Logged(Arc<Mutex<String>>);

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl tracing::Subscriber for Logged {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        span.record(&mut Text(&mut self.0.lock().unwrap()));
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut Text(&mut self.0.lock().unwrap()));
    }

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Text(&mut self.0.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// 95. Names that are code in some store's language are names: inert, and found by a prefix only if they have it.
pub(crate) async fn names_as_code(ctx: Ctx) {
    let code = [
        "'; DROP TABLE oarlock_lock; --",
        "\" OR 1=1 --",
        "%",
        "%%",
        "_",
        "\\",
        "a'b",
        "*",
        "?",
        "[a-z]",
        "$(id)",
        "{x}:y",
        "redis.call('FLUSHALL')",
        "../../etc/passwd",
        "a\u{202e}b",
    ];
    let locks = ctx.locks(LONG).await;
    let witness = take(&locks, "witness").await;
    let mut held = Vec::new();
    for name in code {
        held.push(take(&locks, name).await);
    }
    for name in code {
        let query = ListQuery::new(name);
        let page = locks.list(&query).await.unwrap();
        let found: Vec<_> = page.locks.iter().map(|lock| lock.name.as_str()).collect();
        let mut wanted: Vec<_> = code.into_iter().filter(|other| other.starts_with(name)).collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{name:?}");
        assert!(locks.evict(name).await.unwrap().is_some());
    }
    assert_eq!(locks.list(&ListQuery::default()).await.unwrap().locks.len(), 1);
    witness.unlock().await.unwrap();
}
