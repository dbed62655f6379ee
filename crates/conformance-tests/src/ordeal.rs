//! What was done to whom, from when to when, and how soon they were well again: read from a history.

use std::collections::HashMap;
use std::time::Duration;

use crate::acquisition::{Acquisition, acquisitions};
use crate::history::{Event, What};

/// Something that was done to somebody, for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordeal {
    /// Who suffered it: `worker-1`, `network-1-0` (from the worker to the server) or `server-0`.
    pub whose: String,
    /// What it was.
    pub blow: String,
    /// From when, in nanoseconds of the machine's monotonic time.
    pub from: u64,
    /// Until when; `u64::MAX` if no end of it is known.
    pub to: u64,
}

impl Ordeal {
    fn worker(&self) -> Option<&str> {
        let mut parts = self.whose.split('-');
        if parts.next() == Some("server") { None } else { parts.next() }
    }

    /// Was this done to the client that an event is of? What is done to a server is done to all.
    fn concerns(&self, client: &str) -> bool {
        self.worker().is_none_or(|worker| client.rsplit('-').nth(1) == Some(worker))
    }
}

/// Everything that was done, in the order of its beginning.
pub(crate) fn ordeals(events: &[Event]) -> Vec<Ordeal> {
    let mut marks: Vec<_> =
        events.iter().filter(|event| matches!(event.what, What::Struck { .. } | What::Relieved { .. })).collect();
    marks.sort_by_key(|event| event.at);
    let (mut all, mut open) = (Vec::<Ordeal>::new(), HashMap::new());
    for event in marks {
        if let What::Struck { blow } = &event.what {
            open.insert(&event.client, all.len());
            all.push(Ordeal { whose: event.client.clone(), blow: blow.clone(), from: event.at, to: u64::MAX });
        } else if let Some(begun) = open.remove(&event.client) {
            all[begun].to = event.at;
        }
    }
    all
}

/// For each ordeal, how long it took from its end to the next grant of who had suffered it; of anybody if that was a
/// server. Left out is where the next blow came first.
pub(crate) fn recoveries(events: &[Event], ordeals: &[Ordeal]) -> Vec<(Duration, Ordeal)> {
    let mut grants: Vec<_> = events.iter().filter(|event| matches!(event.what, What::Granted { .. })).collect();
    grants.sort_by_key(|event| event.at);
    let recovery = |(number, ordeal): (usize, &Ordeal)| {
        let after = grants.partition_point(|grant| grant.at <= ordeal.to);
        let grant = grants[after..].iter().find(|grant| ordeal.concerns(&grant.client))?;
        let mut others = ordeals.iter().enumerate().filter(|(other, _)| *other != number).map(|(_, other)| other);
        let meanwhile = |other: &Ordeal| {
            let related = other.worker().is_none() || other.worker() == ordeal.worker();
            related && other.from < grant.at && other.to > ordeal.to
        };
        (!others.any(meanwhile)).then(|| (Duration::from_nanos(grant.at - ordeal.to), ordeal.clone()))
    };
    ordeals.iter().enumerate().filter_map(recovery).collect()
}

/// For each who was killed while it held a lock, how long it took until somebody had it who had been waiting by then.
pub(crate) fn freed(events: &[Event]) -> Vec<Duration> {
    let all = acquisitions(events);
    let freed = |kill: &Event| {
        let held = |a: &&Acquisition<'_>| a.client == kill.client && a.answered() < kill.at && a.believed(kill.at);
        // Without a token nobody can tell who was next.
        let held = all.iter().find(held).filter(|held| held.token() > 0)?;
        let later = all.iter().filter(|a| a.name == held.name && a.token() > held.token());
        let next = later.min_by_key(|a| a.answered())?;
        (next.asked < kill.at).then(|| Duration::from_nanos(next.answered().saturating_sub(kill.at)))
    };
    events.iter().filter(|event| event.what == What::Killed).filter_map(freed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64, client: &str, what: What) -> Event {
        Event { at, client: client.into(), op: 1, what }
    }

    fn suffers(whose: &str, from: u64, to: u64) -> [Event; 2] {
        let blow = || "cut".to_owned();
        [event(from, whose, What::Struck { blow: blow() }), event(to, whose, What::Relieved { blow: blow() })]
    }

    fn granted(at: u64, client: &str) -> [Event; 1] {
        [event(at, client, What::Granted { token: at, until: at + 5 })]
    }

    fn times(events: &[Event]) -> Vec<u64> {
        recoveries(events, &ordeals(events)).iter().map(|(time, _)| time.as_nanos() as u64).collect()
    }

    #[test]
    fn a_worker_is_well_when_it_is_granted_and_a_server_when_anybody_is() {
        let one =
            [&suffers("network-1-0", 10, 20)[..], &granted(25, "worker-2-0"), &granted(30, "worker-1-4")].concat();
        assert_eq!(times(&one), [10]);
        let all = [&suffers("server-0", 10, 20)[..], &granted(25, "worker-2-0"), &granted(30, "worker-1-4")].concat();
        assert_eq!(times(&all), [5]);
    }

    #[test]
    fn who_is_struck_again_first_is_left_out() {
        let base = [&suffers("network-1-0", 10, 20)[..], &granted(40, "worker-1-4")].concat();
        assert_eq!(times(&[&base[..], &suffers("worker-1", 25, 50)].concat()), [] as [u64; 0]);
        assert_eq!(times(&[&base[..], &suffers("server-0", 5, 22)].concat()), [18]);
        assert_eq!(times(&[&base[..], &suffers("worker-2", 25, 50)].concat()), [20]);
    }

    #[test]
    fn a_lock_is_freed_when_one_who_waited_has_it() {
        let acquire = |at, op| Event {
            op,
            ..event(
                at,
                "worker-2-0",
                What::Acquire { name: "n".into(), mode: lock_core::Mode::Exclusive, lease: 5, watched: true },
            )
        };
        let grant = |at, op| Event { op, ..granted(at, "worker-2-0")[0].clone() };
        let held = event(
            1,
            "worker-1-0",
            What::Acquire { name: "n".into(), mode: lock_core::Mode::Exclusive, lease: 5, watched: true },
        );
        let killed = [held, granted(2, "worker-1-0")[0].clone(), event(4, "worker-1-0", What::Killed)];
        assert_eq!(freed(&[&killed[..], &[acquire(3, 1), grant(8, 1)]].concat()), [Duration::from_nanos(4)]);
        assert_eq!(freed(&[&killed[..], &[acquire(5, 1), grant(8, 1)]].concat()), []);
        let released = event(3, "worker-1-0", What::Release);
        assert_eq!(freed(&[&killed[..], &[released, acquire(3, 1), grant(8, 1)]].concat()), []);
    }

    #[test]
    fn what_never_ended_goes_on() {
        let all = ordeals(&suffers("worker-1", 10, 20)[..1]);
        assert_eq!((all[0].from, all[0].to), (10, u64::MAX));
    }
}
