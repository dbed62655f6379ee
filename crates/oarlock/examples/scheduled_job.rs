//! A job that every replica is scheduled to run, and one of them does, once for each slot.
//!
//! A lock alone is not enough: it is free again after the job, and a replica that comes late would run the slot once
//! more. So the lock guards a ledger of what is done. The others wait for the lock instead of giving up as with
//! `try_lock`: if the replica that runs the job fails or dies, the next one takes over.
//!
//! ```sh
//! cargo run -p oarlock --example scheduled_job
//! ```

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oarlock::{Config, FencingToken, Locks, StaleToken};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const REPLICAS: usize = 4;
const SLOTS: u64 = 3;

/// Stands for a row in the application's database. There, `fence::sql::check` refuses who comes too late: see the example
/// `fenced_record`.
#[derive(Default)]
struct Ledger(Mutex<Row>);

#[derive(Default)]
struct Row {
    newest: u64,
    done: Vec<u64>,
    attempts: usize,
}

impl Ledger {
    /// Does something to the row on behalf of a holder, unless a later holder was here already.
    fn with<T>(&self, token: FencingToken, change: impl FnOnce(&mut Row) -> T) -> std::result::Result<T, StaleToken> {
        let mut row = self.0.lock().unwrap();
        if token.get() < row.newest {
            return Err(StaleToken { presented: token.get(), newest: row.newest });
        }
        row.newest = token.get();
        Ok(change(&mut row))
    }

    fn is_done(&self, token: FencingToken, slot: u64) -> std::result::Result<bool, StaleToken> {
        self.with(token, |row| row.done.last() >= Some(&slot))
    }

    fn complete(&self, token: FencingToken, slot: u64) -> std::result::Result<(), StaleToken> {
        self.with(token, |row| row.done.push(slot))
    }
}

/// The job itself. Its second attempt fails, whoever makes it.
async fn report(ledger: &Ledger, token: FencingToken) -> Result<()> {
    let attempt = ledger.with(token, |row| {
        row.attempts += 1;
        row.attempts
    })?;
    tokio::time::sleep(Duration::from_millis(20)).await;
    if attempt == 2 { Err("the printer is on fire".into()) } else { Ok(()) }
}

/// What each replica does when its timer for the slot fires.
async fn on_schedule(locks: &Locks, ledger: &Ledger, replica: usize, slot: u64) -> Result<()> {
    let guard = locks.mutex("examples/report").wait(Duration::from_secs(60)).lock().await?;
    let token = guard.fencing_token();
    if ledger.is_done(token, slot)? {
        println!("slot {slot}: replica {replica} finds it done");
    } else {
        // The outer error is the loss of the lock, the inner one the job's.
        match guard.run(report(ledger, token)).await? {
            Ok(()) => {
                ledger.complete(token, slot)?;
                println!("slot {slot}: replica {replica} ran the job, token {token}");
            }
            Err(error) => println!("slot {slot}: replica {replica} failed: {error}"),
        }
    }
    guard.unlock().await?;
    Ok(())
}

pub(crate) async fn demo(config: Config) -> Result<()> {
    let ledger = Arc::new(Ledger::default());
    // A slot is a minute. So that nobody has to wait for the next ones, they come at once here.
    let first = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 60;
    let slots: Vec<u64> = (first..first + SLOTS).collect();
    for &slot in &slots {
        let mut replicas = Vec::new();
        for replica in 1..=REPLICAS {
            let (config, ledger) = (config.clone(), Arc::clone(&ledger));
            replicas.push(tokio::spawn(async move {
                let locks = oarlock::connect_with(config).await?;
                on_schedule(&locks, &ledger, replica, slot).await
            }));
        }
        for replica in replicas {
            replica.await??;
        }
    }
    let row = ledger.0.lock().unwrap();
    assert_eq!(row.done, slots, "each slot is done once");
    assert_eq!(row.attempts, slots.len() + 1, "only the failure was repeated");
    println!("{REPLICAS} replicas, {SLOTS} slots: each done once, in {} attempts", row.attempts);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    demo(Config::from_env(std::env::vars_os())?).await
}
