use std::time::Duration;

use lock_core::{LockName, SystemClock};

use super::*;
use crate::waiters::Ahead;

const LEASE: Duration = Duration::from_secs(60);

fn entry(key: &str, created: i64) -> Entry {
    Entry { key: key.to_owned(), created }
}

struct Client {
    ledger: Arc<Ledger>,
    session: Arc<Session>,
}

impl Client {
    fn new() -> Self {
        let session = Session::new(26, "beacon".to_owned(), SystemClock.now(), LEASE);
        Self {
            ledger: Arc::new(Ledger::new(Arc::new(SystemClock), Keys::new("").unwrap())),
            session: Arc::new(session),
        }
    }

    fn enter(&self, owner: &str) -> Place {
        let id = format!("x/{owner}");
        let claim = Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), LEASE);
        self.ledger.enter(&id, "x/", &claim, &self.session)
    }

    fn holds(&self, place: &mut Place, own: &Entry) -> bool {
        place.holds(&self.ledger.ask("x/"), own, SystemClock.now() + LEASE)
    }
}

/// A watch that opens asks for the keys of claims that are on their way; the answer may come after the grant.
#[test]
fn what_was_not_there_before_its_grant_is_no_loss() {
    let client = Client::new();
    let mut losses = client.ledger.losses();
    assert!(client.holds(&mut client.enter("a"), &entry("x/0", 7)));
    client.ledger.ended("x/0", 7);
    assert!(losses.try_recv().is_err());
    client.ledger.ended("x/0", 8);
    assert_eq!(losses.try_recv().unwrap(), OwnerId::from_store("a"));
    assert!(client.ledger.get("x/a").is_none());
}

/// The end of its own key was heard of before the answer, or while it waits.
#[test]
fn who_heard_of_its_own_end_does_not_hold() {
    let client = Client::new();
    let mut place = client.enter("b");
    let ask = client.ledger.ask("x/");
    client.ledger.deleted("x/0", 9);
    assert!(!place.holds(&ask, &entry("x/0", 8), SystemClock.now() + LEASE));
    assert!(place.holds(&ask, &entry("x/0", 10), SystemClock.now() + LEASE));

    let mut place = client.enter("c");
    let own = entry("x/1a.1", 12);
    place.waits(&own);
    client.ledger.deleted("x/1a.1", 12);
    client.ledger.deleted("x/1a.1", 13);
    assert!(!client.holds(&mut place, &own));
}

/// Whoever waits for what may have been kept is not told of its end when its owner's lease is over.
#[test]
fn what_may_be_kept_does_not_end_with_its_session() {
    for may_be_kept in [false, true] {
        let client = Client::new();
        let held = entry("x/0", 7);
        assert!(client.holds(&mut client.enter("a"), &held));
        let (mut place, ask) = (client.enter("b"), client.ledger.ask("x/"));
        let own = entry("x/1a.1", 8);
        place.waits(&own);
        ask.wait_for(Ahead { next: held.clone(), alone: true, tells: false, at: 8 }, &own, &mut place);
        if may_be_kept {
            client.ledger.keeping("x/a").unwrap();
            client.ledger.may_rest_on("x/a", 5);
        }
        client.ledger.lost(&client.session);
        assert_eq!(place.outlived(&held), !may_be_kept);
    }
}

/// Its own end was heard of before the answer that says that it has to wait.
#[tokio::test]
async fn who_waits_and_heard_of_its_own_end_looks() {
    let client = Client::new();
    let (mut place, ask) = (client.enter("b"), client.ledger.ask("x/"));
    client.ledger.deleted("x/1a", 21);
    let own = entry("x/1a", 20);
    place.waits(&own);
    ask.wait_for(Ahead { next: entry("x/0", 5), alone: true, tells: false, at: 20 }, &own, &mut place);
    client.ledger.deleted("x/0", 22);
    assert!(!place.news().await.unwrap());
    assert!(!client.holds(&mut place, &own));
}

/// Whoever waits for a key of its own client hears of its loss, too.
#[tokio::test]
async fn a_loss_is_told_to_who_waits_for_it() {
    let client = Client::new();
    let (mut long, mut waiter) = (client.enter("a"), client.enter("b"));
    assert!(client.holds(&mut long, &entry("x/0", 5)));
    let own = entry("x/1a.1", 6);
    waiter.waits(&own);
    let ahead = Ahead { next: entry("x/0", 5), alone: true, tells: false, at: 6 };
    client.ledger.ask("x/").wait_for(ahead, &own, &mut waiter);
    client.ledger.not_held("x/a", &entry("x/0", 5));
    // Its own key is not watched: it looks.
    assert!(!waiter.news().await.unwrap());
}

#[tokio::test]
async fn a_waiter_hears_of_those_ahead() {
    let client = Client::new();
    let mut place = client.enter("b");
    let own = entry("x/1a", 7);
    place.waits(&own);
    let next = entry("x/2b", 6);
    let ahead = Ahead { next: next.clone(), alone: false, tells: true, at: 7 };
    client.ledger.ask("x/").wait_for(ahead, &own, &mut place);
    assert!(!place.outlived(&next) && client.ledger.of_waiters() == [next.clone(), own.clone()]);
    // Its mark, its key and the waiter's own are watched.
    let watched: Vec<_> = client.ledger.todo(true).0.open.into_iter().map(|(_, key)| key).collect();
    assert_eq!(watched, [client.ledger.keys.mark("x/2b").as_str(), "x/2b", "x/1a"]);
    client.ledger.deleted("x/2b", 9);
    assert!(place.outlived(&next) && !place.outlived(&entry("x/2b", 10)));
    client.ledger.passed("x/2b", 9);
    assert!(place.news().await.unwrap());
    assert_eq!(client.ledger.ask("x/").since, 9);
    client.ledger.fail("it is away");
    assert!(place.news().await.is_err());
    assert!(client.holds(&mut place, &own));
    client.ledger.opened(5, false);
    assert_eq!(client.ledger.ask("x/").since, 5);
}

/// A place that may be put yet, or that somebody else's key is at, is given to nobody else.
#[test]
fn places_are_used_again_when_nothing_is_left_of_their_claims() {
    let client = Client::new();
    let [a, b, c] = ["a", "b", "c"].map(|owner| client.enter(owner));
    assert_eq!([&a, &b, &c].map(|place| place.spot.place.clone()), ["x/write/1a", "x/write/1a.1", "x/write/1a.2"]);
    b.unsure();
    b.give_up();
    a.give_up();
    let again = client.enter("b");
    assert_eq!(again.spot.place, "x/write/1a.1");
    assert!(again.is_unsure());
    let d = client.enter("d");
    assert_eq!(d.spot.place, "x/write/1a");
    d.spoil();
    d.forget();
    assert_eq!(client.enter("e").spot.place, "x/write/1a.3");
    c.give_up();
    assert_eq!(client.enter("f").spot.place, "x/write/1a.2");
}

/// A copy of its request may land yet: the claim is not forgotten, and is undone soon.
#[test]
fn who_is_evicted_and_unsure_is_undone() {
    let client = Client::new();
    let mut place = client.enter("a");
    place.unsure();
    assert!(client.holds(&mut place, &entry("x/0", 7)));
    client.ledger.deleted("x/0", 8);
    assert_eq!(client.ledger.get("x/a").unwrap().stage, Stage::InDoubt);
    assert_eq!(client.ledger.overdue(), ["x/a"]);
}

/// Most holds are over before anybody could want to know of their end. And of its own keys a client knows by itself.
#[test]
fn only_keys_that_matter_are_watched() {
    let client = Client::new();
    let [mut long, mut waiter] = ["long", "waiter"].map(|owner| client.enter(owner));
    assert!(client.holds(&mut long, &entry("x/0", 7)));
    waiter.waits(&entry("x/1a.1", 8));
    let ahead = Ahead { next: entry("x/0", 7), alone: true, tells: false, at: 8 };
    client.ledger.ask("x/").wait_for(ahead, &entry("x/1a.1", 8), &mut waiter);
    client.ledger.tick();
    assert!(client.holds(&mut client.enter("short"), &entry("y/0", 9)));
    assert!(client.ledger.todo(true).0.open.is_empty());
    client.ledger.remove("x/short");
    client.ledger.tick();
    let (todo, ticks, sweeps) = client.ledger.todo(true);
    assert_eq!(todo.open.into_iter().map(|(_, key)| key).collect::<Vec<_>>(), ["x/0"]);
    assert!(ticks && sweeps);
    client.ledger.tick();
    assert!(!client.ledger.todo(true).1);
}

/// Its time was over when its key was deleted, and whoever asks meanwhile is told so.
#[test]
fn who_is_over_did_not_hold_to_the_end() {
    let client = Client::new();
    let own = entry("x/0", 7);
    for (owner, until, to_the_end) in [("a", LEASE, true), ("b", Duration::ZERO, false)] {
        let (mut place, until) = (client.enter(owner), SystemClock.now() + until);
        assert!(place.holds(&client.ledger.ask("x/"), &own, until));
        std::thread::sleep(Duration::from_millis(2));
        let id = format!("x/{owner}");
        client.ledger.leaving(&id).unwrap();
        let stage = Stage::Leaving { held: to_the_end, entry: own.clone() };
        assert_eq!(client.ledger.get(&id).unwrap().stage, stage);
    }
}
