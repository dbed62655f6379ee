//! A record that is written with the fencing token of the lock, so that a writer that was paused and does not know that
//! it lost the lock is refused.
//!
//! Alice reads the balance under the lock, and her thread stands still, as in a long garbage collection or in a virtual
//! machine that is moved. Her lease runs out, Bob gets the lock and writes. Alice wakes up and writes what she computed
//! from the old balance. No lock can hold her back then; the record can.
//!
//! ```sh
//! cargo run -p oarlock --example fenced_record
//! ```

use std::error::Error;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use oarlock::{Config, ErrorKind, FencingToken, Locks, StaleToken};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const NAME: &str = "examples/account";
const LEASE: Duration = Duration::from_secs(1);

/// Stands for a row of a database. A write is one statement there:
/// `UPDATE account SET balance = :balance, token = :token WHERE id = 1 AND token <= :token`.
struct Account(Mutex<Row>);

struct Row {
    balance: i64,
    newest: u64,
}

impl Row {
    fn check(&mut self, token: FencingToken) -> std::result::Result<(), StaleToken> {
        if token.get() < self.newest {
            return Err(StaleToken { presented: token.get(), newest: self.newest });
        }
        self.newest = token.get();
        Ok(())
    }
}

impl Account {
    /// A read presents the token too: after it, no earlier holder can change what was read.
    fn read(&self, token: FencingToken) -> std::result::Result<i64, StaleToken> {
        let mut row = self.0.lock().unwrap();
        row.check(token)?;
        Ok(row.balance)
    }

    fn write(&self, token: FencingToken, balance: i64) -> std::result::Result<(), StaleToken> {
        let mut row = self.0.lock().unwrap();
        row.check(token)?;
        row.balance = balance;
        Ok(())
    }
}

async fn withdraw(who: &str, locks: &Locks, account: &Account, amount: i64) -> Result<()> {
    let guard = locks.mutex(NAME).lease(LEASE).lock().await?;
    let token = guard.fencing_token();
    let balance = account.read(token)? - amount;
    account.write(token, balance)?;
    println!("{who} has token {token} and writes {balance}");
    guard.unlock().await?;
    Ok(())
}

/// Withdraws 50, with a pause in the middle that begins with `asleep` and ends with `awake`.
#[tokio::main(flavor = "current_thread")]
async fn alice(config: Config, account: &Account, asleep: Sender<()>, awake: Receiver<()>) -> Result<()> {
    let locks = oarlock::connect_with(config).await?;
    let guard = locks.mutex(NAME).lease(LEASE).lock().await?;
    let token = guard.fencing_token();
    let balance = account.read(token)? - 50;
    println!("Alice has token {token}, is about to write {balance}, and falls asleep");

    // This thread is all of Alice's runtime: nothing renews her lease, and nothing can tell her.
    asleep.send(())?;
    awake.recv()?;

    let refused = account.write(token, balance).expect_err("a stale write must be refused");
    println!("Alice wakes up and is refused: {refused}");
    assert!(!guard.is_held(), "the first answer after a pause is right already");
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);

    withdraw("Alice", &locks, account, 50).await
}

#[tokio::main(flavor = "current_thread")]
async fn bob(config: Config, account: &Account, asleep: Receiver<()>, awake: Sender<()>) -> Result<()> {
    asleep.recv()?;
    let locks = oarlock::connect_with(config).await?;
    withdraw("Bob", &locks, account, 30).await?;
    awake.send(())?;
    Ok(())
}

pub(crate) fn demo(config: Config) -> Result<()> {
    let account = Account(Mutex::new(Row { balance: 100, newest: 0 }));
    let ((asleep, sleeps), (awake, wakes)) = (channel(), channel());
    let (alices, bobs) = thread::scope(|scope| {
        let alices = scope.spawn(|| alice(config.clone(), &account, asleep, wakes));
        let bobs = scope.spawn(|| bob(config.clone(), &account, sleeps, awake));
        (alices.join().expect("Alice panicked"), bobs.join().expect("Bob panicked"))
    });
    alices.and(bobs)?;
    let balance = account.0.lock().unwrap().balance;
    assert_eq!(balance, 20, "neither withdrawal is lost");
    println!("100 - 50 - 30 = {balance}: no update was lost");
    Ok(())
}

fn main() -> Result<()> {
    demo(Config::from_env(std::env::vars_os())?)
}
