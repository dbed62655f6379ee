//! A job that many processes want to run for each slot, while some are killed and some are stopped: one run for each.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use lock_core::{ErrorKind, Locks, OnceRun};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::crew::{Duty, Member, Note, Notes, Task, What, all, in_folder, last};
use super::{FamilyOptions, FamilyReport};
use crate::history::monotonic;
use crate::torture::Site;

/// Slots are so far apart, and the clocks of the processes differ by that much.
const APART: Duration = Duration::from_secs(1);

/// How long a job takes at most. Most slots have one that runs long enough to be struck.
const JOB: Duration = Duration::from_millis(700);

pub(super) struct Times {
    pub(super) first_ns: u64,
    pub(super) apart: Duration,
    pub(super) slots: u64,
}

impl Times {
    fn begin(&self, slot: u64) -> u64 {
        self.first_ns + self.apart.as_nanos() as u64 * slot
    }
}

/// In a process: runs the job for each slot unless another does, and asks again until it was done.
pub(super) async fn work(locks: &Locks, lease: Duration, seed: u64, times: &Times, mut notes: Notes) -> io::Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    // Who takes another's place begins with the slot that is due.
    let due = monotonic().saturating_sub(times.first_ns) / times.apart.as_nanos() as u64;
    for slot in due..times.slots {
        let late = Duration::from_nanos(rng.random_range(0..times.apart.as_nanos() as u64));
        let at = times.begin(slot) + late.as_nanos() as u64;
        tokio::time::sleep(Duration::from_nanos(at.saturating_sub(monotonic()))).await;
        let job = locks.once("job").slot(slot.to_string()).lease(lease);
        loop {
            let takes = Duration::from_nanos(rng.random_range(0..JOB.as_nanos() as u64));
            let section = async |lease: lock_core::Lease| {
                let token = lease.fencing_token().get();
                notes.note(None, What::Begun { slot, token })?;
                tokio::time::sleep(takes).await;
                notes.note(None, What::Ended { slot, token })?;
                io::Result::Ok(token)
            };
            match job.try_run(section).await {
                Ok(OnceRun::Ran(ran)) => {
                    notes.note(None, What::Ran { slot, token: ran? })?;
                    break;
                }
                Ok(OnceRun::Skipped(skipped)) if skipped.done => break,
                Ok(OnceRun::Skipped(skipped)) => tokio::time::sleep(skipped.remaining.min(lease / 4)).await,
                Err(error) if error.kind() == ErrorKind::Lost => {}
                Err(_) => tokio::time::sleep(lease / 50).await,
            }
        }
    }
    Ok(())
}

/// Has this many processes want to run a job for each of this many slots, a second apart, while one of them, most often the
/// one that runs it, is killed or stopped now and then.
///
/// # Errors
/// If a process cannot be started or does not end well, or its notes cannot be read.
///
/// # Panics
/// If there is no free port for a proxy.
pub async fn slots(options: &FamilyOptions, site: Site) -> io::Result<FamilyReport> {
    in_folder(&options.notes, async |folder| {
        let mut notes = Notes::of(&folder, "parent")?;
        let first_ns = monotonic() + APART.as_nanos() as u64 * 2;
        let slots = options.rounds;
        let mut crew = Vec::new();
        for number in 0..options.processes {
            let (folder, seed) = (folder.clone(), options.seed);
            let task = move |client: &str, successor: usize| Task {
                client: client.to_owned(),
                folder: folder.clone(),
                seed: seed ^ (number as u64) << 32 ^ successor as u64,
                duty: Duty::Slots { first_ns, apart_ms: APART.as_millis() as u64, slots },
            };
            crew.push(Member::new(&site, &format!("runner-{number}"), options.lease, task)?);
        }
        let mut rng = StdRng::seed_from_u64(options.seed);
        let end = first_ns + APART.as_nanos() as u64 * slots;
        while monotonic() < end {
            let pause = rng.random_range(APART.as_nanos() as u64 / 4..APART.as_nanos() as u64 * 2);
            tokio::time::sleep(Duration::from_nanos(pause)).await;
            let runs = |member: &Member| matches!(last(&folder, &member.client()), Some(What::Begun { .. }));
            let runner = crew.iter().position(runs).filter(|_| rng.random_ratio(3, 4));
            let member = &mut crew[runner.unwrap_or_else(|| rng.random_range(0..options.processes))];
            if rng.random_ratio(1, 2) {
                member.kill(&mut notes).await?;
            } else {
                member.stop(&mut notes)?;
                tokio::time::sleep(options.lease * 2).await;
                member.go_on(&mut notes)?;
            }
        }
        for member in &mut crew {
            let patience = options.lease * 5 + Duration::from_secs(30);
            let well = tokio::time::timeout(patience, member.ended()).await.unwrap_or(Ok(false))?;
            if !well {
                return Err(io::Error::other(format!("{} did not end well", member.client())));
            }
        }
        Ok(judge(&all(&folder)?, slots))
    })
    .await
}

/// What was noted of one run.
#[derive(Debug, Default)]
struct Run {
    client: String,
    begun: u64,
    ended: Option<u64>,
    confirmed: bool,
}

fn judge(notes: &[Note], slots: u64) -> FamilyReport {
    // By slot and token.
    let mut runs: BTreeMap<(u64, u64), Run> = BTreeMap::new();
    let (mut killed, mut stopped) = (Vec::new(), Vec::new());
    for Note { at, client, what } in notes {
        match *what {
            What::Begun { slot, token } => {
                let run = Run { client: client.clone(), begun: *at, ..Run::default() };
                runs.insert((slot, token), run);
            }
            What::Ended { slot, token } => runs.entry((slot, token)).or_default().ended = Some(*at),
            What::Ran { slot, token } => runs.entry((slot, token)).or_default().confirmed = true,
            What::Killed => killed.push((client.as_str(), *at)),
            What::Stopped => stopped.push((client.as_str(), *at)),
            _ => {}
        }
    }
    let mut violations = Vec::new();
    let mut again = 0;
    for slot in 0..slots {
        let of: Vec<_> = runs.range((slot, 0)..=(slot, u64::MAX)).map(|(_, run)| run).collect();
        let confirmed = of.iter().filter(|run| run.confirmed).count();
        // Who was killed before it was told so may have done it.
        let perhaps =
            of.iter().filter(|run| killed.iter().any(|(client, at)| *client == run.client && *at >= run.begun));
        let perhaps = perhaps.count();
        if confirmed > 1 || confirmed + perhaps == 0 {
            violations.push(format!("slot {slot} was run {confirmed} times: {of:?}"));
        }
        again += of.len().saturating_sub(1);
        for pair in of.windows(2) {
            // A stopped process may have been in the middle of its note.
            let was_stopped = stopped.iter().any(|(client, at)| *client == pair[0].client && *at >= pair[0].begun);
            if pair[0].ended.is_some_and(|ended| ended > pair[1].begun) && !was_stopped {
                violations.push(format!("in slot {slot} two ran at once: {pair:?}"));
            }
        }
    }
    let counts = vec![
        ("slots", slots as usize),
        ("runs", runs.len()),
        ("runs of slots whose runner had been struck", again),
        ("processes killed", killed.len()),
        ("processes stopped", stopped.len()),
    ];
    FamilyReport { counts, violations, ..FamilyReport::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(at: u64, client: &str, what: What) -> Note {
        Note { at, client: client.to_owned(), what }
    }

    fn run(at: u64, client: &str, token: u64) -> [Note; 3] {
        let slot = 0;
        [
            note(at, client, What::Begun { slot, token }),
            note(at + 2, client, What::Ended { slot, token }),
            note(at + 3, client, What::Ran { slot, token }),
        ]
    }

    fn broken(notes: &[&[Note]]) -> usize {
        judge(&notes.concat(), 1).violations.len()
    }

    #[test]
    fn a_slot_is_run_once() {
        assert_eq!(broken(&[&run(10, "a", 1)]), 0);
        assert_eq!(broken(&[]), 1);
        assert_eq!(broken(&[&run(10, "a", 1), &run(20, "b", 2)]), 1);
        assert_eq!(broken(&[&run(10, "a", 1), &run(11, "b", 2)]), 2);
    }

    #[test]
    fn who_was_killed_may_have_done_it_or_not() {
        let killed = [note(14, "a", What::Killed)];
        assert_eq!(broken(&[&run(10, "a", 1)[..2], &killed]), 0);
        assert_eq!(broken(&[&run(10, "a", 1)[..1], &killed, &run(20, "b", 2)]), 0);
        assert_eq!(broken(&[&run(10, "a", 1)[..1]]), 1);
    }
}
