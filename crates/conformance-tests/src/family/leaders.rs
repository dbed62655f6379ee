//! An election whose leaders are killed, stopped and cut off: one at a time, and seen by all, each once and in order.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use lock_core::{Locks, Observed};

use super::crew::{Duty, Member, Note, Notes, Task, What, all, in_folder};
use super::{FamilyOptions, FamilyReport};
use crate::torture::{GRACE, Site};

const ELECTION: &str = "leader";

/// How many observe.
const OBSERVERS: usize = 2;

/// How often a leader notes that it leads.
const TICK: Duration = Duration::from_millis(10);

/// How much longer than its lease a leader that was killed may be in the way of the next, which everybody sees by then.
const SEEN: Duration = Duration::from_secs(1);

/// In a process: leads whenever it can.
pub(super) async fn campaign(locks: &Locks, lease: Duration, client: &str, mut notes: Notes) -> io::Result<()> {
    let section = async |leadership: &lock_core::Leadership| -> io::Result<()> {
        let (slot, token) = (0, leadership.fencing_token().get());
        notes.note(None, What::Begun { slot, token })?;
        loop {
            tokio::time::sleep(TICK).await;
            notes.note(None, What::GoesOn { slot, token })?;
        }
    };
    locks.election(ELECTION).lease(lease).run(client, section).await.map_err(io::Error::other)?
}

/// In a process: notes whom it sees.
pub(super) async fn observe(locks: &Locks, mut notes: Notes) -> io::Result<()> {
    let mut observer = locks.election(ELECTION).observe().map_err(io::Error::other)?;
    loop {
        let what = match observer.next().await.map_err(io::Error::other)? {
            Observed::Held(holder) => {
                let value = holder.value.map(|value| value.as_str().to_owned()).unwrap_or_default();
                What::Seen { leader: Some((lock_core::FencingToken::new(holder.token).get(), value)) }
            }
            Observed::Free => What::Seen { leader: None },
            _ => What::Blind,
        };
        notes.note(None, what)?;
    }
}

/// Has this many processes campaign, and this many of their leaders killed, stopped or cut off in turn.
///
/// # Errors
/// If a process cannot be started or does not end well, its notes cannot be read, or nobody leads in time.
///
/// # Panics
/// If there is no free port for a proxy.
pub async fn fail_overs(options: &FamilyOptions, site: Site, locks: Locks) -> io::Result<FamilyReport> {
    in_folder(&options.notes, async |folder| {
        let mut notes = Notes::of(&folder, "parent")?;
        let member = |name: String, duty: fn() -> Duty| {
            let folder = folder.clone();
            let task = move |client: &str, _: usize| Task {
                client: client.to_owned(),
                folder: folder.clone(),
                seed: 0,
                duty: duty(),
            };
            Member::new(&site, &name, options.lease, task)
        };
        let observers = (0..OBSERVERS).map(|number| member(format!("observer-{number}"), || Duty::Observer));
        let mut observers = observers.collect::<io::Result<Vec<_>>>()?;
        let crew = (0..options.processes).map(|number| member(format!("candidate-{number}"), || Duty::Candidate));
        let mut crew = crew.collect::<io::Result<Vec<_>>>()?;
        let mut observer = locks.election(ELECTION).observe().map_err(io::Error::other)?;
        let patience = options.lease * 4 + GRACE;
        let mut newest = 0;
        for round in 0..=options.rounds {
            let next = async {
                loop {
                    if let Observed::Held(holder) = observer.next().await.map_err(io::Error::other)?
                        && holder.token.get() > newest
                    {
                        return io::Result::Ok(holder);
                    }
                }
            };
            let next = tokio::time::timeout(patience, next).await;
            let leader =
                next.map_err(|_| io::Error::other(format!("nobody led {patience:?} after blow {round}")))??;
            newest = leader.token.get();
            if round == options.rounds {
                break;
            }
            let value = leader.value.map(|value| value.as_str().to_owned()).unwrap_or_default();
            let struck = crew.iter_mut().find(|member| member.client() == value);
            let struck = struck.ok_or_else(|| io::Error::other(format!("{value:?} leads, and is no candidate")))?;
            // It leads for a while.
            tokio::time::sleep(options.lease / 3).await;
            match round % 3 {
                0 => struck.kill(&mut notes).await?,
                1 if struck.has_network() => {
                    struck.cut(&mut notes)?;
                    tokio::time::sleep(options.lease * 2).await;
                    struck.connect(&mut notes)?;
                }
                _ => {
                    struck.stop(&mut notes)?;
                    tokio::time::sleep(options.lease * 2).await;
                    struck.go_on(&mut notes)?;
                }
            }
        }
        for member in crew.iter_mut().chain(&mut observers) {
            member.end().await?;
        }
        Ok(judge(&all(&folder)?, options))
    })
    .await
}

/// When an observer saw whom lead, with which value.
type Sights<'a> = Vec<(u64, Option<&'a (u64, String)>)>;

fn judge(notes: &[Note], options: &FamilyOptions) -> FamilyReport {
    let mut violations = Vec::new();
    // Of each leadership: whose, its beginning, and when it was last at work.
    let mut led: BTreeMap<u64, (&str, u64, u64)> = BTreeMap::new();
    let mut seen: BTreeMap<&str, Sights<'_>> = BTreeMap::new();
    let (mut killed, mut blows) = (Vec::new(), 0);
    // A process may be stopped between the question whether it leads and the step after it. That one step comes when it goes on:
    // it is what fencing tokens are for.
    let mut in_a_step = BTreeSet::new();
    for Note { at, client, what } in notes {
        match what {
            What::Begun { token, .. } => drop(led.insert(*token, (client, *at, *at))),
            What::GoesOn { .. } if in_a_step.remove(client) => {}
            What::GoesOn { token, .. } => led.entry(*token).or_insert((client, *at, *at)).2 = *at,
            What::Seen { leader } => seen.entry(client).or_default().push((*at, leader.as_ref())),
            What::Blind => seen.entry(client).or_default().push((*at, None)),
            What::Killed => killed.push((client.as_str(), *at)),
            What::Continued => drop(in_a_step.insert(client)),
            _ => {}
        }
        blows += usize::from(matches!(what, What::Killed | What::Stopped | What::CutOff));
    }
    let in_order: Vec<_> = led.iter().collect();
    for pair in in_order.windows(2) {
        let ((token, (one, _, last)), (next_token, (other, begun, _))) = (pair[0], pair[1]);
        if last > begun {
            violations.push(format!("{one} ({token}) and {other} ({next_token}) led at once"));
        }
    }
    let mut late = Duration::ZERO;
    for (observer, states) in &seen {
        let mut newest = None;
        for (_, leader) in states.iter().filter_map(|(at, leader)| leader.map(|leader| (at, leader))) {
            if newest.is_some_and(|newest: &(u64, String)| leader.0 < newest.0) {
                violations.push(format!("{observer} saw {leader:?} after {newest:?}"));
            }
            match led.get(&leader.0) {
                Some((client, ..)) if **client != leader.1 => {
                    violations.push(format!("{observer} saw {:?} shown by {client}", leader.1));
                }
                _ => {}
            }
            newest = Some(leader);
        }
        for (dead, at) in &killed {
            // Not one that did not lead.
            let Some((token, _)) = led.iter().rev().find(|(_, (client, begun, _))| client == dead && begun < at) else {
                continue;
            };
            let next = states.iter().find(|(_, leader)| leader.is_some_and(|leader| leader.0 > *token));
            let Some((next, _)) = next else { continue };
            let after = Duration::from_nanos(next.saturating_sub(*at));
            late = late.max(after);
            if after > options.lease + SEEN {
                violations.push(format!("{observer} saw who came after {dead} only {after:?} after it was killed"));
            }
        }
    }
    let counts = vec![
        ("leaders struck", blows),
        ("of them killed", killed.len()),
        ("leaderships", led.len()),
        ("states seen", seen.values().map(Vec::len).sum()),
    ];
    let longest = vec![("from the death of a leader to the sight of the next", late)];
    FamilyReport { counts, longest, violations, ..FamilyReport::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(at_ms: u64, client: &str, what: What) -> Note {
        Note { at: at_ms * 1_000_000, client: client.to_owned(), what }
    }

    fn leads(from_ms: u64, to_ms: u64, client: &str, token: u64) -> [Note; 2] {
        let slot = 0;
        [note(from_ms, client, What::Begun { slot, token }), note(to_ms, client, What::GoesOn { slot, token })]
    }

    fn sees(at_ms: u64, token: u64, value: &str) -> [Note; 1] {
        [note(at_ms, "observer", What::Seen { leader: Some((token, value.to_owned())) })]
    }

    fn broken(notes: &[&[Note]]) -> usize {
        let mut notes = notes.concat();
        notes.sort_by_key(|note| note.at);
        judge(&notes, &FamilyOptions::new(1, 2)).violations.len()
    }

    #[test]
    fn two_never_lead_at_once() {
        assert_eq!(broken(&[&leads(0, 10, "a", 1), &leads(11, 20, "b", 2)]), 0);
        assert_eq!(broken(&[&leads(0, 12, "a", 1), &leads(11, 20, "b", 2)]), 1);
    }

    #[test]
    fn who_was_stopped_in_the_middle_of_a_step_ends_it_and_no_more() {
        let continued = [note(15, "a", What::Continued)];
        let (one, other) = (leads(0, 16, "a", 1), leads(11, 20, "b", 2));
        assert_eq!(broken(&[&one, &continued, &other]), 0);
        assert_eq!(broken(&[&one, &continued, &other, &leads(0, 17, "a", 1)[1..]]), 1);
    }

    #[test]
    fn leaders_are_seen_in_order_with_their_values() {
        let led = [leads(0, 10, "a", 1), leads(11, 20, "b", 2)].concat();
        assert_eq!(broken(&[&led, &sees(1, 1, "a"), &sees(12, 2, "b")]), 0);
        assert_eq!(broken(&[&led, &sees(1, 2, "b"), &sees(12, 1, "a")]), 1);
        assert_eq!(broken(&[&led, &sees(1, 1, "b")]), 1);
    }

    #[test]
    fn the_next_is_seen_soon_after_a_death() {
        let led = [leads(0, 10, "a", 1), leads(1000, 3000, "b", 2)].concat();
        let killed = [note(11, "a", What::Killed)];
        assert_eq!(broken(&[&led, &killed, &sees(1900, 2, "b")]), 0);
        assert_eq!(broken(&[&led, &killed, &sees(2100, 2, "b")]), 1);
    }
}
