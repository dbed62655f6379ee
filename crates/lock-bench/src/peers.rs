//! Who takes part in a contended run: our locks over any store, and what they are measured against.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use distributed_lock_core::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::{RedisDistributedLock, RedisLockHandle, RedisLockProvider};
use lock_core::{DistributedLock, LockGuard, Locks, Mutex, RwLock, Semaphore};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo};
use rslock::LockManager;
use rustix::fs::{FlockOperation, flock};
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard};
use sqlx::{Connection, MySqlConnection, PgConnection};

/// What the processes call the locks of these crates.
pub(crate) const RSLOCK: &str = "rslock";
pub(crate) const POLLED: &str = "distributed-lock";
pub(crate) const ADVISORY: &str = "advisory";

/// What they call MySQL's own lock.
pub(crate) const GET_LOCK: &str = "get-lock";

/// The one name that all want.
pub(crate) const NAME: &str = "bench";

/// Long enough for any run.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// A lock as one process of a run uses it.
pub(crate) trait Peer {
    async fn acquire(&mut self);
    async fn release(&mut self);
}

/// The modes of [`Ours`] besides the mutex.
pub(crate) const READING: &str = "reading";
pub(crate) const READ_WRITE: &str = "read-write";
pub(crate) const PERMITS: &str = "permits";

/// So many permits there are.
pub(crate) const OF: u32 = 2;

/// Our own, over any store.
pub(crate) struct Ours {
    handle: Handle,
    guard: Option<LockGuard>,
}

enum Handle {
    Mutex(Mutex),
    Reading(RwLock),
    /// In turns: does it read next?
    ReadWrite(RwLock, bool),
    Permits(Semaphore),
}

impl Ours {
    /// Connected, as the others are before it counts. The mode is that of a mutex, nothing, or one of [`READING`],
    /// [`READ_WRITE`] and [`PERMITS`].
    pub(crate) async fn new(store: Arc<dyn DistributedLock>, mode: &str) -> Self {
        let locks = Locks::new(store);
        let other = locks.mutex(std::process::id().to_string()).lock().await.expect("free");
        other.unlock().await.expect("held");
        let rw_lock = || locks.rw_lock(NAME).expect("the store has readers");
        let handle = match mode {
            "" => Handle::Mutex(locks.mutex(NAME)),
            READING => Handle::Reading(rw_lock()),
            // Half of them begin with reading.
            READ_WRITE => Handle::ReadWrite(rw_lock(), std::process::id().is_multiple_of(2)),
            PERMITS => Handle::Permits(locks.semaphore(NAME, OF).expect("the store has permits")),
            other => panic!("no mode is called {other}"),
        };
        Self { handle, guard: None }
    }
}

impl Peer for Ours {
    async fn acquire(&mut self) {
        let guard = match &mut self.handle {
            Handle::Mutex(mutex) => mutex.lock().await,
            Handle::Reading(rw_lock) => rw_lock.read().await,
            Handle::ReadWrite(rw_lock, reads) => {
                *reads = !*reads;
                if *reads { rw_lock.write().await } else { rw_lock.read().await }
            }
            Handle::Permits(semaphore) => semaphore.acquire().await,
        };
        self.guard = Some(guard.expect("a lock"));
    }

    async fn release(&mut self) {
        self.guard.take().expect("held").unlock().await.expect("held");
    }
}

/// `flock` on a file that stays open.
pub(crate) struct Flock(File);

impl Flock {
    pub(crate) fn new(folder: &str) -> Self {
        Self(File::create(Path::new(folder).join("flock")).expect("a new file"))
    }
}

impl Peer for Flock {
    async fn acquire(&mut self) {
        flock(&self.0, FlockOperation::LockExclusive).expect("a lock");
    }

    async fn release(&mut self) {
        flock(&self.0, FlockOperation::Unlock).expect("held");
    }
}

/// What no lock over Redis can beat: a list with one element, which `BLPOP` takes and `RPUSH` gives back.
pub(crate) struct Baton(MultiplexedConnection);

impl Baton {
    pub(crate) async fn new(url: &str) -> Self {
        Self(bare_connection(url).await)
    }

    /// Puts the one element there.
    pub(crate) async fn set_down(url: &str) {
        let mut bare = bare_connection(url).await;
        redis::pipe().del(NAME).rpush(NAME, 1).exec_async(&mut bare).await.expect("a server");
    }
}

impl Peer for Baton {
    async fn acquire(&mut self) {
        redis::cmd("BLPOP").arg(NAME).arg(0).exec_async(&mut self.0).await.expect("an element");
    }

    async fn release(&mut self) {
        redis::cmd("RPUSH").arg(NAME).arg(1).exec_async(&mut self.0).await.expect("a server");
    }
}

/// The crate `rslock`, as it comes.
pub(crate) struct Rslock {
    manager: LockManager,
    guard: Option<rslock::LockGuard>,
}

impl Rslock {
    pub(crate) fn new(url: &str) -> Self {
        Self { manager: LockManager::new(vec![url]), guard: None }
    }
}

impl Peer for Rslock {
    async fn acquire(&mut self) {
        self.guard = Some(self.manager.acquire("rslock", LEASE).await.expect("a lock"));
    }

    async fn release(&mut self) {
        self.guard.take().expect("held").release().await;
    }
}

/// The crate `distributed-lock` over Redis, as it comes, but that we ask again and again: its waiting with a time-out
/// does not wait.
pub(crate) struct Polled {
    lock: RedisDistributedLock,
    held: Option<RedisLockHandle>,
}

/// Between two of those.
const POLL: Duration = Duration::from_millis(10);

impl Polled {
    pub(crate) async fn new(url: &str) -> Self {
        Self { lock: RedisLockProvider::new(url).await.expect("a server").create_lock(NAME), held: None }
    }
}

impl Peer for Polled {
    async fn acquire(&mut self) {
        loop {
            self.held = self.lock.try_acquire().await.expect("an answer");
            if self.held.is_some() {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn release(&mut self) {
        self.held.take().expect("held").release().await.expect("an answer");
    }
}

/// `sqlx`'s advisory lock of PostgreSQL, over a connection of its own.
pub(crate) struct Advisory {
    lock: PgAdvisoryLock,
    idle: Option<PgConnection>,
    held: Option<PgAdvisoryLockGuard<PgConnection>>,
}

impl Advisory {
    pub(crate) async fn new(url: &str) -> Self {
        let connection = PgConnection::connect(url).await.expect("a server");
        Self { lock: PgAdvisoryLock::new(NAME), idle: Some(connection), held: None }
    }
}

impl Peer for Advisory {
    async fn acquire(&mut self) {
        let connection = self.idle.take().expect("not held");
        self.held = Some(self.lock.acquire(connection).await.expect("a lock"));
    }

    async fn release(&mut self) {
        let released = self.held.take().expect("held").release_now().await;
        self.idle = Some(released.expect("held"));
    }
}

/// MySQL's own lock, over a connection of its own.
pub(crate) struct GetLock(MySqlConnection);

impl GetLock {
    pub(crate) async fn new(url: &str) -> Self {
        Self(MySqlConnection::connect(url).await.expect("a server"))
    }
}

impl Peer for GetLock {
    async fn acquire(&mut self) {
        let get = sqlx::query_scalar("SELECT GET_LOCK(?, ?)").bind(NAME).bind(LEASE.as_secs());
        let got: Option<i64> = get.fetch_one(&mut self.0).await.expect("an answer");
        assert_eq!(got, Some(1));
    }

    async fn release(&mut self) {
        let release = sqlx::query_scalar("SELECT RELEASE_LOCK(?)").bind(NAME);
        let released: Option<i64> = release.fetch_one(&mut self.0).await.expect("an answer");
        assert_eq!(released, Some(1));
    }
}

/// A connection as ours, by the same crate: it sends at once, and waits for an answer as long as any run takes.
pub(crate) async fn bare_connection(url: &str) -> MultiplexedConnection {
    let info = url.into_connection_info().expect("a URL");
    let info = info.set_tcp_settings(redis::io::tcp::TcpSettings::default().set_nodelay(true));
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(LEASE));
    let client = Client::open(info).expect("a URL");
    client.get_multiplexed_async_connection_with_config(&patient).await.expect("a server")
}
