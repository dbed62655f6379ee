//! The task of a client with waiters: it listens for grants on a connection of its own, shows the database that the
//! client lives, and now and then looks for what no notification told.
//!
//! The connection has a session lock on the client's id. When it ends, the lock does, and releases pass this client's
//! waiters over. Whatever goes wrong, the connection is made anew, with a new id, and all waiters enter anew, in their
//! old places.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_core::{Failures, InLine, News, OwnerId, Result, Slots};
use sqlx::postgres::{PgConnectOptions, PgListener, PgNotification, PgPoolOptions};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::error::Postgres;
use super::{PostgresLock, arguments};
use crate::keys::duration;
use crate::server::{Again, Read, Said, caught};

/// How often a client that listens looks by itself, and one that does not. A client counts as living for three such
/// turns, and the second for thirty: see `lives` in `schema.sql`.
pub(super) const TURNS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(100));

/// How a notification begins that a client sends to itself.
const ECHO: &str = "echo ";

/// How one begins that tells when a hold ends, in how many microseconds: sooner than its lease would have.
const ENDS: &str = "ends ";

/// For so long a client without waiters goes on listening.
const LINGER: Duration = Duration::from_secs(60);

/// How many locks one statement looks at: it keeps others from deciding about them meanwhile.
const AT_ONCE: usize = 100;

/// Listens and looks until nobody has waited for some time.
pub(super) async fn keep_watching(lock: PostgresLock) {
    let mut failures = Failures::default();
    while let Err(failed) = lock.watch(&mut failures).await {
        lock.be_known_as(0);
        if !lock.waiters.try_again_after(&mut failures, &failed).await {
            return;
        }
    }
}

impl PostgresLock {
    /// Listens and looks over one connection. It ends well when nobody has waited for some time.
    async fn watch(&self, failures: &mut Failures) -> Result<()> {
        let client = (rand::random::<u64>() >> 1) as i64 | 1;
        let mut listener = match &self.listens {
            Some(options) => Some(self.listen(options, client).await?),
            None => None,
        };
        let turn = if listener.is_some() { TURNS.0 } else { TURNS.1 };
        let hears = listener.is_some();
        self.look(client, hears, false).await?;
        self.be_known_as(client);
        self.waiters.enter_anew(None);
        let mut waited_for = tokio::time::Instant::now();
        let (mut asked, mut heard_of) = (0_u64, 0);
        loop {
            tokio::select! {
                heard = caught(hear(&mut listener)) => {
                    let heard = heard.map_err(|error| self.deaf(error))?;
                    match heard.payload().strip_prefix(ECHO) {
                        Some(number) => heard_of = number.parse().unwrap_or(heard_of),
                        None => self.notified(heard.payload()),
                    }
                }
                () = self.waiters.due(turn) => {
                    if self.waiters.anybody() {
                        waited_for = tokio::time::Instant::now();
                    } else if waited_for.elapsed() > LINGER && self.waiters.is_over() {
                        return Ok(());
                    }
                    // First, and over another connection: where the one that listens is dead, its time-out comes on top.
                    self.look(client, hears, true).await?;
                    if let Some(listener) = &mut listener {
                        if heard_of < asked {
                            return Err(self.deaf(sqlx::Error::WorkerCrashed));
                        }
                        asked += 1;
                        self.call_oneself(listener, client, asked).await?;
                    }
                    failures.forget();
                }
            }
        }
    }

    /// The id by which the database knows this client, once it does.
    pub(super) fn known_as(&self) -> Option<i64> {
        Some(self.client.load(Ordering::SeqCst)).filter(|&client| client != 0)
    }

    pub(super) fn be_known_as(&self, client: i64) {
        self.client.store(client, Ordering::SeqCst);
    }

    /// A notification came: "place token time", or when a hold ends.
    fn notified(&self, payload: &str) {
        if let Some(left) = payload.strip_prefix(ENDS).and_then(|left| left.parse().ok()) {
            return self.waiters.look_after(duration(left));
        }
        let mut numbers = payload.split(' ').map(str::parse);
        if let (Some(Ok(place)), Some(Ok(token)), Some(Ok(at_us))) = (numbers.next(), numbers.next(), numbers.next()) {
            let arrived = self.server.clock.now();
            self.waiters
                .tell(place as u64, News::Granted { token: token as u64, slots: Slots::default(), at_us, arrived });
        }
    }

    async fn listen(&self, options: &PgConnectOptions, client: i64) -> Result<Listener> {
        let listening = async {
            let pool = PgPoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
            let pool = pool.connect_with(options.clone()).await?;
            let mut listener = Listener(Some(PgListener::connect_with(&pool).await?));
            let inner = listener.0.as_mut().expect("it is there until it is dropped");
            inner.eager_reconnect(false);
            sqlx::query("SELECT pg_advisory_lock($1)").bind(client).execute(&mut *inner).await?;
            inner.listen(&format!("oarlock_{client}")).await?;
            Ok(listener)
        };
        match timeout(self.timeout, caught(listening)).await {
            Ok(listening) => {
                listening.map_err(|error| Said::of::<Postgres>(&error).connecting(&self.server.shown, error))
            }
            Err(_) => Err(self.deaf(sqlx::Error::PoolTimedOut)),
        }
    }

    /// Sends a notification over the connection that listens, to be heard there: nothing else is ever sent on it, and where
    /// a network forgets it, neither side is told.
    async fn call_oneself(&self, listener: &mut Listener, client: i64, number: u64) -> Result<()> {
        let Some(inner) = listener.0.as_mut() else { return Ok(()) };
        let channel = format!("oarlock_{client}");
        let calling =
            sqlx::query("SELECT pg_notify($1, $2)").bind(channel).bind(format!("{ECHO}{number}")).execute(inner);
        // By then an answer that was sent is here, unless the network swallowed it.
        match timeout(self.timeout / 4, caught(calling)).await {
            Ok(called) => called.map(drop).map_err(|error| self.deaf(error)),
            Err(_) => Err(self.deaf(sqlx::Error::PoolTimedOut)),
        }
    }

    fn deaf(&self, error: sqlx::Error) -> lock_core::Error {
        Said::of::<Postgres>(&error).connecting(&self.server.shown, error)
    }

    /// Shows that this client lives, and looks at what is waited for.
    async fn look(&self, client: i64, hears: bool, at_waiters: bool) -> Result<()> {
        let mut watched = if at_waiters { self.waiters.watched() } else { Vec::new() };
        loop {
            let rest = watched.split_off(watched.len().min(AT_ONCE));
            let keys: Vec<_> = watched.iter().map(|one| one.key.as_str()).collect();
            let owners: Vec<_> = watched.iter().map(|one| one.owner.as_str()).collect();
            let arguments = arguments!(client, hears, keys, owners);
            let answer = self.server.run(&self.statements.look, arguments, Again::Yes).await?;
            let mut looked = None;
            for (one, row) in watched.iter().zip(&answer.rows) {
                looked = Some(InLine { sent: answer.sent, store_us: row.read("now_us")? });
                let holder: Option<&str> = row.read("holder")?;
                if let (Some(holder), Some(token), Some(since)) =
                    (holder, row.read::<Option<i64>, _>("given")?, row.read("from_us")?)
                {
                    // If that is one of ours, its notification was lost.
                    let told = News::Granted {
                        token: token as u64,
                        slots: Slots::default(),
                        at_us: since,
                        arrived: answer.sent,
                    };
                    self.waiters.tell_owner(&OwnerId::from_store(holder), told);
                }
                if !row.read::<bool, _>("in_line")? && holder != Some(one.owner.as_str()) {
                    self.waiters.enter_anew(Some(&one.key));
                }
                if let Some(left) = row.read::<Option<i64>, _>("left_us")?.filter(|_| holder.is_some()) {
                    self.waiters.look_after(duration(left));
                }
            }
            looked.into_iter().for_each(|looked| self.waiters.looked(looked));
            if rest.is_empty() {
                return Ok(());
            }
            watched = rest;
        }
    }
}

/// A listener that may be dropped anywhere: outside a runtime, where the driver would panic, its connection is left to
/// the end of the process.
struct Listener(Option<PgListener>);

impl Drop for Listener {
    fn drop(&mut self) {
        if Handle::try_current().is_err() {
            std::mem::forget(self.0.take());
        }
    }
}

/// The next notification; never one if we do not listen.
async fn hear(listener: &mut Option<Listener>) -> sqlx::Result<PgNotification> {
    let Some(listener) = listener.as_mut().and_then(|listener| listener.0.as_mut()) else {
        return std::future::pending().await;
    };
    match listener.try_recv().await? {
        Some(notification) => Ok(notification),
        // The connection was lost, and what it carried.
        None => Err(sqlx::Error::WorkerCrashed),
    }
}
