//! A session: a connection over which one lock at a time is asked for and held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::Error;
use sqlx::{ConnectOptions, Connection};
use tokio::time::{Instant, timeout};

use crate::keys::SENT;
use crate::server::{
    Answered, ConnectionOf, Dialect, Life, Next, OptionsOf, Said, Server, Statement, caught, read_all,
};

/// A session that was idle for so long is asked whether it still works, and has so long for its answer.
const DOUBTFUL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(500));

/// A session that was idle for so long is closed.
const OLD: Duration = Duration::from_secs(300);

/// One of a server of this kind, which has told which one it is.
pub(crate) struct Session<D: Dialect, I> {
    connection: ConnectionOf<D>,
    pub(crate) identity: I,
    /// After so long without a request, the server ends it.
    pub(crate) idle: Duration,
    life: Arc<Life>,
    since: Instant,
    /// A request was given up, and its answer may still come. The next request reads it first.
    unread: bool,
    /// How many marks were made.
    #[cfg(feature = "postgres")]
    marks: u32,
}

impl<D: Dialect, I: fmt::Debug> fmt::Debug for Session<D, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl<D: Dialect, I> Session<D, I> {
    /// Connects. Which session it is has to be asked yet, and until then is this.
    pub(crate) async fn connect(
        options: &OptionsOf<D>,
        life: Arc<Life>,
        idle: Duration,
        identity: I,
    ) -> sqlx::Result<Self> {
        let connection = caught(options.connect()).await?;
        let since = Instant::now();
        Ok(Self {
            connection,
            identity,
            idle,
            life,
            since,
            unread: false,
            #[cfg(feature = "postgres")]
            marks: 0,
        })
    }

    /// Sends this text as one message, which the server reads as a whole or not at all: a session of which only half a
    /// request arrived would not be idle. If the future is dropped, it may still be done, but before what is asked
    /// next.
    pub(crate) async fn ask(&mut self, shown: &Statement, text: String) -> sqlx::Result<Answered<D::Database>> {
        tracing::trace!(target: SENT, statement = &**shown);
        let was_unread = std::mem::replace(&mut self.unread, true);
        let mut answer = (Vec::new(), Vec::new());
        caught(read_all::<D::Database>(D::ask(&mut self.connection, text), &mut answer)).await?;
        self.unread = was_unread;
        Ok(answer)
    }

    /// The same in bounded time.
    pub(crate) async fn ask_in_time(
        &mut self,
        server: &Server<D>,
        shown: &Statement,
        text: String,
    ) -> Result<Answered<D::Database>, Failed> {
        match timeout(server.timeout, self.ask(shown, text)).await {
            Ok(answer) => answer.map_err(|error| Failed::of::<D>(error, &server.shown)),
            Err(_) => Err(server.too_slow(true).into()),
        }
    }

    /// What a request may begin with, so that others see whether the session has come to it.
    #[cfg(feature = "postgres")]
    pub(crate) fn mark(&mut self) -> String {
        self.marks += 1;
        format!("/*{}*/", self.marks)
    }

    /// Can it be asked anything? Not if its runtime has ended.
    pub(crate) fn works(&self) -> bool {
        self.life.runs()
    }

    /// May another lock be asked for over it? Not if a request of it was ever given up.
    pub(super) fn is_clean(&self) -> bool {
        !self.unread && self.works()
    }

    /// Is it of no use to whoever comes next, or soon to be ended by the server?
    pub(super) fn is_old(&self) -> bool {
        self.since.elapsed() >= OLD.min(self.idle / 2) || !self.is_clean()
    }

    pub(super) fn is_of_here(&self) -> bool {
        self.life.is_here()
    }

    /// From now on nobody uses it.
    pub(super) fn rests(&mut self) {
        self.since = Instant::now();
    }

    /// Asks whether it works, if it was idle for long.
    pub(super) async fn still_works(&mut self) -> bool {
        self.since.elapsed() < DOUBTFUL.0
            || timeout(DOUBTFUL.1, caught(self.connection.ping().boxed())).await.is_ok_and(|answer| answer.is_ok())
    }

    pub(super) async fn close(self) {
        // It is gone either way.
        let _ = timeout(DOUBTFUL.1, caught(self.connection.close().boxed())).await;
    }
}

/// Why a session did not answer, and whether it is of no use any more.
pub(crate) struct Failed {
    pub(crate) error: Error,
    pub(crate) broken: bool,
}

impl Failed {
    pub(crate) fn of<D: Dialect>(error: sqlx::Error, shown: &str) -> Self {
        let said = Said::of::<D>(&error);
        Self { error: said.into_error(shown, error), broken: said.next == Next::Leave }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, broken: false }
    }
}
