//! What PostgreSQL and MySQL have in common: a bounded pool of connections, requests that are bounded in time, and the
//! settings by which a server is reached.

mod error;
mod life;
mod many;
mod options;
mod pool;
mod read;
mod unsettled;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{Stream, TryStreamExt};
use lock_core::{Clock, Error, ErrorKind, Instant, Kept, Result};
use sqlx::{AssertSqlSafe, Connection, Database, Either, Executor, IntoArguments};

pub(crate) use error::{Answering, Dialect, Next, SHAPE, Said, fit, fit_mode, given_up};
pub(crate) use life::{Life, Lives};
#[cfg(feature = "mysql")]
pub(crate) use many::of_one_lease;
pub(crate) use many::some_at_a_time;
pub use options::ServerOptions;
pub(crate) use options::{Mode, Reached, Table, TlsMode};
use pool::Pool;
pub(crate) use read::{Read, caught};
pub(crate) use unsettled::Unsettled;
#[cfg(feature = "mysql")]
pub(crate) use unsettled::answered_together;

use crate::keys::{SENT, SWEPT};

/// A statement whose table names are filled in.
pub(crate) type Statement = Arc<str>;

/// How often is asked again what the server undid because another transaction was in the way. Where many come together,
/// such as the readers of one lock, most of them are undone several times.
const TRIES: u32 = 20;

/// Drawn, so that those who were in each other's way do not come together again; up to 64 ms in the end.
fn pause(undone: u32) -> Duration {
    Duration::from_micros(rand::random_range(0..=1000 << undone.min(6)))
}

/// A server and the connections to it.
pub(crate) struct Server<D: Dialect> {
    /// For errors, without a password.
    pub(crate) shown: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timeout: Duration,
    /// What stands around each request, if connections are another's who lends them for a transaction.
    transaction: Option<(Statement, Statement)>,
    pool: Pool<D>,
}

/// What a request was answered after it was committed, and when it was sent.
pub(crate) struct Answer<DB: Database> {
    pub(crate) sent: Instant,
    pub(crate) rows: Vec<DB::Row>,
    /// Of each statement.
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "MySQL answers by it"))]
    pub(crate) results: Vec<DB::QueryResult>,
    /// It was sent twice, and what became of the first is not known.
    pub(crate) twice: bool,
}

impl<DB: Database> Answer<DB> {
    /// What is said of a hold that was to be kept, and is not there.
    ///
    /// # Errors
    /// A first request for that may have been done, and what it kept be over.
    pub(crate) fn not_kept(&self) -> Result<Kept> {
        if self.twice { Err(Error::kept_or_not()) } else { Ok(Kept::NotHeld) }
    }
}

/// May a request be sent again if the connection it went over turns out to be broken?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    Yes,
    No,
}

/// What is sent at once.
enum Request<'r, D: Dialect> {
    /// One statement, which commits by itself.
    Statement(&'r Statement, ArgumentsOf<D>),
    /// Several, without parameters; and after how many of them the request is done, whatever becomes of the rest.
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "PostgreSQL has functions"))]
    Script { template: &'r Statement, text: String, done_after: usize },
}

impl<D: Dialect> Request<'_, D> {
    /// Without what a log must not show.
    fn shown(&self) -> &str {
        match self {
            Self::Statement(statement, _) => statement,
            Self::Script { template, .. } => template,
        }
    }
}

pub(crate) type Answered<DB> = (Vec<<DB as Database>::Row>, Vec<<DB as Database>::QueryResult>);

pub(crate) type ConnectionOf<D> = <<D as Dialect>::Database as Database>::Connection;
pub(crate) type OptionsOf<D> = <ConnectionOf<D> as Connection>::Options;
type ArgumentsOf<D> = <<D as Dialect>::Database as Database>::Arguments;

impl<D: Dialect> Server<D>
where
    for<'c> &'c mut ConnectionOf<D>: Executor<'c, Database = D::Database>,
    ArgumentsOf<D>: IntoArguments<D::Database> + Clone,
{
    pub(crate) fn new(
        options: OptionsOf<D>,
        reached: &Reached,
        setup: Option<Statement>,
        transaction: Option<(Statement, Statement)>,
    ) -> Self {
        Self {
            shown: reached.shown.clone(),
            clock: Arc::clone(&reached.clock),
            timeout: reached.timeout,
            transaction,
            pool: Pool::new(options, reached.connections, setup, reached.timeout / 4),
        }
    }

    /// The time of this process's own clock, which goes with what an owner says: what was given up and lands late does
    /// not replace what was said after it.
    pub(crate) fn said_us(&self) -> i64 {
        i64::try_from(self.clock.now().since_origin().as_micros()).unwrap_or(i64::MAX)
    }

    /// Runs a statement that commits by itself. If the future is dropped, it may still be done, and later than what is
    /// sent afterwards.
    pub(crate) async fn run(
        &self,
        statement: &Statement,
        arguments: ArgumentsOf<D>,
        again: Again,
    ) -> Result<Answer<D::Database>> {
        let request = Request::Statement(statement, arguments);
        self.run_and_tell(&request, again, || tracing::trace!(target: SENT, statement = request.shown())).await
    }

    /// Runs several statements with this text, which stand for one request; what fails after so many of them does not matter.
    #[cfg(feature = "mysql")]
    pub(crate) async fn run_script(
        &self,
        template: &Statement,
        text: String,
        done_after: usize,
        again: Again,
    ) -> Result<Answer<D::Database>> {
        let request = Request::Script { template, text, done_after };
        self.run_and_tell(&request, again, || tracing::trace!(target: SENT, statement = request.shown())).await
    }

    /// The same for a statement that is no part of a request.
    pub(crate) async fn run_beside(
        &self,
        statement: &Statement,
        arguments: ArgumentsOf<D>,
    ) -> Result<Answer<D::Database>> {
        let request = Request::Statement(statement, arguments);
        let told = || tracing::trace!(target: SWEPT, statement = request.shown());
        self.run_and_tell(&request, Again::No, told).await
    }

    async fn run_and_tell(
        &self,
        request: &Request<'_, D>,
        again: Again,
        told: impl Fn(),
    ) -> Result<Answer<D::Database>> {
        let (sent, twice) = (AtomicBool::new(false), AtomicBool::new(false));
        let running = async {
            let (mut again, mut undone) = (again == Again::Yes, 0);
            let began = self.clock.now();
            loop {
                sent.store(false, Ordering::Relaxed);
                let mut lent = self.pool.lend().await.map_err(|error| self.not_connected(error))?;
                let now = self.clock.now();
                sent.store(true, Ordering::Relaxed);
                told();
                let error = match caught(self.exchange(lent.connection(), request)).await {
                    Ok((rows, results)) => {
                        lent.give_back();
                        return Ok(Answer { sent: now, rows, results, twice: twice.load(Ordering::Relaxed) });
                    }
                    Err(error) => error,
                };
                let said = Said::of::<D>(&error);
                let was_used = lent.was_used();
                // In a transaction that failed it would be of no use to the next.
                let is_alone = self.transaction.is_none() && matches!(request, Request::Statement(..));
                if said.next != Next::Leave && is_alone {
                    lent.give_back();
                } else {
                    drop(lent);
                }
                match said.next {
                    // A row that somebody keeps costs each try a second: that ends before the time is up, with nothing under way.
                    Next::Again if undone < TRIES && self.clock.now() < began + self.timeout / 2 => {
                        tokio::time::sleep(pause(undone)).await;
                        undone += 1;
                    }
                    // The server may have closed it long ago.
                    Next::Leave if was_used && again => {
                        self.pool.forget_idle();
                        again = false;
                        twice.store(said.kind == ErrorKind::Unknown, Ordering::Relaxed);
                    }
                    _ => return Err(said.into_error(&self.shown, error)),
                }
            }
        };
        let answer = tokio::time::timeout(self.timeout, running).await;
        let answer = answer.unwrap_or_else(|_| {
            self.pool.doubt_idle();
            Err(self.too_slow(sent.into_inner()))
        });
        // Whatever became of the second, the first may have been done.
        answer.map_err(|error| if twice.into_inner() { error.after_something_was_done() } else { error })
    }

    async fn exchange(
        &self,
        connection: &mut ConnectionOf<D>,
        request: &Request<'_, D>,
    ) -> sqlx::Result<Answered<D::Database>> {
        if let Some((begin, _)) = &self.transaction {
            connection.execute(sqlx::raw_sql(AssertSqlSafe(Arc::clone(begin)))).await?;
        }
        let (mut answer, mut enough) = ((Vec::new(), Vec::new()), usize::MAX);
        let done = match request {
            Request::Statement(statement, arguments) => {
                let query = sqlx::query_with(AssertSqlSafe(Arc::clone(statement)), arguments.clone());
                read_all::<D::Database>(
                    connection.fetch_many(query.persistent(self.transaction.is_none())),
                    &mut answer,
                )
                .await
            }
            Request::Script { text, done_after, .. } => {
                enough = *done_after;
                read_all::<D::Database>(connection.fetch_many(sqlx::raw_sql(AssertSqlSafe(text.as_str()))), &mut answer)
                    .await
            }
        };
        match done {
            // Not one that says that the session has ended.
            Err(error @ sqlx::Error::Database(_))
                if answer.1.len() >= enough && Said::of::<D>(&error).next != Next::Leave => {}
            done => done?,
        }
        if let Some((_, commit)) = &self.transaction {
            connection.execute(sqlx::raw_sql(AssertSqlSafe(Arc::clone(commit)))).await?;
        }
        Ok(answer)
    }

    /// Runs several statements that take no parameters, over a connection of their own.
    pub(crate) async fn script(&self, script: &str) -> Result<()> {
        let running = async {
            let mut lent = self.pool.lend().await.map_err(|error| self.not_connected(error))?;
            let done = caught(lent.connection().execute(sqlx::raw_sql(AssertSqlSafe(script)))).await;
            done.map(drop).map_err(|error| Said::of::<D>(&error).into_error(&self.shown, error))
        };
        tokio::time::timeout(self.timeout * 4, running).await.unwrap_or_else(|_| Err(self.too_slow(true)))
    }

    fn not_connected(&self, error: pool::NotLent) -> Error {
        match error {
            pool::NotLent::Closed => Error::closed(),
            pool::NotLent::Connecting(error) => Said::of::<D>(&error).connecting(&self.shown, error),
        }
    }

    /// Closes the connections that nobody uses, and the others when their requests are done.
    pub(crate) async fn close(&self) {
        let closing = self.pool.close();
        // What does not close in time is dropped, which closes it too.
        let _ = tokio::time::timeout(self.timeout, closing).await;
    }
}

impl<D: Dialect> Server<D> {
    pub(crate) fn too_slow(&self, sent: bool) -> Error {
        let (server, limit) = (&self.shown, self.timeout);
        match sent {
            true => Error::new(
                ErrorKind::Unknown,
                format!("the server {server} did not answer within {limit:?}; look whether it is stopped or cut off"),
            ),
            false => Error::new(
                ErrorKind::Unavailable,
                format!(
                    "no connection to the server {server} within {limit:?}: it does not answer, or all of ours are in use; \
                     look whether it runs, and whether this is its port, or raise `connections`"
                ),
            ),
        }
    }
}

/// To its end: a row may come before the commit.
pub(crate) async fn read_all<DB: Database>(
    mut answers: impl Stream<Item = sqlx::Result<Either<DB::QueryResult, DB::Row>>> + Unpin,
    (rows, results): &mut Answered<DB>,
) -> sqlx::Result<()> {
    while let Some(answer) = answers.try_next().await? {
        // The driver reads what has come without a pause, so that no time-out could end what has no end.
        tokio::task::consume_budget().await;
        match answer {
            Either::Left(done) => results.push(done),
            Either::Right(row) => rows.push(row),
        }
    }
    Ok(())
}
