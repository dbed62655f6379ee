//! A lock in a folder, for the processes of one host: an example of a backend, which passes the suite in
//! `tests/conformance.rs`.
//!
//! `locks.json` says who holds what. Whoever wants to know or change that first takes its turn, by locking the file
//! `turn`. Nothing is awaited from there on, so that a future that is dropped has done all of it or nothing: that is
//! what makes an `unlock` after a cancelled request final.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lock_core::{
    BackendFactory, Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Finding, Grant, Holder, Instant,
    ListQuery, LockName, LockStatus, OwnerId, Page, Renewal, Result, Scope, StoreToken, SystemClock, Target, Unlocked,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

/// How often one looks who waits for its turn, and for a lock.
const LOOK: Duration = Duration::from_millis(5);

/// How long one waits for its turn: somebody may be stopped in the middle of its own. Among processes there is no order.
const PATIENCE: Duration = Duration::from_secs(4);

/// Locks in a folder that exists, on a local disk.
#[derive(Clone, Debug)]
pub struct FileLock {
    folder: PathBuf,
    prefix: String,
    /// Our own tasks wait for their turn in order; one of them at a time looks whether it has come.
    here: Arc<Mutex<()>>,
}

/// What `locks.json` has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Locks {
    /// Of the host's boot: by its clock the leases go.
    boot: String,
    /// The last token of all locks.
    token: u64,
    /// By prefix and name. What is no [`Hold`] is somebody else's.
    held: BTreeMap<String, BTreeMap<String, Value>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Hold {
    owner: String,
    token: u64,
    since: Duration,
    until: Duration,
}

impl FileLock {
    /// Locks in this folder, apart from those with another prefix.
    pub fn new(folder: impl Into<PathBuf>, prefix: &str) -> Self {
        Self { folder: folder.into(), prefix: prefix.to_owned(), here: Arc::default() }
    }

    /// Waits for one's turn. It ends when the file is closed, by whatever means.
    async fn turn(&self) -> Result<(File, MutexGuard<'_, ()>)> {
        let path = self.folder.join("turn");
        let file = File::options().create(true).append(true).open(&path).map_err(|error| self.failed(error))?;
        let waiting = async {
            let here = self.here.lock().await;
            loop {
                match file.try_lock() {
                    Ok(()) => return Ok(here),
                    Err(TryLockError::WouldBlock) => tokio::time::sleep(LOOK).await,
                    Err(TryLockError::Error(error)) => return Err(self.failed(error)),
                }
            }
        };
        let wrong = || format!("somebody has {} locked for too long; look who it is", path.display());
        let here = tokio::time::timeout(PATIENCE, waiting).await;
        Ok((file, here.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, wrong())))?))
    }

    /// Decides something, in one's turn, at the time that it then is.
    async fn decide<T>(&self, decision: impl FnOnce(&mut Locks, Instant) -> Result<T> + Send) -> Result<T> {
        let _turn = self.turn().await?;
        let before = self.read().map_err(|error| self.failed(error))?;
        let mut locks = before.clone();
        let answer = decision(&mut locks, SystemClock.now())?;
        if locks != before {
            self.write(&locks).map_err(|error| self.failed(error))?;
        }
        Ok(answer)
    }

    fn read(&self) -> io::Result<Locks> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let mut locks: Locks = match fs::read(self.folder.join("locks.json")) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Locks::default(),
            Err(error) => return Err(error),
        };
        if locks.boot != boot {
            // Nobody who held anything lives.
            locks = Locks { boot, token: locks.token, held: BTreeMap::new() };
        }
        Ok(locks)
    }

    /// All of it or, should it fail, nothing.
    fn write(&self, locks: &Locks) -> io::Result<()> {
        let new = self.folder.join("locks.json.new");
        fs::write(&new, serde_json::to_vec(locks)?)?;
        fs::rename(new, self.folder.join("locks.json"))
    }

    /// Whatever fails here, nothing was changed.
    fn failed(&self, error: io::Error) -> Error {
        let wrong = format!("the folder {} cannot be used; look at its rights and its disk", self.folder.display());
        Error::new(ErrorKind::Unavailable, wrong).with_source(error)
    }

    /// What stands at the lock's place, also if its lease is over.
    fn found(&self, locks: &Locks, name: &LockName) -> Result<Option<Hold>> {
        let found = locks.held.get(&self.prefix).and_then(|held| held.get(name.as_str()));
        found.map(|found| serde_json::from_value(found.clone())).transpose().map_err(|error| {
            let wrong = "something that is no lock stands at this lock's place in locks.json; remove it";
            Error::new(ErrorKind::Refused, wrong).with_source(error)
        })
    }

    /// Who holds the lock.
    fn hold(&self, locks: &Locks, name: &LockName, now: Instant) -> Result<Option<Hold>> {
        Ok(self.found(locks, name)?.filter(|hold| hold.lasts(now)))
    }

    fn put(&self, locks: &mut Locks, name: &LockName, hold: &Hold) -> Result<()> {
        let value = serde_json::to_value(hold).map_err(|error| self.failed(error.into()))?;
        locks.held.entry(self.prefix.clone()).or_default().insert(name.to_string(), value);
        Ok(())
    }

    /// Ends this owner's hold, or whoever's it is; and answers what was held until now.
    fn end(&self, locks: &mut Locks, name: &LockName, owner: Option<&str>, now: Instant) -> Result<Option<Hold>> {
        let hold = self.found(locks, name)?.filter(|hold| owner.is_none_or(|owner| hold.owner == owner));
        if let (Some(_), Some(held)) = (&hold, locks.held.get_mut(&self.prefix)) {
            held.remove(name.as_str());
        }
        Ok(hold.filter(|hold| hold.lasts(now)))
    }

    fn status(&self, locks: &Locks, name: &LockName, now: Instant) -> Result<LockStatus> {
        let holder = self.hold(locks, name, now)?.map(|hold| hold.holder(now)).transpose()?;
        Ok(LockStatus::new(name.clone(), holder, Vec::<OwnerId>::new()))
    }
}

impl Hold {
    fn lasts(&self, now: Instant) -> bool {
        Instant::from_origin(self.until) > now
    }

    fn holder(&self, now: Instant) -> Result<Holder> {
        Ok(Holder::new(
            OwnerId::from_store(&self.owner),
            StoreToken::new(self.token)?,
            now.saturating_duration_since(Instant::from_origin(self.since)),
            Instant::from_origin(self.until).saturating_duration_since(now),
        ))
    }
}

/// One above the last, and never below the wall clock, so that who loses the file does not begin again.
fn next_token(last: u64) -> u64 {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64);
    clock.max(last + 1)
}

#[async_trait]
impl DistributedLock for FileLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("folder", Scope::Host);
        capabilities.min_lease = Duration::from_millis(10);
        capabilities.answers_within = Duration::from_secs(1);
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        // The lease counts from here, and not from one's turn.
        let sent = SystemClock.now();
        self.decide(|locks, now| {
            let hold = match self.hold(locks, &claim.name, now)? {
                Some(hold) if hold.owner != claim.owner.as_str() => return Ok(None),
                Some(hold) => hold,
                None => {
                    let (owner, token) = (claim.owner.as_str().to_owned(), next_token(locks.token));
                    Hold { owner, token, since: now.since_origin(), until: (now + claim.lease).since_origin() }
                }
            };
            let token = StoreToken::new(hold.token)?;
            locks.token = locks.token.max(hold.token);
            self.put(locks, &claim.name, &hold)?;
            let valid_until = Instant::from_origin(hold.until).min(sent + claim.lease);
            Ok(Some(Grant::new(token, valid_until)))
        })
        .await
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        loop {
            if let Some(grant) = self.try_lock(claim).await? {
                return Ok(grant);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        let ended = self.decide(|locks, now| self.end(locks, &claim.name, Some(claim.owner.as_str()), now)).await?;
        Ok(if ended.is_some() { Unlocked::Released } else { Unlocked::NotHeld })
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let sent = SystemClock.now();
        let renew = |locks: &mut Locks, claim: &Claim, now| -> Result<Renewal> {
            match self.hold(locks, &claim.name, now)? {
                Some(hold) if hold.owner == claim.owner.as_str() => {
                    self.put(locks, &claim.name, &Hold { until: (now + claim.lease).since_origin(), ..hold })?;
                    Ok(Renewal::Held { valid_until: sent + claim.lease })
                }
                _ => Ok(Renewal::NotHeld),
            }
        };
        let all = |locks: &mut Locks, now| Ok(claims.iter().map(|claim| renew(locks, claim, now)).collect());
        match self.decide(all).await {
            Ok(answers) => answers,
            // Each claim gets an error of its own; they share the words.
            Err(error) => claims.iter().map(|_| Err(Error::new(error.kind(), error.to_string()))).collect(),
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.decide(|locks, now| self.status(locks, name, now)).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        let mut held: Vec<_> = self
            .decide(|locks, now| {
                let names = locks.held.get(&self.prefix).into_iter().flat_map(BTreeMap::keys);
                let names = names.filter(|name| name.starts_with(&query.prefix)).flat_map(|name| LockName::new(name));
                let names = names.filter(|name| query.after.as_ref().is_none_or(|after| name > after));
                Ok(names
                    .flat_map(|name| self.status(locks, &name, now))
                    .filter(|lock| lock.holder().is_some())
                    .collect())
            })
            .await?;
        let more = held.len() > query.limit.max(1);
        held.truncate(query.limit.max(1));
        let next = held.last().filter(|_| more).map(|last| last.name.clone());
        Ok(Page::new(held, next))
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        self.decide(|locks, now| self.end(locks, name, None, now)?.map(|hold| hold.holder(now)).transpose()).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// `folder:/var/lib/locks`.
#[derive(Debug)]
pub struct FileLockFactory;

#[async_trait]
impl BackendFactory for FileLockFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["folder"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        target.params.finish("folder", &[])?;
        let lock = FileLock::new(target.url.path()?, &target.prefix);
        // That it can be used shows now.
        drop(lock.turn().await?);
        Ok(Arc::new(lock))
    }
}
