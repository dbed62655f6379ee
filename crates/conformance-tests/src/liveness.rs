//! Whether everybody got on: two rules over the whole history.
//!
//! - **L1** After the last blow, somebody is granted a lock within the calm.
//! - **L3** Nobody falls silent: a worker that is neither stopped nor dead says something within the longest that a wait,
//!   a section and a release may take.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::acquisition::Pauses;
use crate::foreign::is_asked;
use crate::history::{Event, What};
use crate::ordeal::Ordeal;
use crate::torture::WARM_UP;
use crate::violation::Violation;

pub(crate) fn paralysis(events: &[Event], ordeals: &[Ordeal], calm: Duration) -> Option<Violation> {
    let last = ordeals.iter().max_by_key(|ordeal| ordeal.to)?;
    let granted = |event: &&Event| matches!(event.what, What::Granted { .. }) && event.at > last.to;
    let first = events.iter().filter(granted).map(|event| event.at).min();
    let in_time = first.is_some_and(|first| Duration::from_nanos(first - last.to) <= calm);
    (!in_time).then(|| {
        let what = format!("nobody was granted a lock within {calm:?} of the last blow");
        Violation { ordeals: vec![last.clone()], ..Violation::of_tokens("L1", what, &[]) }
    })
}

/// `ended` is when all were told to end. Who ends before the first blow is not asked, either.
pub(crate) fn silence(events: &[Event], ended: u64, limit: Duration) -> Vec<Violation> {
    let (mut said, mut pauses) = (BTreeMap::<&str, Vec<u64>>::new(), BTreeMap::<&str, Pauses>::new());
    for event in events {
        match &event.what {
            What::Stopped | What::Continued | What::Killed => {
                pauses.entry(&event.client).or_default().add(event.at, &event.what);
            }
            // What the supervisor says of itself, and of those who suffer.
            _ if event.op == 0 => {}
            _ => said.entry(&event.client).or_default().push(event.at),
        }
    }
    let mut found = Vec::new();
    for (client, mut said) in said {
        if !is_asked("L3", client) || client == WARM_UP {
            continue;
        }
        let mut pauses = pauses.remove(client).unwrap_or_default();
        pauses.sort();
        said.sort_unstable();
        let end = pauses.killed.unwrap_or(ended);
        said.retain(|at| *at < end);
        said.push(end);
        let silent = said.windows(2).map(|pair| {
            let silent = (pair[1] - pair[0]).saturating_sub(pauses.within(pair[0], pair[1]));
            (Duration::from_nanos(silent), pair[0])
        });
        if let Some((silent, from)) = silent.max().filter(|(silent, _)| *silent > limit) {
            let what = format!("{client} said nothing for {silent:?}, where {limit:?} is the most that it waits");
            let last = events.iter().filter(|event| event.client == client && event.at == from).cloned().collect();
            found.push(Violation { events: last, ..Violation::of_tokens("L3", what, &[]) });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_nanos(10);

    fn event(client: &str, at: u64, what: What) -> Event {
        let op = u64::from(!matches!(what, What::Stopped | What::Continued | What::Killed));
        Event { at, client: client.into(), op, what }
    }

    fn silent(events: &[Event]) -> Vec<String> {
        silence(events, 30, LIMIT).into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn who_falls_silent_is_told_from_the_stopped_and_the_dead() {
        let talks = |client: &str, ats: &[u64]| -> Vec<Event> {
            ats.iter().map(|at| event(client, *at, What::Denied)).collect()
        };
        assert_eq!(silent(&talks("worker-0-0", &[1, 11, 21])), [] as [String; 0]);
        let wedged = silent(&talks("worker-0-0", &[1, 11, 19]));
        assert!(wedged[0].starts_with("worker-0-0 said nothing for 11ns"), "{wedged:?}");
        assert_eq!(silent(&talks("worker-0-0", &[1, 12, 20])).len(), 1);

        let mut stopped = talks("worker-0-0", &[1, 5, 22]);
        stopped.extend([event("worker-0-0", 6, What::Stopped), event("worker-0-0", 14, What::Continued)]);
        assert_eq!(silent(&stopped), [] as [String; 0]);
        let mut killed = talks("worker-0-0", &[1, 5]);
        killed.push(event("worker-0-0", 6, What::Killed));
        assert_eq!(silent(&killed), [] as [String; 0]);
        assert_eq!(silent(&talks("kazoo-1-0", &[1])), [] as [String; 0]);
    }
}
