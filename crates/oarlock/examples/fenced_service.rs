//! A service that is written to under a lock, over HTTP. It refuses a client that was paused and does not know that it
//! lost the lock: at its door, by axum, and once more with the write, by its database.
//!
//! Alice reads a balance under the lock, and her thread stands still. Her lease runs out, Bob gets the lock and writes.
//! Alice wakes up and sends what she computed from the old balance. The service has seen Bob's token, and refuses hers.
//!
//! ```sh
//! cargo run -p oarlock --example fenced_service
//! ```

use std::error::Error;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Extension, Router};
use oarlock::fence::{self, Access, MemoryMarks, http::CheckLayer};
use oarlock::{Config, ErrorKind, LockGuard, Locks};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Sqlite, SqlitePool};
use tokio::net::TcpListener;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const LOCK: &str = "examples/account";
const LEASE: Duration = Duration::from_secs(1);

/// The service. Each request that writes has passed the check of its token.
fn service(pool: SqlitePool) -> Router {
    Router::new()
        .route("/account", get(balance).put(set_balance))
        // What one lock protects has one name.
        .layer(CheckLayer::new(MemoryMarks::new()).named(|_| Some(LOCK.to_owned())))
        .with_state(pool)
}

async fn balance(State(pool): State<SqlitePool>) -> std::result::Result<String, StatusCode> {
    let balance: i64 = sqlx::query_scalar("SELECT balance FROM account").fetch_one(&pool).await.map_err(failed)?;
    Ok(balance.to_string())
}

/// A request may have stood still since it was checked. So its token goes into the transaction too.
async fn set_balance(
    State(pool): State<SqlitePool>,
    Extension(access): Extension<Access>,
    body: String,
) -> std::result::Result<(), StatusCode> {
    let balance: i64 = body.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    let mut tx = pool.begin().await.map_err(failed)?;
    fence::sql::check(&mut tx, &access).await.map_err(|error| match error.kind() {
        ErrorKind::Stale => StatusCode::CONFLICT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    })?;
    sqlx::query("UPDATE account SET balance = $1").bind(balance).execute(&mut *tx).await.map_err(failed)?;
    tx.commit().await.map_err(failed)
}

fn failed(_: sqlx::Error) -> StatusCode {
    StatusCode::INTERNAL_SERVER_ERROR
}

/// The service's client, which sends the lock's token with each request.
struct Account<'a> {
    url: &'a str,
    client: reqwest::Client,
}

impl Account<'_> {
    /// A read sends the token too: after it, no earlier holder can change what was read.
    async fn balance(&self, guard: &LockGuard) -> Result<i64> {
        Ok(self.send(guard, self.client.get(self.url)).await?.parse()?)
    }

    async fn set_balance(&self, guard: &LockGuard, balance: i64) -> Result<()> {
        self.send(guard, self.client.put(self.url).body(balance.to_string())).await?;
        Ok(())
    }

    async fn send(&self, guard: &LockGuard, request: reqwest::RequestBuilder) -> Result<String> {
        let request = request.header(fence::http::FENCING_TOKEN, fence::http::value(guard));
        let response = request.send().await?;
        fence::http::check_response(guard, response.status(), response.headers())?;
        Ok(response.error_for_status()?.text().await?)
    }
}

async fn withdraw(who: &str, locks: &Locks, account: &Account<'_>, amount: i64) -> Result<()> {
    let guard = locks.mutex(LOCK).lease(LEASE).lock().await?;
    let balance = account.balance(&guard).await? - amount;
    account.set_balance(&guard, balance).await?;
    println!("{who} has token {} and writes {balance}", guard.fencing_token());
    guard.unlock().await?;
    Ok(())
}

/// Withdraws 50, with a pause in the middle that begins with `asleep` and ends with `awake`.
#[tokio::main(flavor = "current_thread")]
async fn alice(config: Config, url: &str, asleep: Sender<()>, awake: Receiver<()>) -> Result<()> {
    let account = Account { url, client: reqwest::Client::new() };
    let locks = oarlock::connect_with(config).await?;
    let guard = locks.mutex(LOCK).lease(LEASE).lock().await?;
    let balance = account.balance(&guard).await? - 50;
    println!("Alice has token {}, is about to write {balance}, and falls asleep", guard.fencing_token());

    // This thread is all of Alice's runtime: nothing renews her lease, and nothing can tell her.
    asleep.send(())?;
    awake.recv()?;

    let refused = account.set_balance(&guard, balance).await.expect_err("a stale write must be refused");
    println!("Alice wakes up and is refused: {refused}");
    let kind = refused.downcast_ref().map(oarlock::Error::kind);
    assert_eq!(kind, Some(ErrorKind::Stale));
    drop(guard);

    withdraw("Alice", &locks, &account, 50).await
}

#[tokio::main(flavor = "current_thread")]
async fn bob(config: Config, url: &str, asleep: Receiver<()>, awake: Sender<()>) -> Result<()> {
    asleep.recv()?;
    let account = Account { url, client: reqwest::Client::new() };
    let locks = oarlock::connect_with(config).await?;
    withdraw("Bob", &locks, &account, 30).await?;
    awake.send(())?;
    Ok(())
}

pub(crate) fn demo(config: Config, folder: &Path) -> Result<()> {
    // The service has a runtime of its own, which goes on while a client stands still.
    let runtime = tokio::runtime::Runtime::new()?;
    let file = SqliteConnectOptions::new().filename(folder.join("account.db")).create_if_missing(true);
    let (pool, url) = runtime.block_on(async {
        let pool = SqlitePool::connect_with(file).await?;
        sqlx::query(fence::sql::schema::<Sqlite>()).execute(&pool).await?;
        sqlx::query("CREATE TABLE account (balance BIGINT NOT NULL)").execute(&pool).await?;
        sqlx::query("INSERT INTO account VALUES (100)").execute(&pool).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/account", listener.local_addr()?);
        let service = service(pool.clone());
        tokio::spawn(async move { axum::serve(listener, service).await });
        Ok::<_, Box<dyn Error + Send + Sync>>((pool, url))
    })?;
    let ((asleep, sleeps), (awake, wakes)) = (channel(), channel());
    let (alices, bobs) = thread::scope(|scope| {
        let alices = scope.spawn(|| alice(config.clone(), &url, asleep, wakes));
        let bobs = scope.spawn(|| bob(config.clone(), &url, sleeps, awake));
        (alices.join().expect("Alice panicked"), bobs.join().expect("Bob panicked"))
    });
    alices.and(bobs)?;
    let balance: i64 = runtime.block_on(sqlx::query_scalar("SELECT balance FROM account").fetch_one(&pool))?;
    assert_eq!(balance, 20, "neither withdrawal is lost");
    println!("100 - 50 - 30 = {balance}: no update was lost");
    Ok(())
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    demo(Config::from_env(std::env::vars_os())?, folder.path())
}
