//! A bounded pool of connections. Dropping what it lends spawns nothing, so that it may be dropped anywhere; and a
//! connection whose request was given up in the middle is closed, not used again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::Background;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use tokio::runtime::{self, Handle};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use super::error::Dialect;
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
    /// None: the pool is closed.
    shelf: Mutex<Option<Shelf<D>>>,
}

struct Shelf<D: Dialect> {
    /// The connections that nobody uses, the one that was used last at the end.
    idle: Vec<Idle<D>>,
    /// On each runtime on which some were opened, a task that does nothing: it ends with that runtime.
    lives: HashMap<runtime::Id, Background>,
}

/// A connection, which works only as long as the runtime on which it was opened.
struct Opened<D: Dialect> {
    connection: ConnectionOf<D>,
    runtime: runtime::Id,
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
        let shelf = Mutex::new(Some(Shelf { idle: Vec::new(), lives: HashMap::new() }));
        Self { options: options.disable_statement_logging(), setup, patience, free: Semaphore::new(connections), shelf }
    }

    fn shelf(&self) -> MutexGuard<'_, Option<Shelf<D>>> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection: one that is idle, best of all one of this runtime's, or a new one; waits while too many are in use.
    pub(super) async fn lend(&self) -> Result<Lent<'_, D>, NotLent> {
        let permit = self.free.acquire().await.map_err(|_| NotLent::Closed)?;
        let here = Handle::current().id();
        while let Some(Idle { mut opened, since, doubtful }) = self.take_idle(here)? {
            let unused = since.elapsed();
            let works = match unused {
                _ if unused >= OLD => false,
                _ if unused < DOUBTFUL && !doubtful && opened.runtime == here => true,
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
        if let Some(shelf) = self.shelf().as_mut() {
            let life = shelf.lives.entry(here).or_default();
            if !life.runs() {
                life.start(std::future::pending());
            }
        }
        let opened = Opened { connection, runtime: here };
        Ok(Lent { pool: self, opened, was_used: false, _permit: permit })
    }

    fn take_idle(&self, here: runtime::Id) -> Result<Option<Idle<D>>, NotLent> {
        let mut shelf = self.shelf();
        let Shelf { idle, lives } = shelf.as_mut().ok_or(NotLent::Closed)?;
        if let Some(ours) = idle.iter().rposition(|idle| idle.opened.runtime == here) {
            return Ok(Some(idle.remove(ours)));
        }
        lives.retain(|_, life| life.runs());
        idle.retain(|idle| lives.contains_key(&idle.opened.runtime));
        Ok(idle.pop())
    }

    /// Closes those that nobody uses: one of them was found broken.
    pub(super) fn forget_idle(&self) {
        let broken = self.shelf().as_mut().map(|shelf| std::mem::take(&mut shelf.idle));
        drop(broken);
    }

    /// Those that nobody uses are asked whether they work before they are used again: one of them did not answer.
    pub(super) fn doubt_idle(&self) {
        if let Some(shelf) = self.shelf().as_mut() {
            shelf.idle.iter_mut().for_each(|idle| idle.doubtful = true);
        }
    }

    pub(super) async fn close(&self) {
        self.free.close();
        let shelf = self.shelf().take();
        for idle in shelf.into_iter().flat_map(|shelf| shelf.idle) {
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
        if let Some(shelf) = self.pool.shelf.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            shelf.idle.push(Idle { opened: self.opened, since: Instant::now(), doubtful: false });
        }
    }
}
