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
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use oarlock::{Config, ErrorKind, Lease, Locks, fence};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Sqlite, SqlitePool};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const NAME: &str = "examples/account";
const LEASE: Duration = Duration::from_secs(1);

/// A row of a database.
struct Account(SqlitePool);

impl Account {
    async fn open(file: &Path) -> Result<Self> {
        let file = SqliteConnectOptions::new().filename(file).create_if_missing(true);
        Ok(Self(SqlitePool::connect_with(file).await?))
    }

    async fn make(&self, balance: i64) -> Result<()> {
        sqlx::query(fence::sql::schema::<Sqlite>()).execute(&self.0).await?;
        sqlx::query("CREATE TABLE account (balance BIGINT NOT NULL)").execute(&self.0).await?;
        sqlx::query("INSERT INTO account VALUES ($1)").bind(balance).execute(&self.0).await?;
        Ok(())
    }

    /// A read is checked too: after it, no earlier holder can change what was read.
    async fn read(&self, lease: &Lease) -> Result<i64> {
        let mut tx = self.0.begin().await?;
        fence::sql::check(&mut tx, lease).await?;
        let balance = sqlx::query_scalar("SELECT balance FROM account").fetch_one(&mut *tx).await?;
        tx.commit().await?;
        Ok(balance)
    }

    async fn write(&self, lease: &Lease, balance: i64) -> Result<()> {
        let mut tx = self.0.begin().await?;
        fence::sql::check(&mut tx, lease).await?;
        sqlx::query("UPDATE account SET balance = $1").bind(balance).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }
}

async fn withdraw(who: &str, locks: &Locks, account: &Account, amount: i64) -> Result<()> {
    let guard = locks.mutex(NAME).lease(LEASE).lock().await?;
    let balance = account.read(&guard).await? - amount;
    account.write(&guard, balance).await?;
    println!("{who} has token {} and writes {balance}", guard.fencing_token());
    guard.unlock().await?;
    Ok(())
}

/// Withdraws 50, with a pause in the middle that begins with `asleep` and ends with `awake`.
#[tokio::main(flavor = "current_thread")]
async fn alice(config: Config, file: &Path, asleep: Sender<()>, awake: Receiver<()>) -> Result<()> {
    let account = Account::open(file).await?;
    let locks = oarlock::connect_with(config).await?;
    let guard = locks.mutex(NAME).lease(LEASE).lock().await?;
    let balance = account.read(&guard).await? - 50;
    println!("Alice has token {}, is about to write {balance}, and falls asleep", guard.fencing_token());

    // This thread is all of Alice's runtime: nothing renews her lease, and nothing can tell her.
    asleep.send(())?;
    awake.recv()?;

    let refused = account.write(&guard, balance).await.expect_err("a stale write must be refused");
    println!("Alice wakes up and is refused: {refused}");
    assert_eq!(refused.downcast_ref().map(oarlock::Error::kind), Some(ErrorKind::Stale));
    assert!(!guard.is_held(), "the first answer after a pause is right already");
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);

    withdraw("Alice", &locks, &account, 50).await
}

#[tokio::main(flavor = "current_thread")]
async fn bob(config: Config, file: &Path, asleep: Receiver<()>, awake: Sender<()>) -> Result<()> {
    asleep.recv()?;
    let account = Account::open(file).await?;
    let locks = oarlock::connect_with(config).await?;
    withdraw("Bob", &locks, &account, 30).await?;
    awake.send(())?;
    Ok(())
}

/// Looks at the balance, or makes the account with this one.
#[tokio::main(flavor = "current_thread")]
async fn bank(file: &Path, first: Option<i64>) -> Result<i64> {
    let account = Account::open(file).await?;
    if let Some(balance) = first {
        account.make(balance).await?;
    }
    Ok(sqlx::query_scalar("SELECT balance FROM account").fetch_one(&account.0).await?)
}

pub(crate) fn demo(config: Config, folder: &Path) -> Result<()> {
    let file = &folder.join("account.db");
    bank(file, Some(100))?;
    let ((asleep, sleeps), (awake, wakes)) = (channel(), channel());
    let (alices, bobs) = thread::scope(|scope| {
        let alices = scope.spawn(|| alice(config.clone(), file, asleep, wakes));
        let bobs = scope.spawn(|| bob(config.clone(), file, sleeps, awake));
        (alices.join().expect("Alice panicked"), bobs.join().expect("Bob panicked"))
    });
    alices.and(bobs)?;
    let balance = bank(file, None)?;
    assert_eq!(balance, 20, "neither withdrawal is lost");
    println!("100 - 50 - 30 = {balance}: no update was lost");
    Ok(())
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    demo(Config::from_env(std::env::vars_os())?, folder.path())
}
