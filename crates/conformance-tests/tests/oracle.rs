//! The oracle finds each kind of fault in histories made by hand, and none in good ones.

use std::time::Duration;

use conformance_tests::history::{Event, What};
use conformance_tests::oracle::{Tolerance, Verdict, check, check_resource};
use conformance_tests::resource::{Access, Kind};
use lock_core::Mode;

const LEASE: u64 = 1000;

#[derive(Default)]
struct History(Vec<Event>);

impl History {
    fn at(mut self, at: u64, client: &str, op: u64, what: What) -> Self {
        self.0.push(Event { at, client: client.into(), op, what });
        self
    }

    fn ask(self, at: u64, client: &str, op: u64) -> Self {
        self.at(at, client, op, What::Acquire { name: "x".into(), mode: Mode::Exclusive, lease: LEASE, watched: true })
    }

    /// The same in this mode, with these slots.
    fn grant_as(self, mode: Mode, slots: &[u32], client: &str, token: u64, [asked, granted, until]: [u64; 3]) -> Self {
        let asks = What::Acquire { name: "x".into(), mode, lease: LEASE, watched: true };
        let slots = What::Slots { slots: slots.to_vec() };
        self.at(asked, client, 1, asks).at(granted, client, 1, slots).at(
            granted,
            client,
            1,
            What::Granted { token, until },
        )
    }

    /// Asked at one time, granted at another, believed until a third.
    fn grant(self, client: &str, op: u64, token: u64, [asked, granted, until]: [u64; 3]) -> Self {
        self.ask(asked, client, op).at(granted, client, op, What::Granted { token, until })
    }

    fn release(self, client: &str, op: u64, [asked, answered]: [u64; 2], held: bool) -> Self {
        self.at(asked, client, op, What::Release).at(answered, client, op, What::Released { held })
    }

    fn judge(&self) -> Verdict {
        let tolerance = Tolerance { notice: Some(Duration::from_nanos(50)), grace: Duration::from_nanos(100) };
        let verdict = check(&self.0, tolerance);
        // In whatever order the events come.
        let mut backwards = self.0.clone();
        backwards.reverse();
        assert_eq!(rules(&check(&backwards, tolerance)), rules(&verdict));
        verdict
    }

    #[track_caller]
    fn breaks(&self, wanted: &[&str]) {
        let verdict = self.judge();
        assert_eq!(rules(&verdict), wanted, "{:#?}", verdict.violations);
        assert!(verdict.violations.iter().all(|violation| !violation.events.is_empty()));
    }
}

fn rules(verdict: &Verdict) -> Vec<&'static str> {
    let mut rules: Vec<_> = verdict.violations.iter().map(|violation| violation.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

fn turns() -> History {
    History::default()
        .grant("a", 1, 10, [0, 10, 900])
        .release("a", 1, [100, 110], true)
        // Asked while the other held.
        .grant("b", 1, 11, [50, 105, 1000])
        .release("b", 1, [200, 210], true)
        .grant("a", 2, 12, [300, 310, 1200])
}

#[test]
fn good_histories_are_good() {
    turns().breaks(&[]);
    assert_eq!(turns().judge().grants, 3);
    // Ended by its time, and told.
    let expired = History::default()
        .grant("a", 1, 10, [0, 10, 900])
        .at(910, "a", 1, What::Told)
        .release("a", 1, [950, 960], false)
        .grant("b", 1, 11, [20, 905, 1900]);
    expired.breaks(&[]);
    assert_eq!(expired.judge().worst_notice, Duration::from_nanos(10));
    // Prolonged, and killed.
    History::default()
        .grant("a", 1, 10, [0, 10, 900])
        .at(500, "a", 1, What::Checked { held: true, until: 1400 })
        .at(600, "a", 0, What::Killed)
        .grant("b", 1, 11, [20, 1400, 2300])
        .breaks(&[]);
}

#[test]
fn t1_a_token_twice() {
    turns().grant("c", 1, 12, [1300, 1310, 2000]).breaks(&["T1", "T2"]);
}

#[test]
fn t2_a_token_that_fell() {
    turns().release("a", 2, [320, 330], true).grant("c", 1, 5, [400, 410, 1300]).breaks(&["S0", "T2"]);
    // Asked at the same time, the order is free.
    History::default()
        .grant("a", 1, 11, [0, 200, 900])
        .release("a", 1, [210, 220], true)
        .grant("b", 1, 10, [0, 50, 900])
        .release("b", 1, [60, 70], true)
        .breaks(&[]);
}

#[test]
fn s0_granted_before_the_hold_ended() {
    // The client was killed and believes nothing, but the store had promised.
    History::default()
        .grant("a", 1, 10, [0, 10, 900])
        .at(100, "a", 0, What::Killed)
        .grant("b", 1, 11, [20, 200, 1100])
        .breaks(&["S0"]);
    // Over two grants: the second ended at once, the first did not.
    History::default()
        .grant("a", 1, 10, [0, 10, 900])
        .at(15, "a", 0, What::Killed)
        .grant("b", 1, 11, [20, 950, 1900])
        .release("b", 1, [960, 970], true)
        .grant("c", 1, 12, [30, 400, 1000])
        .at(410, "c", 0, What::Killed)
        .breaks(&["R1", "S0"]);
}

/// Stopped between its grant and the first question: it wakes to a hold that is over, and cannot say since when.
#[test]
fn s0_forgives_a_hold_that_was_over_when_it_was_first_looked_at() {
    let woken = |until| {
        History::default()
            .grant("a", 1, 10, [0, 3000, until])
            .at(100, "a", 0, What::Stopped)
            .at(2990, "a", 0, What::Continued)
            .at(3010, "a", 1, What::Told)
            .grant("b", 1, 11, [5, 2000, 2900])
            .release("b", 1, [2100, 2110], true)
    };
    woken(2999).breaks(&[]);
    // Something was left.
    woken(3005).breaks(&["S0"]);
}

/// Of several stores, one may have freed it when it was asked to, and another have answered when its time was up.
#[test]
fn s0_counts_to_the_question_for_its_release_however_that_was_answered() {
    let next = |at| {
        History::default().grant("a", 1, 10, [0, 10, 1000]).release("a", 1, [91, 1200], false).grant(
            "b",
            1,
            11,
            [20, at, at + 900],
        )
    };
    next(91).breaks(&[]);
    next(90).breaks(&["B1", "S0"]);
}

#[test]
fn b1_two_believe() {
    turns().grant("c", 1, 13, [320, 400, 1300]).breaks(&["B1", "S0"]);
    // An eviction ends a hold, though its holder does not know yet.
    turns()
        .at(350, "operator", 0, What::Evict { name: "x".into() })
        .at(390, "a", 2, What::Told)
        .grant("c", 1, 13, [320, 400, 1300])
        .breaks(&[]);
    // Long ago does not count, and neither does another lock's.
    let early = turns().at(5, "operator", 0, What::Evict { name: "x".into() });
    let other = early.at(350, "operator", 0, What::Evict { name: "y".into() });
    other.grant("c", 1, 13, [320, 400, 1300]).breaks(&["B1", "S0"]);
}

/// What another library does not promise is not asked of its clients, by their names; that theirs and ours do not hold at
/// the same time is.
#[test]
fn clients_of_other_libraries() {
    let late = |client| turns().grant(client, 1, 13, [320, 400, 1300]);
    late("kazoo-3-0").breaks(&["B1", "S0"]);
    late("redis-py-3-0").breaks(&["B1"]);
    // Without tokens, one is as good as another.
    let before = History::default().grant("b", 1, 9, [0, 5, 8]).grant("redis-py-3-0", 1, 0, [0, 10, 900]);
    let after = before.release("redis-py-3-0", 1, [100, 120], true).grant("a", 1, 11, [20, 130, 1030]);
    after.grant("redis-py-4-0", 1, 0, [140, 1040, 1900]).breaks(&[]);
    // It does not know that it was not held any more; that it was lost early is told by the store.
    let past = |client| History::default().grant(client, 1, 10, [0, 10, 1000]).grant("a", 1, 11, [20, 1010, 2000]);
    past("kazoo-3-0").release("kazoo-3-0", 1, [1050, 1060], true).breaks(&[]);
    past("b").release("b", 1, [1050, 1060], true).breaks(&["R1"]);
    History::default()
        .grant("kazoo-3-0", 1, 10, [0, 10, 1000])
        .release("kazoo-3-0", 1, [50, 60], false)
        .breaks(&["R1"]);
}

#[test]
fn p2_more_permits_than_there_are() {
    let mode = |take| Mode::Permits { take, of: 3 };
    let two = History::default().grant_as(mode(2), &[0, 1], "a", 10, [0, 10, 500]);
    let theirs = |two: History, take, at| two.grant_as(mode(take), &[], "curator-semaphore-3-0", 0, [0, at, 900]);
    theirs(two, 1, 20).breaks(&[]);
    let two = History::default().grant_as(mode(2), &[0, 1], "a", 10, [0, 10, 500]);
    theirs(two, 2, 499).breaks(&["P2"]);
    let two = History::default().grant_as(mode(2), &[0, 1], "a", 10, [0, 10, 500]).release("a", 1, [400, 410], true);
    theirs(two, 2, 400).breaks(&[]);
}

/// The store forgot everything between these moments.
fn forgetful(from: u64, to: u64) -> History {
    History::default().at(from, "server-0", 0, What::Forgetting).at(to, "server-0", 0, What::Forgotten)
}

#[test]
fn e1_believed_after_the_store_forgot() {
    let held = |until: u64| {
        forgetful(100, 120).grant("a", 1, 10, [0, 10, 900]).at(90, "a", 1, What::Checked { held: true, until })
    };
    // Who holds cannot know before its next renewal, and another may be granted meanwhile.
    let learnt = held(990).grant("b", 1, 11, [130, 140, 1040]).at(950, "a", 1, What::Told);
    learnt.breaks(&[]);
    assert_eq!((learnt.judge().forgotten, learnt.judge().worst_forgotten), (1, Duration::from_nanos(830)));
    held(990).at(400, "a", 1, What::Release).at(410, "a", 1, What::Released { held: false }).breaks(&[]);
    // Renewed after it was forgotten.
    held(1121).breaks(&["E1"]);
    held(1121).grant("b", 1, 11, [130, 140, 1040]).at(1100, "a", 1, What::Told).breaks(&["B1", "E1", "S0"]);
    // Found held.
    held(990).release("a", 1, [400, 410], true).breaks(&["E1"]);
}

/// One of several stores was emptied: a hold may have ended with it, as long as its client does not believe in it beside
/// another's.
#[test]
fn a_hold_may_end_when_a_store_is_emptied() {
    let emptied = |at, told| {
        let held = History::default().grant("a", 1, 10, [0, 10, 900]).at(at, "server-0", 0, What::Emptied);
        held.at(told, "a", 1, What::Told).grant("b", 1, 11, [120, 130, 1040])
    };
    emptied(100, 110).breaks(&[]);
    emptied(100, 110).release("a", 1, [140, 150], false).breaks(&[]);
    // It still believed, or the store was emptied later.
    emptied(100, 140).breaks(&["B1"]);
    emptied(500, 110).breaks(&["S0"]);
}

#[test]
fn what_was_granted_after_the_store_forgot_is_not_forgiven() {
    let later = forgetful(100, 120).grant("a", 1, 10, [130, 140, 1030]);
    later.grant("b", 1, 11, [150, 160, 1050]).breaks(&["B1", "S0"]);
    // Asked before, and renewed or released as held after.
    let across = || forgetful(100, 120).grant("a", 1, 10, [50, 140, 1030]);
    across().grant("b", 1, 11, [150, 160, 1050]).breaks(&[]);
    let renewed = across().at(900, "a", 1, What::Checked { held: true, until: 1500 });
    renewed.grant("b", 1, 11, [150, 160, 1050]).breaks(&["B1", "S0"]);
    let released = across().release("a", 1, [500, 510], true);
    released.grant("b", 1, 11, [150, 160, 1050]).breaks(&["B1", "R1", "S0"]);
    // Tokens rise all the same.
    forgetful(100, 120)
        .grant("a", 1, 10, [0, 10, 900])
        .grant("b", 1, 9, [130, 140, 1040])
        .at(900, "a", 1, What::Told)
        .breaks(&["S0", "T2"]);
}

#[test]
fn a_violation_shows_what_was_being_done_and_no_question_twice() {
    let blow = || "cut".to_owned();
    let history = turns()
        .at(100, "network-0-0", 0, What::Struck { blow: blow() })
        .at(250, "network-0-0", 0, What::Relieved { blow: blow() })
        .at(330, "server-0", 0, What::Struck { blow: blow() })
        .at(350, "a", 2, What::Checked { held: true, until: 1100 })
        .at(360, "a", 2, What::Checked { held: true, until: 1150 })
        .grant("c", 1, 13, [320, 400, 1300]);
    let verdict = history.judge();
    let shown = verdict.violations[0].to_string();
    assert!(shown.contains("server-0: cut") && !shown.contains("network-0-0"), "{shown}");
    assert_eq!(shown.matches("asks itself: held").count(), 1, "{shown}");
    let last = |event: &Event| event.what == What::Checked { held: true, until: 1150 };
    assert!(verdict.violations[0].events.iter().any(last), "{shown}");
}

#[test]
fn two_who_hold_are_shown_with_who_ended_between_their_grants() {
    let history = History::default()
        .grant("a", 1, 10, [0, 10, 900])
        .ask(20, "c", 1)
        .at(40, "c", 1, What::Denied)
        .grant("b", 1, 11, [30, 60, 950])
        .ask(70, "d", 1)
        .at(80, "d", 1, What::Denied);
    history.breaks(&["B1", "S0"]);
    for violation in history.judge().violations {
        let shown = |client| violation.events.iter().any(|event| event.client == client);
        assert!(shown("c") && !shown("d"), "{violation}");
    }
}

#[test]
fn d1_denied_for_nothing() {
    let denied = |at: u64| turns().release("a", 2, [320, 330], true).ask(at, "c", 1).at(at + 10, "c", 1, What::Denied);
    denied(325).breaks(&[]);
    // A lease and the grace after the release, something may still be in the way.
    denied(330 + LEASE + 100).breaks(&[]);
    denied(330 + LEASE + 101).breaks(&["D1"]);
    // One whose outcome is unknown may be in the way too; one that failed for sure may not.
    let failed = |unknown| denied(2000).ask(1900, "d", 1).at(1910, "d", 1, What::Failed { unknown });
    failed(true).breaks(&[]);
    failed(false).breaks(&["D1"]);
}

#[test]
fn r1_releases_that_say_the_wrong_thing() {
    // "Held until now", and another was granted before.
    History::default()
        .grant("a", 1, 10, [0, 10, 900])
        .at(900, "a", 1, What::Told)
        .grant("b", 1, 11, [20, 950, 1900])
        .release("a", 1, [1000, 1010], true)
        .breaks(&["R1"]);
    // "Lost before", and its time was not up.
    History::default().grant("a", 1, 10, [0, 10, 900]).release("a", 1, [100, 110], false).breaks(&["R1"]);
    History::default()
        .grant("a", 1, 10, [0, 10, 900])
        .at(50, "operator", 0, What::Evict { name: "x".into() })
        .release("a", 1, [100, 110], false)
        .breaks(&[]);
}

#[test]
fn n1_told_late_or_never() {
    let told = |at: u64| History::default().grant("a", 1, 10, [0, 10, 900]).at(at, "a", 1, What::Told);
    told(950).breaks(&[]);
    told(951).breaks(&["N1"]);
    // The first time counts.
    told(950).at(2000, "a", 1, What::Told).breaks(&[]);
    // A stop does not count.
    told(1500).at(400, "a", 0, What::Stopped).at(1490, "a", 0, What::Continued).breaks(&[]);
    // Never told, and alive.
    let never = History::default().grant("a", 1, 10, [0, 10, 900]);
    never.at(2000, "a", 1, What::Checked { held: false, until: 2000 }).breaks(&["N1"]);
}

#[test]
fn n2_trusted_after_a_stop() {
    let woken = |stop: u64, held| {
        History::default()
            .grant("a", 1, 10, [0, 10, 900])
            .at(100, "a", 0, What::Stopped)
            .at(100 + stop, "a", 0, What::Continued)
            .at(105 + stop, "a", 1, What::Checked { held, until: 110 + stop })
            .at(120 + stop, "a", 1, What::Told)
    };
    woken(LEASE + 10, false).breaks(&[]);
    woken(LEASE + 10, true).breaks(&["N2"]);
    woken(LEASE / 2, true).breaks(&[]);
}

#[test]
fn f1_and_f2_in_a_resources_log() {
    let log = |accesses: &[(Kind, u64, u64)]| -> Vec<&'static str> {
        let log: Vec<_> =
            accesses.iter().map(|&(kind, token, value)| Access { kind, token, value, newest: 0 }).collect();
        check_resource(&log).iter().map(|violation| violation.rule).collect()
    };
    let good = [(Kind::Read, 1, 0), (Kind::Write, 1, 1), (Kind::Read, 3, 1), (Kind::Write, 3, 2)];
    assert_eq!(log(&good), [""; 0]);
    assert_eq!(log(&[(Kind::Write, 3, 1), (Kind::Write, 2, 2)]), ["F1"]);
    assert_eq!(log(&[(Kind::Write, 1, 1), (Kind::Write, 2, 1)]), ["F2"]);
    assert_eq!(log(&[(Kind::Write, 1, 2)]), ["F2"]);
}

#[test]
fn many_grants_are_judged_in_a_moment() {
    let mut history = History::default();
    for number in 0..100_000 {
        let at = number * 10;
        history.0.extend(
            History::default()
                .grant("a", number, number, [at, at + 1, at + 900])
                .release("a", number, [at + 2, at + 3], true)
                .0,
        );
    }
    let start = std::time::Instant::now();
    assert_eq!(rules(&check(&history.0, Tolerance { notice: None, grace: Duration::ZERO })), [""; 0]);
    // Quadratic, it would take hours.
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_kept_hold_goes_on_until_its_time() {
    let kept = |next: u64, held: bool| {
        let history = History::default().grant("a", 1, 10, [0, 10, 900]);
        let history = history.at(100, "a", 1, What::Keep { at_least: 500 });
        history.at(110, "a", 1, What::Released { held }).grant("b", 1, 11, [105, next, 1900])
    };
    kept(500, true).breaks(&[]);
    kept(499, true).breaks(&["S0"]);
    // It says that it was lost.
    kept(499, false).breaks(&["R1", "S0"]);
    // It began long before it was said to be done.
    let late = History::default().grant("a", 1, 10, [0, 10, 900]).at(600, "a", 1, What::Keep { at_least: 500 });
    late.at(610, "a", 1, What::Released { held: true }).grant("b", 1, 11, [105, 605, 1900]).breaks(&[]);
    // While it is kept others are denied, and not much longer.
    let denied = |asked| kept(500, true).ask(asked, "c", 1).at(asked + 10, "c", 1, What::Denied);
    denied(450).breaks(&[]);
}

#[test]
fn a_token_is_seen_with_its_own_value() {
    let seen = |token, value: Option<&str>| {
        let history = turns().at(12, "a", 1, What::Showed { value: "v".into() });
        let value = value.map(str::to_owned);
        history.at(150, "c", 0, What::Seen { name: "x".into(), token, value })
    };
    seen(10, Some("v")).breaks(&[]);
    seen(11, None).breaks(&[]);
    seen(99, Some("of another library's")).breaks(&[]);
    seen(10, None).breaks(&["V1"]);
    seen(11, Some("v")).breaks(&["V1"]);
}

#[test]
fn readers_share_and_writers_do_not() {
    let read = |history: History, client: &str, token, times| history.grant_as(Mode::Shared, &[], client, token, times);
    let readers = read(read(History::default(), "a", 10, [0, 10, 900]), "b", 10, [5, 15, 900]);
    readers.breaks(&[]);
    // Below the other reader's, which says nothing.
    let readers = read(readers, "c", 9, [30, 40, 900]);
    readers.breaks(&[]);
    let write = |history: History, token, times| history.grant_as(Mode::Exclusive, &[], "w", token, times);
    write(readers, 20, [50, 905, 1800]).breaks(&[]);
    let reader = || read(History::default(), "a", 10, [0, 10, 900]);
    write(reader(), 20, [50, 60, 800]).breaks(&["B1", "S0"]);
    write(reader(), 9, [50, 905, 1800]).breaks(&["S0", "T2"]);
    write(reader(), 10, [50, 905, 1800]).breaks(&["T1", "T2"]);
    read(write(History::default(), 20, [0, 10, 900]), "a", 21, [50, 60, 800]).breaks(&["B1", "S0"]);
    read(write(History::default(), 20, [0, 10, 900]), "a", 19, [910, 920, 1800]).breaks(&["S0", "T2"]);
    // A release that comes after the next writer's grant.
    write(reader().release("a", 1, [700, 710], true), 20, [50, 600, 1500]).breaks(&["B1", "R1", "S0"]);
}

#[test]
fn only_a_writer_is_why_a_reader_is_denied() {
    let denied = |mode, slots: &[u32], of: Mode| {
        let asks = What::Acquire { name: "x".into(), mode: of, lease: LEASE, watched: true };
        let history = History::default().grant_as(mode, slots, "a", 10, [0, 10, 900]);
        history.at(50, "b", 1, asks).at(60, "b", 1, What::Denied)
    };
    denied(Mode::Exclusive, &[], Mode::Shared).breaks(&[]);
    denied(Mode::Shared, &[], Mode::Exclusive).breaks(&[]);
    denied(Mode::Shared, &[], Mode::Shared).breaks(&["D1"]);
    let permits = |take| Mode::Permits { take, of: 3 };
    denied(permits(2), &[0, 1], permits(2)).breaks(&[]);
    denied(permits(1), &[0], permits(2)).breaks(&["D1"]);
}

#[test]
fn a_slot_is_one_holders() {
    let permits = |take| Mode::Permits { take, of: 3 };
    let one = || History::default().grant_as(permits(2), &[0, 2], "a", 10, [0, 10, 900]);
    one().grant_as(permits(1), &[1], "b", 9, [20, 30, 900]).breaks(&[]);
    one().grant_as(permits(1), &[2], "b", 11, [20, 30, 900]).breaks(&["B1", "S0"]);
    one().grant_as(permits(1), &[2], "b", 9, [20, 905, 1800]).breaks(&["S0", "T2"]);
    for slots in [&[] as &[u32], &[1, 2], &[3]] {
        History::default().grant_as(permits(1), slots, "a", 10, [0, 10, 900]).breaks(&["P1"]);
    }
    History::default().grant_as(permits(2), &[2, 1], "a", 10, [0, 10, 900]).breaks(&["P1"]);
}
