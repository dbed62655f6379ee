//! A client's bell: a session that sleeps, until whoever hands a lock to one of its waiters kills the statement by which it
//! sleeps. That one waits for a lock of the server's, `oarlock_` and the client's id, which a second session has: when the
//! client dies, so does that one, and releases pass its waiters over.
//!
//! No ring is lost. One statement looks whether there are grants already, and then sleeps: a grant that is committed before it
//! looks is seen, and a ring that comes later ends it. (If who is to ring dies before it does, that costs a sleep.) It looks with no view of its own, which would keep the server from
//! clearing up while it sleeps, and so may see what is undone again; what is told is read by another statement, and is
//! committed. (To sleep by `SLEEP` would not do: in MariaDB the end of one that is killed as its time is over holds up all
//! others of the server for two seconds. Nor would one script for all: killed between two statements, it ends without a
//! word.)

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result, Slots};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};
use tokio::time::{sleep, timeout};

use super::error::MySql;
use super::statements::{SETUP, SLEEPS};
use super::{MySqlLock, hex, script};
use crate::server::{Again, Read, Said, caught};

/// When so many grants were told, or nothing more is to be told, their rows are deleted together.
const LEFT: usize = 8;

/// How long after a ring that was not heard, perhaps because nobody slept yet, is rung again at first; then longer.
const PAUSE: Duration = Duration::from_millis(10);

pub(super) struct Bell {
    connection: MySqlConnection,
    /// It has the lock that shows that the client lives. Nothing is sent over it.
    _life: MySqlConnection,
    client: String,
    /// The number of its session.
    pub(super) session: i64,
    /// It was rung when it slept last.
    was_rung: bool,
    /// The owners and tokens that it told, whose rows are there yet.
    told: Vec<(String, i64)>,
}

/// A lock that was granted, or kept: its owner, token, permits and time.
pub(super) struct Rung {
    pub(super) owner: String,
    pub(super) token: i64,
    pub(super) slots: Slots,
    pub(super) at_us: i64,
}

impl MySqlLock {
    /// A bell for this client, if it can be rung: not by another user without the right to, and not where something lends
    /// connections for a statement.
    ///
    /// # Errors
    /// There is no connection.
    pub(super) async fn hang_bell(&self, client: i64) -> Result<Option<Bell>> {
        let hanging = async {
            let mut life = self.bell.connect().await?;
            // The server would end what is idle for longer.
            let own = format!("{SETUP}, SESSION wait_timeout = 2147483; SELECT GET_LOCK('oarlock_{client}', 0)");
            life.execute(sqlx::raw_sql(AssertSqlSafe(own))).await?;
            let mut connection = self.bell.connect().await?;
            let own = format!("{SETUP}; SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED");
            connection.execute(sqlx::raw_sql(AssertSqlSafe(own))).await?;
            let session = sqlx::query_scalar::<_, u64>("SELECT CONNECTION_ID()").fetch_one(&mut connection).await?;
            Ok(Bell {
                connection,
                _life: life,
                client: client.to_string(),
                session: session.cast_signed(),
                was_rung: false,
                told: Vec::new(),
            })
        };
        let hung = timeout(self.server.timeout, caught(hanging)).await;
        let hung = hung.unwrap_or(Err(sqlx::Error::PoolTimedOut));
        let bell = hung.map_err(|error| self.unheard(error))?;
        let session = bell.session;
        let ringing = async {
            for attempt in 1.. {
                sleep(PAUSE * attempt).await;
                if self.ring(client, session).await.is_err_and(|error| error.kind() == ErrorKind::Refused) {
                    break;
                }
            }
        };
        tokio::select! {
            slept = bell.sleep(self) => slept.map(|(bell, _)| Some(bell).filter(|bell| bell.was_rung)),
            // Who may not is told so.
            () = ringing => Ok(None),
        }
    }

    /// Rings it, as others would.
    pub(super) async fn ring(&self, client: i64, session: i64) -> Result<()> {
        let values = [("{client}", &client.to_string()), ("{bell}", &session.to_string())];
        self.run(&self.statements.ring, values, 1, Again::No).await.map(drop)
    }

    fn unheard(&self, error: sqlx::Error) -> Error {
        Said::of::<MySql>(&error).connecting(&self.server.shown, error)
    }
}

impl Bell {
    /// Sleeps until it is rung, or for a while, and answers what was granted.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) async fn sleep(mut self, lock: &MySqlLock) -> Result<(Self, Vec<Rung>)> {
        if self.told.len() >= LEFT {
            self.forget_told(lock).await;
        }
        let told = self.told.iter().map(|told| format!(" AND NOT ({})", row(told))).collect::<String>();
        let (statements, values) = (&lock.statements, [("{client}", &self.client.clone()), ("{told}", &told)]);
        let slept = self.ask(lock, script(&statements.sleep, values)).await?;
        let slept =
            slept.map_or(Ok(None), |rows| rows.first().map_or(Ok(None), |row| row.read::<Option<i64>, _>(0)))?;
        self.was_rung = slept.is_none();
        if slept.is_some_and(|got| got != 0) {
            // The other session has ended.
            return Err(lock.unheard(sqlx::Error::WorkerCrashed));
        }
        let granted = self.ask(lock, script(&statements.granted, values)).await?;
        let is_quiet = !self.was_rung && granted.as_ref().is_some_and(Vec::is_empty);
        let (mut rung, mut is_safe) = (Vec::new(), true);
        for row in granted.unwrap_or_default() {
            let owner = String::from_utf8(row.read("owner")?)
                .map_err(|_| Error::new(ErrorKind::Refused, "a row has an owner that is none of ours"))?;
            let slots: Option<Vec<u8>> = row.read("slots")?;
            let slots = slots.map(|slots| Slots::from_store(&String::from_utf8_lossy(&slots))).unwrap_or_default();
            is_safe &= row.read::<i64, _>("safe")? > 0;
            rung.push(Rung { owner, token: row.read("token")?, slots, at_us: row.read("at_us")? });
        }
        let before = self.told.len();
        self.told.extend(rung.iter().map(|rung| (rung.owner.clone(), rung.token)));
        if is_quiet {
            self.forget_told(lock).await;
        } else if !is_safe && !self.forget_told(lock).await {
            // When that is on the disk, all is that was committed before it; and it may not be.
            self.told.truncate(before);
            rung.clear();
        }
        Ok((self, rung))
    }

    /// Deletes the rows of what was told. Answers whether they are gone.
    async fn forget_told(&mut self, lock: &MySqlLock) -> bool {
        let rows: Vec<_> = self.told.iter().map(row).collect();
        let is_done = rows.is_empty()
            || lock.run(&lock.statements.heard, [("{rows}", &rows.join(" OR "))], 1, Again::Yes).await.is_ok();
        if is_done {
            self.told.clear();
        }
        is_done
    }

    /// What a statement answers; nothing if it was killed.
    async fn ask(&mut self, lock: &MySqlLock, statement: String) -> Result<Option<Vec<MySqlRow>>> {
        let asking = caught(self.connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(statement))));
        let most = Duration::from_secs(SLEEPS) + lock.server.timeout;
        match timeout(most, asking).await.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
            Ok(rows) => Ok(Some(rows)),
            // By a ring, by the server's own limit for statements, or because others were in the way.
            Err(error) if matches!(number(&error), Some(1317 | 1969 | 3024 | 1020 | 1205 | 1213)) => Ok(None),
            Err(error) => Err(lock.unheard(error)),
        }
    }
}

/// The row of a grant that was told.
fn row((owner, token): &(String, i64)) -> String {
    format!("owner = {} AND token = {token}", hex(owner))
}

fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}

/// Without a word of each statement in the log.
pub(super) fn quiet(options: MySqlConnectOptions) -> Arc<MySqlConnectOptions> {
    Arc::new(options.disable_statement_logging())
}
