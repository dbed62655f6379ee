//! The sessions of a client: one for all leases of about the same length, made when it is first asked for, and anew
//! when it is over.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lock_core::{Error, Instant, Notice, OwnerId, Result};
use tokio::runtime::Handle;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use crate::error;
use crate::kept::Keeping;
use crate::options::Settings;
use crate::session::{Life, Session};
use crate::supervise::{mourn, supervise};

/// The longest that can be asked for: milliseconds in 32 bits.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

/// How many sessions stay in which there is no claim. Each is a connection, and servers take 60 of one host.
const SPARE: usize = 4;

/// How long a session lasts that a claim of this lease uses: up to a tenth more, so that a program whose leases are all
/// different, such as the time to a deadline, has few sessions.
fn rounded(lease: Duration) -> Duration {
    let lease = lease.as_millis();
    let most = lease / 10;
    let steps = (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u128.pow(power)));
    let step = steps.take_while(|step| *step <= most).last().unwrap_or(1);
    Duration::from_millis(u64::try_from(lease.div_ceil(step) * step).unwrap_or(u64::MAX))
}

pub(crate) struct Sessions {
    pub(crate) settings: Arc<Settings>,
    /// The shortest session that the servers give, as far as they were asked.
    pub(crate) shortest: Duration,
    /// The longest, once one was asked for that they do not give.
    pub(crate) longest: OnceLock<Duration>,
    state: Mutex<State>,
    /// Held by who connects. On this runtime sessions live, and not on that of whoever asks: they end with theirs.
    connecting: tokio::sync::Mutex<Handle>,
    pub(crate) notices: broadcast::Sender<Notice>,
    /// What was kept by this client.
    pub(crate) kept: Keeping,
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    /// By what was asked for.
    live: BTreeMap<Duration, Supervised>,
    /// Over, with claims that may have left something behind.
    former: Vec<Supervised>,
}

struct Supervised {
    session: Arc<Session>,
    task: JoinHandle<()>,
    /// When it was last asked for.
    used: Instant,
}

impl Supervised {
    fn new(session: Session, notices: broadcast::Sender<Notice>, home: &Handle) -> Self {
        let session = Arc::new(session);
        Self { task: home.spawn(supervise(Arc::clone(&session), notices)), used: session.now(), session }
    }

    fn is_retired(&self) -> bool {
        self.session.retired.load(Ordering::Relaxed)
    }

    fn is_unused(&self) -> bool {
        self.session.state().claims.is_empty()
    }

    /// Nothing is left to release: nobody has a claim in it, or the servers have ended it with all that was in it. That
    /// holds have ended was told then, and nobody releases those.
    fn is_left(&self) -> bool {
        self.is_unused() || self.session.life() == Life::Buried
    }

    /// Not if the runtime is gone on which it was made, either.
    fn is_alive(&self) -> bool {
        self.session.life() == Life::Alive && self.session.client().is_ok() && !self.task.is_finished()
    }
}

impl State {
    /// Forgets what is over and has left nothing behind, and retires all but a few of those that nobody uses.
    fn prune(&mut self) {
        self.live.retain(|_, live| live.is_alive() || !live.is_left());
        self.former.retain(|former| !former.is_left());
        let mut spare: Vec<_> = self.live.values().filter(|live| live.is_unused() && !live.is_retired()).collect();
        spare.sort_unstable_by_key(|live| std::cmp::Reverse(live.used));
        for live in spare.into_iter().skip(SPARE) {
            live.session.retired.store(true, Ordering::Relaxed);
            live.session.wake.notify_one();
        }
    }

    /// All of them, each with somebody who ends it on the servers: the runtime may be gone on which that one was.
    fn tended(&mut self, notices: &broadcast::Sender<Notice>) -> impl Iterator<Item = &Arc<Session>> {
        self.live.values_mut().chain(&mut self.former).map(|supervised| {
            if supervised.task.is_finished() && supervised.session.life() < Life::Buried {
                supervised.task = tokio::spawn(mourn(Arc::clone(&supervised.session), notices.clone()));
            }
            &supervised.session
        })
    }
}

impl Sessions {
    /// Connects, and learns what the shortest session is, from a second on.
    pub(crate) async fn connect(settings: Arc<Settings>) -> Result<Self> {
        let asked = Duration::from_secs(1);
        let first = Session::connect(Arc::clone(&settings), asked, None).await?;
        let (shortest, notices) = (first.lasts, broadcast::Sender::new(1024));
        let home = Handle::current();
        let live = BTreeMap::from([(shortest, Supervised::new(first, notices.clone(), &home))]);
        let state = Mutex::new(State { live, former: Vec::new() });
        let connecting = tokio::sync::Mutex::new(home);
        Ok(Self {
            settings,
            shortest,
            longest: OnceLock::new(),
            state,
            connecting,
            notices,
            kept: Keeping::default(),
            closed: AtomicBool::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn living(&self, asked: Duration) -> Option<Arc<Session>> {
        let mut state = self.state();
        let live = state.live.get_mut(&asked).filter(|live| live.is_alive() && !live.is_retired())?;
        live.used = live.session.now();
        Some(Arc::clone(&live.session))
    }

    /// A session that lasts as long as this lease, or as the shortest that the servers give.
    ///
    /// # Errors
    /// Nothing was asked about any lock. [`ErrorKind::Invalid`](lock_core::ErrorKind::Invalid) if no session lasts as
    /// long as the lease: less would be renewed in vain, being late from the start.
    pub(crate) async fn of(self: &Arc<Self>, lease: Duration) -> Result<Arc<Session>> {
        let asked = rounded(lease).clamp(self.shortest, LONGEST.max(self.shortest));
        if let Some(session) = self.living(asked) {
            return Ok(session);
        }
        // A task of its own, since whoever asks may be kept and not polled any more: an observer's stream is, while it
        // looks. All others would wait for that one.
        let sessions = Arc::clone(self);
        let made = tokio::spawn(async move { sessions.make(asked, lease).await }).await;
        made.unwrap_or_else(|_| Err(error::unreachable(&self.settings.servers)))
    }

    /// One at a time, so that those who come meanwhile have the same.
    async fn make(&self, asked: Duration, lease: Duration) -> Result<Arc<Session>> {
        let mut home = self.connecting.lock().await;
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::closed());
        }
        if let Some(session) = self.living(asked) {
            return Ok(session);
        }
        let connect = || Session::connect(Arc::clone(&self.settings), asked, Some(self.shortest));
        // Connecting is bounded itself, where the runtime runs.
        let session = match tokio::time::timeout(self.settings.timeout * 2, home.spawn(connect())).await {
            Ok(Ok(session)) => session?,
            // That runtime is gone, or nobody drives it.
            Ok(Err(_)) | Err(_) => {
                *home = Handle::current();
                connect().await?
            }
        };
        // Milliseconds is what they count in.
        if session.lasts.as_millis() < lease.as_millis() {
            let longest = *self.longest.get_or_init(|| session.lasts);
            return Err(error::too_long(lease, longest));
        }
        let made = Supervised::new(session, self.notices.clone(), &home);
        let session = Arc::clone(&made.session);
        let mut state = self.state();
        if let Some(over) = state.live.insert(asked, made) {
            state.former.push(over);
        }
        state.prune();
        Ok(session)
    }

    /// A session to look with: the longest lets a busy server take its time.
    pub(crate) async fn any(self: &Arc<Self>) -> Result<Arc<Session>> {
        let longest = self
            .state()
            .live
            .values()
            .rfind(|live| live.is_alive() && !live.is_retired())
            .map(|live| Arc::clone(&live.session));
        match longest {
            Some(session) => Ok(session),
            None => self.of(self.shortest).await,
        }
    }

    /// Those in which something is known of a claim of this owner.
    pub(crate) fn with_claim(&self, owner: &OwnerId) -> Vec<Arc<Session>> {
        let mut state = self.state();
        let all = state.tended(&self.notices);
        all.filter(|session| session.state().claims.contains_key(owner)).cloned().collect()
    }

    /// Ends all of them, in bounded time.
    pub(crate) async fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Relaxed);
        self.kept.stop();
        let all: Vec<_> = self.state().tended(&self.notices).cloned().collect();
        for session in &all {
            session.close();
        }
        let buried = futures_util::future::join_all(all.iter().map(|session| session.reached(Life::Buried)));
        tokio::time::timeout(self.settings.timeout, buried).await.map(drop).map_err(|_| error::not_buried())
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        let state = self.state();
        for supervised in state.live.values().chain(&state.former) {
            supervised.session.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn leases_of_about_one_length_share_a_session() {
        for (lease, session) in [(1_000, 1_000), (1_501, 1_600), (4_000, 4_000), (30_000, 30_000), (299_999, 300_000)] {
            assert_eq!(rounded(Duration::from_millis(lease)), Duration::from_millis(session));
        }
        let sessions: BTreeSet<_> = (4_000..=40_000)
            .map(|lease| {
                let session = rounded(Duration::from_millis(lease)).as_millis() as u64;
                assert!((lease..=lease + lease / 10).contains(&session), "{lease} {session}");
                session
            })
            .collect();
        // Fewer than a server takes of one host, if all of them had a claim at the same time.
        assert!(sessions.len() < 40, "{}", sessions.len());
        assert!(rounded(Duration::MAX) >= LONGEST);
    }
}
