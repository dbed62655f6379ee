//! What holders saw of the resources that their locks protect: how often they came too late, and what came of it.
//!
//! The rules, for the uses of one resource. [`check_resource`](crate::oracle::check_resource) judges the resource's own
//! log; these judge what its users were answered:
//!
//! - **F3** Nobody is let in who came after a holder with a newer token had been let in. (Readers keep nobody out.)
//! - **F4** Each write that was answered as let in is in the resource's own log.
//! - **F5** Nobody is refused who still held the lock after the answer. If the store forgot everything, that is
//!   forgiven: until its next renewal, a holder cannot know that there is a newer token.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::acquisition::Pauses;
use crate::history::{Event, What};
use crate::protected::Logged;
use crate::resource::Kind;
use crate::violation::Violation;

/// How many writes came to the resources of one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// All that were let in.
    pub let_in: usize,
    /// All that were refused.
    pub refused: usize,
    /// Of both, those that were sent after the lease was over.
    pub late: usize,
    /// Of the late ones, those that were refused. The others came before any later holder did.
    pub late_refused: usize,
    /// Of the late ones, those whose process was stopped in the middle of its section.
    pub woken: usize,
    /// Of these, those that were refused.
    pub woken_refused: usize,
}

/// How one resource was used.
struct Use<'a> {
    client: &'a str,
    at: u64,
    kind: Kind,
    token: u64,
    sent: u64,
    late: bool,
    value: Option<u64>,
    held: bool,
}

/// In the order of their answers, by place and resource.
fn uses(events: &[Event]) -> BTreeMap<(&str, &str), Vec<Use<'_>>> {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    for event in events {
        if let &What::Used { ref place, ref resource, kind, token, sent, late, value, held } = &event.what {
            let used = Use { client: &event.client, at: event.at, kind, token, sent, late, value, held };
            all.entry((place.as_str(), resource.as_str())).or_default().push(used);
        }
    }
    all.values_mut().for_each(|uses| uses.sort_by_key(|used| used.at));
    all
}

/// Counts the writes of these clients, by their places.
pub(crate) fn writes(events: &[Event], whose: impl Fn(&str) -> bool) -> BTreeMap<String, Writes> {
    let mut pauses = HashMap::<&str, Pauses>::new();
    for event in events {
        if matches!(event.what, What::Stopped | What::Continued | What::Killed) {
            pauses.entry(&event.client).or_default().add(event.at, &event.what);
        }
    }
    pauses.values_mut().for_each(Pauses::sort);
    let mut all = BTreeMap::<String, Writes>::new();
    for ((place, _), uses) in uses(events) {
        let writes = all.entry(place.to_owned()).or_default();
        let mut read = HashMap::new();
        for used in uses.into_iter().filter(|used| whose(used.client)) {
            match used.kind {
                Kind::Read => drop(read.insert((used.client, used.token), used.at)),
                Kind::Write => {
                    let since = read.get(&(used.client, used.token)).copied().unwrap_or(used.sent);
                    let stopped = pauses.get(used.client).map_or(0, |pauses| pauses.within(since, used.sent)) > 0;
                    writes.count(&used, stopped);
                }
                Kind::Share => {}
            }
        }
    }
    all
}

impl Writes {
    /// These and others.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            let_in: self.let_in + other.let_in,
            refused: self.refused + other.refused,
            late: self.late + other.late,
            late_refused: self.late_refused + other.late_refused,
            woken: self.woken + other.woken,
            woken_refused: self.woken_refused + other.woken_refused,
        }
    }

    fn count(&mut self, used: &Use<'_>, stopped: bool) {
        let (refused, woken) = (usize::from(used.value.is_none()), usize::from(used.late && stopped));
        let late = usize::from(used.late);
        self.let_in += 1 - refused;
        self.refused += refused;
        self.late += late;
        self.late_refused += late * refused;
        self.woken += woken;
        self.woken_refused += woken * refused;
    }
}

/// Judges the uses of all resources, of which there are these logs.
pub(crate) fn check(events: &[Event], logs: &[Logged]) -> Vec<Violation> {
    let forgot = events.iter().any(|event| event.what == What::Forgotten);
    let mut violations = Vec::new();
    for ((place, resource), uses) in uses(events) {
        let log = logs.iter().find(|log| (log.place.as_str(), log.resource.as_str()) == (place, resource));
        let accesses = log.into_iter().flat_map(|log| &log.accesses);
        let written: HashSet<_> = accesses
            .filter(|access| access.kind == Kind::Write)
            .map(|access| (access.token, Some(access.value)))
            .collect();
        let mut broken = |rule, what: String, tokens: &[u64]| {
            let mut violation = Violation::of_tokens(rule, format!("{place}, {resource}: {what}"), tokens);
            violation.show(resource, events);
            violations.push(violation);
        };
        for (late, newer) in late(&uses) {
            let what = format!("token {late} was let in, sent after token {newer} had been let in");
            broken("F3", what, &[late, newer]);
        }
        for used in &uses {
            if used.kind == Kind::Write && used.value.is_some() && !written.contains(&(used.token, used.value)) {
                broken("F4", format!("a write with token {} is not in its log", used.token), &[used.token]);
            }
            if used.value.is_none() && used.held && !forgot {
                broken("F5", format!("token {} was refused, and still held the lock", used.token), &[used.token]);
            }
        }
    }
    violations
}

/// The tokens that were let in too late, each with the newest one that had been answered as let in before it was sent.
/// The uses are in the order of their answers.
fn late(uses: &[Use<'_>]) -> Vec<(u64, u64)> {
    let mut in_order: Vec<_> = uses.iter().filter(|used| used.value.is_some()).collect();
    in_order.sort_by_key(|used| used.sent);
    let mut answered = uses.iter().filter(|used| used.value.is_some() && used.kind != Kind::Share).peekable();
    let (mut newest, mut found) = (0, Vec::new());
    for used in in_order {
        while let Some(before) = answered.next_if(|before| before.at < used.sent) {
            newest = newest.max(before.token);
        }
        if used.token < newest {
            found.push((used.token, newest));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Access;

    /// Sent at one time and answered at another.
    fn used(client: &str, kind: Kind, token: u64, [sent, at]: [u64; 2], value: Option<u64>) -> Event {
        let (place, resource) = ("p".to_owned(), "x".to_owned());
        let what = What::Used { place, resource, kind, token, sent, late: false, value, held: true };
        Event { at, client: client.to_owned(), op: 0, what }
    }

    fn too_late(mut event: Event) -> Event {
        if let What::Used { late, held, .. } = &mut event.what {
            (*late, *held) = (true, false);
        }
        event
    }

    fn rules(events: &[Event], written: &[(u64, u64)]) -> Vec<&'static str> {
        let access = |&(token, value): &(u64, u64)| Access { kind: Kind::Write, token, value, newest: token };
        let accesses = written.iter().map(access).collect();
        let log = Logged { place: "p".to_owned(), resource: "x".to_owned(), accesses };
        check(events, &[log]).iter().map(|violation| violation.rule).collect()
    }

    /// One is stopped in the middle of its section, and another comes meanwhile.
    fn woken(value: Option<u64>) -> Vec<Event> {
        let stop = |at, what| Event { at, client: "a".to_owned(), op: 0, what };
        vec![
            used("a", Kind::Read, 5, [1, 2], Some(0)),
            stop(3, What::Stopped),
            used("b", Kind::Read, 7, [10, 11], Some(0)),
            used("b", Kind::Write, 7, [12, 13], Some(1)),
            stop(20, What::Continued),
            too_late(used("a", Kind::Write, 5, [21, 22], value)),
        ]
    }

    #[test]
    fn f3_who_wakes_and_is_let_in() {
        assert_eq!(rules(&woken(None), &[(7, 1)]), [""; 0]);
        assert_eq!(rules(&woken(Some(1)), &[(7, 1), (5, 1)]), ["F3"]);
        // A mere read with a newer token is enough, and so is a reader that comes too late.
        let reader = too_late(used("a", Kind::Share, 5, [12, 13], Some(1)));
        let [read, ..] = [used("b", Kind::Read, 7, [10, 11], Some(0))];
        assert_eq!(rules(&[read, reader], &[]), ["F3"]);
    }

    #[test]
    fn those_who_are_under_way_together_may_come_in_any_order() {
        let together = [used("a", Kind::Read, 5, [1, 20], Some(0)), used("b", Kind::Read, 7, [2, 10], Some(0))];
        assert_eq!(rules(&together, &[]), [""; 0]);
        let readers = [used("a", Kind::Share, 7, [1, 2], Some(0)), used("b", Kind::Write, 5, [3, 4], Some(1))];
        assert_eq!(rules(&readers, &[(5, 1)]), [""; 0]);
    }

    #[test]
    fn f4_an_answer_without_its_write() {
        let written = [used("a", Kind::Write, 5, [1, 2], Some(1))];
        assert_eq!(rules(&written, &[(5, 1)]), [""; 0]);
        assert_eq!(rules(&written, &[]), ["F4"]);
        assert_eq!(rules(&written, &[(5, 2)]), ["F4"]);
    }

    #[test]
    fn f5_a_holder_that_is_refused() {
        let mut refused = vec![used("a", Kind::Write, 5, [1, 2], None)];
        assert_eq!(rules(&refused, &[]), ["F5"]);
        refused.push(Event { at: 1, client: "server-0".to_owned(), op: 0, what: What::Forgotten });
        assert_eq!(rules(&refused, &[]), [""; 0]);
    }

    #[test]
    fn late_writes_are_counted_and_those_of_who_was_stopped() {
        let mut events = woken(None);
        events.push(too_late(used("b", Kind::Write, 7, [30, 31], Some(2))));
        let wanted = Writes { let_in: 2, refused: 1, late: 2, late_refused: 1, woken: 1, woken_refused: 1 };
        assert_eq!(writes(&events, |_| true), BTreeMap::from([("p".to_owned(), wanted)]));
    }
}
