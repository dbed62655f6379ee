//! A bounded pool of connections. Dropping what it lends spawns nothing, so that it may be dropped anywhere; and a
//! connection whose request was given up in the middle is closed, not used again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use super::error::Dialect;
use super::life::{Life, Lives};
use super::read::caught;
use super::{ConnectionOf, OptionsOf, Statement};

/// A connection that was idle for so long is asked whether it still works.
const DOUBTFUL: Duration = Duration::from_secs(5);

/// A connection that was idle for so long is closed.
const OLD: Duration = Duration::from_secs(300);

pub(super) struct Pool<D: Dialect> {
    options: OptionsOf<D>,
    /// What a new connection is told first.
    setup: Option<Statement>,
    /// How long a connection may take to answer whether it works.
    patience: Duration,
    free: Semaphore,
    lives: Lives,
    /// Those that nobody uses, the one that was used last at the end. None: the pool is closed.
    idle: Mutex<Option<Vec<Idle<D>>>>,
}

/// A connection, and the runtime on which it was opened.
struct Opened<D: Dialect> {
    connection: ConnectionOf<D>,
    life: Arc<Life>,
}

struct Idle<D: Dialect> {
    opened: Opened<D>,
    since: Instant,
    /// Another one did not answer since.
    doubtful: bool,
}

/// Why there is no connection.
pub(super) enum NotLent {
    Closed,
    Connecting(sqlx::Error),
}

/// A connection on loan. Dropped without being given back, it is closed.
pub(super) struct Lent<'p, D: Dialect> {
    pool: &'p Pool<D>,
    opened: Opened<D>,
    was_used: bool,
    _permit: SemaphorePermit<'p>,
}

impl<D: Dialect> Pool<D>
where
    for<'c> &'c mut ConnectionOf<D>: Executor<'c, Database = D::Database>,
{
    pub(super) fn new(options: OptionsOf<D>, connections: usize, setup: Option<Statement>, patience: Duration) -> Self {
        let (options, idle) = (options.disable_statement_logging(), Mutex::new(Some(Vec::new())));
        Self { options, setup, patience, free: Semaphore::new(connections), lives: Lives::default(), idle }
    }

    fn idle(&self) -> MutexGuard<'_, Option<Vec<Idle<D>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection: one that is idle, best of all one of this runtime's, or a new one; waits while too many are in use.
    pub(super) async fn lend(&self) -> Result<Lent<'_, D>, NotLent> {
        let permit = self.free.acquire().await.map_err(|_| NotLent::Closed)?;
        while let Some(Idle { mut opened, since, doubtful }) = self.take_idle()? {
            let unused = since.elapsed();
            let works = match unused {
                _ if unused >= OLD => false,
                _ if unused < DOUBTFUL && !doubtful && opened.life.is_here() => true,
                _ => match timeout(self.patience, caught(opened.connection.ping())).await {
                    Ok(answer) => answer.is_ok(),
                    Err(_) => {
                        // The server is gone without a word, and the others lead to the same one.
                        self.forget_idle();
                        false
                    }
                },
            };
            if works {
                return Ok(Lent { pool: self, opened, was_used: true, _permit: permit });
            }
        }
        let mut connection = caught(self.options.connect()).await.map_err(NotLent::Connecting)?;
        if let Some(setup) = &self.setup {
            let setup = sqlx::raw_sql(AssertSqlSafe(Arc::clone(setup)));
            caught(connection.execute(setup)).await.map_err(NotLent::Connecting)?;
        }
        let opened = Opened { connection, life: self.lives.here() };
        Ok(Lent { pool: self, opened, was_used: false, _permit: permit })
    }

    fn take_idle(&self) -> Result<Option<Idle<D>>, NotLent> {
        let mut idle = self.idle();
        let idle = idle.as_mut().ok_or(NotLent::Closed)?;
        if let Some(ours) = idle.iter().rposition(|idle| idle.opened.life.is_here()) {
            return Ok(Some(idle.remove(ours)));
        }
        idle.retain(|idle| idle.opened.life.runs());
        Ok(idle.pop())
    }

    /// Closes those that nobody uses: one of them was found broken.
    pub(super) fn forget_idle(&self) {
        let broken = self.idle().as_mut().map(std::mem::take);
        drop(broken);
    }

    /// Those that nobody uses are asked whether they work before they are used again: one of them did not answer.
    pub(super) fn doubt_idle(&self) {
        if let Some(idle) = self.idle().as_mut() {
            idle.iter_mut().for_each(|idle| idle.doubtful = true);
        }
    }

    pub(super) async fn close(&self) {
        self.free.close();
        let idle = self.idle().take();
        for idle in idle.into_iter().flatten() {
            // It is gone either way.
            let _ = caught(idle.opened.connection.close()).await;
        }
    }
}

impl<D: Dialect> Lent<'_, D> {
    pub(super) fn connection(&mut self) -> &mut ConnectionOf<D> {
        &mut self.opened.connection
    }

    /// Was it used before? Then the server may have closed it meanwhile.
    pub(super) fn was_used(&self) -> bool {
        self.was_used
    }

    /// Its request is done, and another may use it.
    pub(super) fn give_back(self) {
        if let Some(idle) = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            idle.push(Idle { opened: self.opened, since: Instant::now(), doubtful: false });
        }
    }
}
