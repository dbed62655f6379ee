//! A cron job on three hosts whose clocks disagree, which one of them runs, once for each slot.
//!
//! A lock alone is not enough: it is free again after the job, and a host whose clock is a second behind would run the
//! job once more. So each host says for which time it was planned, the slot. All agree on that, whatever their clocks
//! say, and a slot that is done stays taken.
//!
//! The three hosts are three processes here, each with a clock of its own, and the store is a SQLite file.
//!
//! ```sh
//! cargo run -p oarlock --example once_per_slot
//! ```

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, thread};

use oarlock::blocking;
use oarlock::{FencingToken, OnceRun};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How far each host's clock is ahead, in milliseconds.
const CLOCKS: [i64; 3] = [-1_500, 0, 1_300];
/// A slot is a second, so that nobody has to wait for the next ones.
const SLOTS: u64 = 3;

/// Who a process is, if it is a host: its number, how far its clock is ahead, and the first slot.
const HOST: &str = "EXAMPLE_HOST";
/// Where the store and the ledger are.
const FOLDER: &str = "EXAMPLE_FOLDER";

/// The time, in milliseconds, by a clock that is so far ahead.
fn time(ahead: i64) -> Result<i64> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    Ok(i64::try_from(time)? + ahead)
}

/// The job itself. A real one would send the token along with what it writes.
fn report(ledger: &Path, slot: u64, token: FencingToken) -> io::Result<()> {
    thread::sleep(Duration::from_millis(50));
    OpenOptions::new().create(true).append(true).open(ledger)?.write_all(format!("{slot} {token}\n").as_bytes())
}

/// What runs on each host: at the time of each slot, by its own clock, it offers to run the job.
fn host(folder: &Path, number: usize, ahead: i64, first: u64) -> Result<()> {
    let locks = blocking::connect(&format!("sqlite:{}", folder.join("locks.db").display()))?;
    for slot in first..first + SLOTS {
        let early = i64::try_from(slot * 1_000)? - time(ahead)?;
        thread::sleep(Duration::from_millis(early.max(0).unsigned_abs()));
        // A job of which one more attempt is welcome would say `keep_on_failure(false)`.
        let job = locks.once("examples/report").slot(slot.to_string());
        match job.try_run(|lease| report(&folder.join("ledger"), slot, lease.fencing_token()))? {
            OnceRun::Ran(result) => {
                result?;
                println!("slot {slot}: host {number} (clock {ahead:+} ms) runs the job");
            }
            OnceRun::Skipped(skipped) => println!("slot {slot}: host {number} (clock {ahead:+} ms) skips: {skipped}"),
        }
    }
    Ok(())
}

/// Does the part of a host, if this process is one.
pub(crate) fn part() -> Option<Result<()>> {
    let (host_of, folder) = (env::var(HOST).ok()?, PathBuf::from(env::var_os(FOLDER)?));
    let part = || {
        let mut words = host_of.split(' ');
        let mut word = || words.next().ok_or("too few words");
        host(&folder, word()?.parse()?, word()?.parse()?, word()?.parse()?)
    };
    Some(part())
}

/// `again` starts this program once more.
pub(crate) fn demo(again: impl Fn() -> io::Result<Command>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    // When all have started, by the clock that is furthest ahead.
    let first = u64::try_from(time(2_000)?)? / 1_000 + 1;
    let mut hosts = Vec::new();
    for (number, ahead) in (1..).zip(CLOCKS) {
        let mut host = again()?;
        hosts.push(host.env(FOLDER, folder.path()).env(HOST, format!("{number} {ahead} {first}")).spawn()?);
    }
    for mut host in hosts {
        if !host.wait()?.success() {
            return Err("a host failed".into());
        }
    }
    let ledger = fs::read_to_string(folder.path().join("ledger"))?;
    let mut done: Vec<u64> = Vec::new();
    for line in ledger.lines() {
        done.push(line.split(' ').next().unwrap_or_default().parse()?);
    }
    done.sort_unstable();
    assert_eq!(done, Vec::from_iter(first..first + SLOTS), "each slot is done once");
    println!("{} hosts, {SLOTS} slots: each was run once", CLOCKS.len());
    Ok(())
}

fn main() -> Result<()> {
    match part() {
        Some(result) => result,
        None => demo(|| Ok(Command::new(env::current_exe()?))),
    }
}
