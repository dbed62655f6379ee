//! Case 65: a fork of a process that holds a lock can neither renew nor release it. And what is copied with its memory,
//! as a machine is that is restored from a snapshot, does not draw the same owners: two holders would be one.
//!
//! A program of its own, without the test harness's threads: a fork has only the thread that forked.
#![allow(unsafe_code)]

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, ErrorKind, Finding, Grant, Holder, ListQuery, LockName, LockStatus,
    Locks, Page, Renewal, Result, Scope, StoreToken, SystemClock, Unlocked,
};
use lock_sql::SqliteLock;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

const LEASE: Duration = Duration::from_secs(1);

/// A store that grants everything: to open one of ours takes locks that another thread may have had when this process was
/// forked.
#[derive(Debug)]
struct Granting;

#[async_trait]
impl DistributedLock for Granting {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("granting", Scope::Network)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.lock(claim).await.map(Some)
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        Ok(Grant::new(StoreToken::new(1)?, SystemClock.now() + claim.lease))
    }

    async fn unlock(&self, _: &Claim) -> Result<Unlocked> {
        Ok(Unlocked::Released)
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        claims.iter().map(|claim| Ok(Renewal::Held { valid_until: SystemClock.now() + claim.lease })).collect()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        Ok(LockStatus::free(name.clone()))
    }

    async fn list(&self, _: &ListQuery) -> Result<Page> {
        Ok(Page::default())
    }

    async fn evict(&self, _: &LockName) -> Result<Option<Holder>> {
        Ok(None)
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// The random part of the next owner, which is drawn on a runtime and for a store of its own.
fn draw() -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let guard = Locks::new(Arc::new(Granting)).mutex("b").lock().await.expect("free");
        let owner = guard.owner().as_str().to_owned();
        guard.unlock().await.expect("held to the end");
        owner.rsplit_once('#').expect("an owner of ours").1.to_owned()
    })
}

fn main() -> ExitCode {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let locks = runtime.block_on(async {
        let store = SqliteLock::open(folder.path().join("locks.db"), "fork").await.expect("a new file");
        Locks::builder(Arc::new(store)).lease(LEASE).build().expect("a lease that it can give")
    });
    let mutex = locks.mutex("a");
    let guard = runtime.block_on(mutex.lock()).expect("free");
    // SAFETY: this is the only thread that uses the runtime, and the child touches nothing but this thread's memory
    // before it ends.
    match unsafe { fork() }.expect("a fork") {
        ForkResult::Child => {
            let refused = runtime.block_on(async {
                let holds = guard.is_held();
                let tried = mutex.try_lock().await.is_err_and(|error| error.kind() == ErrorKind::Closed);
                let waited = mutex.lock().await.is_err_and(|error| error.kind() == ErrorKind::Closed);
                let released = guard.unlock().await.is_err_and(|error| error.kind() == ErrorKind::Closed);
                // Long enough for a keeper or a janitor to do harm.
                tokio::time::sleep(LEASE).await;
                !holds && tried && waited && released
            });
            let told = fs::write(folder.path().join("drawn"), draw()).is_ok();
            // Without destructors: they would close the parent's connection.
            unsafe { nix::libc::_exit(if refused && told { 0 } else { 1 }) }
        }
        ForkResult::Parent { child } => {
            // The lock is kept alive while we wait.
            let ended = runtime.block_on(async {
                tokio::task::spawn_blocking(move || waitpid(child, None)).await.expect("it does not panic")
            });
            assert_eq!(ended.expect("our child"), WaitStatus::Exited(child, 0), "the fork was let through");
            assert!(guard.is_held(), "held as before");
            runtime.block_on(guard.unlock()).expect("held to the end");
            let drawn = fs::read_to_string(folder.path().join("drawn")).expect("the child wrote it");
            assert_ne!(drawn, draw(), "both draw the same owner");
            println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
            ExitCode::SUCCESS
        }
    }
}
