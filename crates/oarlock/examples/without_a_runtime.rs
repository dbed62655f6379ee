//! A plain `main` without a runtime: threads raise a counter in a file, one at a time.
//!
//! ```sh
//! cargo run -p oarlock --example without_a_runtime
//! ```

use std::error::Error;
use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

use oarlock::Config;
use oarlock::blocking::{self, Locks};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const THREADS: u64 = 4;
const ROUNDS: u64 = 5;

/// Reads the counter and writes it again, which is wrong if two do it at a time.
fn raise(locks: &Locks, counter: &Path) -> Result<()> {
    let guard = locks.mutex("examples/counter").wait(Duration::from_secs(60)).lock()?;
    let count: u64 = fs::read_to_string(counter)?.parse()?;
    thread::sleep(Duration::from_millis(2));
    // Is it still ours, before what nobody can take back?
    guard.check()?;
    fs::write(counter, (count + 1).to_string())?;
    guard.unlock()?;
    Ok(())
}

pub(crate) fn demo(config: Config) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("oarlock-example-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let counter = folder.join("counter");
    fs::write(&counter, "0")?;
    let locks = blocking::connect_with(config)?;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| (0..ROUNDS).try_for_each(|_| raise(&locks, &counter)))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    let count: u64 = fs::read_to_string(&counter)?.parse()?;
    fs::remove_dir_all(&folder)?;
    assert_eq!(count, THREADS * ROUNDS, "no increment was lost");
    println!("{THREADS} threads, {ROUNDS} rounds: the counter is {count}");
    assert!(locks.shutdown(Duration::from_secs(2))?.unreleased.is_empty());
    Ok(())
}

fn main() -> Result<()> {
    demo(Config::from_env(std::env::vars_os())?)
}
