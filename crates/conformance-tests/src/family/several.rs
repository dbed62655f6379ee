//! Processes that want some of a few locks at once, each time in another order: they never wait for each other in a
//! circle, nobody else has one of their locks meanwhile, and it costs little more than single locks in the right order.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use lock_core::Locks;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::crew::{Duty, Member, Notes, Task, What, all, in_folder};
use super::{FamilyOptions, FamilyReport};
use crate::history::monotonic;
use crate::torture::Site;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const TAKEN: usize = 3;

/// For so long they take single locks in the right order, and then several at once, in turn.
const STRETCH: Duration = Duration::from_secs(5);

/// They start together, when all are there.
const START: Duration = Duration::from_secs(2);

/// In a process: takes locks, again and again.
pub(super) async fn work(
    locks: &Locks,
    lease: Duration,
    seed: u64,
    start: u64,
    end: u64,
    mut notes: Notes,
) -> io::Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mutexes = NAMES.map(|name| locks.mutex(name).lease(lease));
    tokio::time::sleep(Duration::from_nanos(start.saturating_sub(monotonic()))).await;
    while monotonic() < end {
        let mut order: [usize; NAMES.len()] = std::array::from_fn(|at| at);
        order.shuffle(&mut rng);
        let order = &mut order[..TAKEN];
        let at_once = is_at_once(start, monotonic());
        if at_once {
            let all = locks.all(order.iter().map(|lock| NAMES[*lock])).lease(lease);
            let guard = all.lock().await.map_err(io::Error::other)?;
            let tokens = order.iter().map(|lock| {
                let token = guard.get(NAMES[*lock]).expect("it is one of them").fencing_token();
                (*lock, token.get())
            });
            section(&tokens.collect::<Vec<_>>(), at_once, &mut notes).await?;
            guard.unlock().await.map_err(io::Error::other)?;
        } else {
            order.sort_unstable();
            let mut held = Vec::new();
            for lock in &*order {
                held.push(mutexes[*lock].lock().await.map_err(io::Error::other)?);
            }
            let tokens = order.iter().zip(&held).map(|(lock, guard)| (*lock, guard.fencing_token().get()));
            section(&tokens.collect::<Vec<_>>(), at_once, &mut notes).await?;
            for guard in held {
                guard.unlock().await.map_err(io::Error::other)?;
            }
        }
    }
    // Its parent ends it.
    std::future::pending().await
}

fn is_at_once(start: u64, now: u64) -> bool {
    (now.saturating_sub(start) / STRETCH.as_nanos() as u64) % 2 == 1
}

async fn section(tokens: &[(usize, u64)], at_once: bool, notes: &mut Notes) -> io::Result<()> {
    for (lock, token) in tokens {
        notes.note(None, What::Begun { slot: *lock as u64, token: *token })?;
    }
    tokio::task::yield_now().await;
    for (lock, token) in tokens {
        notes.note(None, What::Ended { slot: *lock as u64, token: *token })?;
    }
    notes.note(None, What::Ran { slot: at_once.into(), token: 0 })
}

/// Has this many processes take 3 of 5 locks for so many stretches of five seconds each: in every other one by hand, one
/// after the other in the right order, and else all at once, named in random orders.
///
/// # Errors
/// If a process cannot be started or does not end well, or its notes cannot be read.
///
/// # Panics
/// If there is no free port for a proxy.
pub async fn several(options: &FamilyOptions, site: Site) -> io::Result<FamilyReport> {
    in_folder(&options.notes, async |folder| {
        let start = monotonic() + START.as_nanos() as u64;
        let end = start + STRETCH.as_nanos() as u64 * options.rounds;
        let crew = (0..options.processes).map(|number| {
            let (folder, seed) = (folder.clone(), options.seed ^ (number as u64) << 32);
            let task = move |client: &str, _: usize| Task {
                client: client.to_owned(),
                folder: folder.clone(),
                seed,
                duty: Duty::Several { start_ns: start, end_ns: end },
            };
            Member::new(&site, &format!("worker-{number}"), options.lease, task)
        });
        let mut crew = crew.collect::<io::Result<Vec<_>>>()?;
        tokio::time::sleep(Duration::from_nanos(end.saturating_sub(monotonic())) + options.lease).await;
        for member in &mut crew {
            member.end().await?;
        }
        report(options, &folder, (start, end))
    })
    .await
}

fn report(options: &FamilyOptions, folder: &Path, (start, end): (u64, u64)) -> io::Result<FamilyReport> {
    let mut violations = Vec::new();
    let mut inside: BTreeMap<u64, String> = BTreeMap::new();
    let mut highest: BTreeMap<u64, u64> = BTreeMap::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let (mut by_hand, mut at_once, mut longest) = (0_usize, 0_usize, 0);
    for note in all(folder)? {
        match note.what {
            What::Begun { slot, token } => {
                if let Some(other) = inside.insert(slot, note.client.clone()) {
                    violations.push(format!("{} and {other} have {}", note.client, NAMES[slot as usize]));
                }
                if highest.insert(slot, token).is_some_and(|before| before >= token) {
                    violations.push(format!("{token}, a token of {}, does not rise", NAMES[slot as usize]));
                }
            }
            What::Ended { slot, .. } => drop(inside.remove(&slot)),
            What::Ran { slot, .. } => {
                *(if slot == 1 { &mut at_once } else { &mut by_hand }) += 1;
                let before = last.insert(note.client, note.at).unwrap_or(start);
                longest = longest.max(note.at.saturating_sub(before));
            }
            _ => {}
        }
    }
    let ends = last.values().map(|at| end.saturating_sub(*at)).max();
    longest = longest.max(ends.unwrap_or(end - start));
    let waits = Duration::from_nanos(longest);
    // Nobody is killed, so nothing has to wait for the end of a lease.
    if last.len() < options.processes || waits > options.lease {
        violations.push(format!("somebody went without its locks for {waits:?}"));
    }
    if at_once * 2 < by_hand {
        violations.push("several at once are less than half as many as single locks in order".to_owned());
    }
    Ok(FamilyReport {
        counts: vec![("times 3 locks at once", at_once), ("times 3 single locks in order", by_hand)],
        longest: vec![("without its locks", waits)],
        violations,
        folder: None,
    })
}
