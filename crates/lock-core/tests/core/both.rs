//! Two stores as one, and clients of each of them alone beside it.

use std::sync::Arc;
use std::time::Duration;

use lock_core::memory::MemoryLock;
use lock_core::testing::{Effect, Faulty, Verb};
use lock_core::{
    Both, Claim, Config, DistributedLock, ErrorKind, ListQuery, LockName, Locks, ManualClock, OwnerId, Registry,
};
use lock_core::{Fence, StoreToken, TokensOf, Unlocked};

const LEASE: Duration = Duration::from_secs(30);

struct Fleet {
    clock: ManualClock,
    old: MemoryLock,
    new: MemoryLock,
}

impl Fleet {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = || MemoryLock::with_clock(Arc::new(clock.clone()));
        Self { old: store(), new: store(), clock }
    }

    fn both(&self, tokens: TokensOf) -> Both {
        Both::new(Arc::new(self.old.client()), Arc::new(self.new.client()), tokens).unwrap()
    }

    fn clients(&self) -> [Locks; 4] {
        let locks = |store| Locks::builder(store).lease(LEASE).outage(Duration::ZERO).build().unwrap();
        [
            locks(Arc::new(self.old.client())),
            locks(Arc::new(self.both(TokensOf::From))),
            locks(Arc::new(self.both(TokensOf::To))),
            locks(Arc::new(self.new.client())),
        ]
    }

    /// Nobody holds anything in either store.
    async fn is_free(&self) -> bool {
        let name = name("x");
        self.old.holder(&name).await.unwrap().is_none() && self.new.holder(&name).await.unwrap().is_none()
    }
}

fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

fn claim(owner: &str) -> Claim {
    Claim::new(name("x"), OwnerId::from_store(owner), LEASE)
}

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_may_run_side_by_side_exclude_each_other() {
    let clients = Fleet::new().clients();
    for pair in clients.windows(2) {
        for (holder, other) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            let held = holder.mutex("x").lock().await.unwrap();
            assert!(other.mutex("x").try_lock().await.unwrap().is_none());
            held.unlock().await.unwrap();
            other.mutex("x").try_lock().await.unwrap().unwrap().unlock().await.unwrap();
        }
    }
}

/// Whichever store's tokens are the higher ones at the start, within a year.
#[tokio::test]
async fn tokens_rise_over_the_move() {
    const YEAR: u64 = 365 * 24 * 3600 * 1_000_000;
    for ahead in [None, Some(true), Some(false)] {
        let (fleet, fence) = (Fleet::new(), Fence::new());
        let clients = fleet.clients();
        if let Some(new) = ahead {
            let now = fleet.old.try_lock(&claim("first")).await.unwrap().unwrap().token.get();
            fleet.old.unlock(&claim("first")).await.unwrap();
            let store = if new { &fleet.new } else { &fleet.old };
            store.raise_tokens(&name("x"), StoreToken::new(now + YEAR).unwrap()).await.unwrap();
        }
        let mut last = None;
        for step in clients.windows(2) {
            for client in [&step[0], &step[1], &step[0], &step[1], &step[1], &step[0], &step[1]] {
                let guard = client.mutex("x").lock().await.unwrap();
                fence.check(guard.fencing_token()).unwrap();
                assert!(last < Some(guard.fencing_token()), "each has a token of its own");
                last = Some(guard.fencing_token());
                let seen = clients[1].inspect("x").await.unwrap().into_holder().unwrap();
                assert!(seen.owner == *guard.owner());
                guard.unlock().await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn lost_in_one_is_lost() {
    for store in [|fleet: &Fleet| fleet.old.clone(), |fleet: &Fleet| fleet.new.clone()] {
        let fleet = Fleet::new();
        let [_, locks, ..] = fleet.clients();
        let guard = locks.mutex("x").lock().await.unwrap();
        assert!(store(&fleet).script().lose("x"));
        settle().await;
        fleet.clock.advance(LEASE / 3);
        guard.lost().await;
        assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    }
}

#[tokio::test]
async fn what_the_new_store_does_not_grant_the_old_one_gets_back() {
    let fleet = Fleet::new();
    let new = Faulty::new(Arc::new(fleet.new.client()));
    let both = Both::new(Arc::new(fleet.old.client()), new.backend(), TokensOf::To).unwrap();
    fleet.new.try_lock(&claim("rival")).await.unwrap().unwrap();
    assert!(both.try_lock(&claim("a")).await.unwrap().is_none());
    assert!(fleet.old.holder(&name("x")).await.unwrap().is_none());
    fleet.new.unlock(&claim("rival")).await.unwrap();
    for verb in [Verb::TryLock, Verb::RaiseTokens] {
        new.once(verb, Effect::AWAY);
        assert_eq!(both.try_lock(&claim("b")).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(fleet.is_free().await);
    }
    new.once(Verb::Lock, Effect::Fail(ErrorKind::Refused));
    assert_eq!(both.lock(&claim("c")).await.unwrap_err().kind(), ErrorKind::Refused);
    assert!(fleet.is_free().await);
    // What is unknown is released by who asked.
    new.once(Verb::TryLock, Effect::LoseReply);
    assert_eq!(both.try_lock(&claim("d")).await.unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(both.unlock(&claim("d")).await.unwrap(), Unlocked::Released);
    assert!(fleet.is_free().await);
}

#[tokio::test]
async fn the_old_store_is_held_while_the_new_one_is_waited_for() {
    let fleet = Fleet::new();
    let both = fleet.both(TokensOf::To);
    let mut rival = claim("rival");
    rival.lease = LEASE * 100;
    fleet.new.try_lock(&rival).await.unwrap().unwrap();
    let waiting = tokio::spawn(async move { both.lock(&claim("a")).await });
    for _ in 0..100 {
        settle().await;
        fleet.clock.advance(LEASE / 10);
    }
    settle().await;
    let owner = |holder: lock_core::Holder| holder.owner.as_str().to_owned();
    assert_eq!(fleet.old.holder(&name("x")).await.unwrap().map(owner).as_deref(), Some("a"));
    let seen = fleet.both(TokensOf::To).inspect(&name("x")).await.unwrap();
    assert_eq!((seen.holder().unwrap().owner.as_str(), seen.waiters[0].owner.as_str()), ("rival", "a"));
    assert_eq!(seen.waiters.len(), 1);
    fleet.new.unlock(&rival).await.unwrap();
    let grant = waiting.await.unwrap().unwrap();
    assert!(grant.valid_until > lock_core::Clock::now(&fleet.clock) + LEASE / 2);
}

#[tokio::test]
async fn who_loses_the_old_store_meanwhile_gives_up() {
    let fleet = Fleet::new();
    let both = fleet.both(TokensOf::To);
    fleet.new.try_lock(&claim("rival")).await.unwrap().unwrap();
    let waiting = tokio::spawn({
        let both = both.clone();
        async move { both.lock(&claim("a")).await }
    });
    settle().await;
    assert!(fleet.old.script().lose("x"));
    fleet.clock.advance(LEASE / 3);
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(both.unlock(&claim("a")).await.unwrap(), Unlocked::NotHeld);
    fleet.new.unlock(&claim("rival")).await.unwrap();
    assert!(fleet.is_free().await);
}

#[tokio::test]
async fn a_cancelled_wait_leaves_nothing_in_either_store() {
    let fleet = Fleet::new();
    let [_, _, locks, rival] = fleet.clients();
    let held = rival.mutex("x").lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = locks.mutex("x");
        async move { mutex.lock().await.map(drop) }
    });
    settle().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    held.unlock().await.unwrap();
    assert!(locks.shutdown(LEASE).await.unreleased.is_empty());
    assert!(fleet.is_free().await);
}

#[tokio::test]
async fn the_locks_of_both_are_listed_page_by_page() {
    let fleet = Fleet::new();
    let [old, both, _, new] = fleet.clients();
    let mut held = Vec::new();
    for (number, client) in [&old, &new, &both, &old, &both, &new].into_iter().enumerate() {
        held.push(client.mutex(format!("{number}").as_str()).lock().await.unwrap());
    }
    for limit in 1..8 {
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let page = both.list(&ListQuery::default().limit(limit).after(after)).await.unwrap();
            assert!(page.locks.len() <= limit);
            names.extend(page.locks.into_iter().map(|lock| lock.name.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(names, ["0", "1", "2", "3", "4", "5"], "{limit} at a time");
    }
}

#[tokio::test]
async fn wrong_urls_are_told() {
    let connect = async |url: &str| Registry::new().connect(Config::from_url(url).unwrap()).await;
    for (wrong, told) in [
        ("both:", "needs two stores"),
        ("both:x?from=memory:a&to=memory:b", "names no store itself"),
        ("both:?from=memory:a", "one needs the other"),
        ("both:?from=memory:a&to=memory:a", "same store"),
        ("both:?from=memory:a&to=both:", "cannot be both: itself"),
        ("both:?from=memory:a&to=nonsense", "to: the URL has no scheme"),
        ("both:?from=memory:a&to=memory:b%3Flease=3s", "setting of all stores"),
        ("both:?from=memory:a&to=memory:b&tokens=new", "write from or to"),
        ("both:?from=memory:a&to=memory:b&step=1", "no setting \"step\""),
        ("both:?from=memory:a&to=paper:b", "no backend has the scheme \"paper\""),
    ] {
        let error = connect(wrong).await.unwrap_err().to_string();
        assert!(error.contains(told), "{wrong}: {error}");
    }
    let url = "both:?from=memory:ours&to=memory:ours%3Fprefix=other&tokens=to&lease=5s";
    let locks = connect(url).await.unwrap();
    locks.mutex("x").lock().await.unwrap().unlock().await.unwrap();
    assert!(Registry::new().schema(Config::from_url(url).unwrap()).is_err());
}
