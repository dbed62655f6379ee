//! [ShedLock](https://github.com/lukas-krecan/ShedLock)'s SQL table, joined: what becomes of its jobs and ours,
//! whatever the database. The Java programs are played by the statements that `shedlock-sql-support` of release 7 sends
//! where it is told to use the database's time.

use std::cell::Cell;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{BOUND, LONG, claim, granted, in_background, in_line, lasting, renewed, showing, soon, until};
use futures_util::future::join_all;
use lock_core::{
    DistributedLock, ErrorKind, Finding, Kept, ListQuery, LockName, Locks, OnceRun, Renewal, Result, Skipped, Unlocked,
};
use lock_sql::ServerOptions;
use test_servers::Proxy;

/// Long enough to be noticed.
const REST: Duration = Duration::from_millis(700);

/// How much longer than that something may take on a busy machine, and still not as long as a lease.
const SLACK: Duration = Duration::from_secs(5);

/// A database with ShedLock's table, which is called as in its documentation.
pub(crate) trait Site {
    type Java: Java;

    fn address(&self) -> SocketAddr;

    /// The database at this address, without any setting.
    fn url_at(&self, address: SocketAddr) -> String;

    /// A client of ours.
    async fn connect(&self, options: ServerOptions) -> Arc<dyn DistributedLock>;

    fn options_at(&self, address: SocketAddr) -> ServerOptions {
        let options = ServerOptions::new(&self.url_at(address)).unwrap().timeout(Duration::from_secs(6));
        options.shedlock("shedlock").unwrap()
    }

    async fn client_at(&self, address: SocketAddr) -> Arc<dyn DistributedLock> {
        self.connect(self.options_at(address)).await
    }

    async fn client(&self) -> Arc<dyn DistributedLock> {
        self.client_at(self.address()).await
    }

    /// A Java program, by this name, which is that of its host unless it is told another.
    async fn java(&self, by: &'static str) -> Self::Java;

    /// Somebody's own hand.
    async fn run(&self, statement: &str);

    /// Keeps all others from the table until this is dropped.
    async fn keep_table(&self) -> impl Sized;

    /// Does a request wait for the table?
    async fn table_is_waited_for(&self) -> bool;
}

/// A Java program with ShedLock.
pub(crate) trait Java {
    /// Does it get to run the job?
    async fn locks(&mut self, job: &str, at_most: Duration) -> bool;

    /// The job has ended, and counts as done until it has been locked for so long. Answers whether that did anything.
    async fn unlocks(&mut self, job: &str, at_least: Duration) -> bool;

    /// Does it get to go on?
    async fn extends(&mut self, job: &str, at_most: Duration) -> bool;
}

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

/// While theirs runs, ours waits or is denied; and is the first to be asked when theirs has ended.
pub(crate) async fn what_they_hold(site: impl Site) {
    let (lock, mut java) = (site.client().await, site.java("worker-7").await);
    assert!(java.locks("x", LONG).await);
    let (ours, denied) = (claim("x", "ours"), claim("x", "denied"));
    assert_eq!(lock.try_lock(&denied).await.unwrap(), None);
    assert!(lock.inspect(&ours.name).await.unwrap().waiters.is_empty(), "who is denied leaves nothing");
    let waiting = in_background(&lock, &ours);
    until("it is in line", async || in_line(&*lock, "x").await == 1).await;
    let behind = in_background(&lock, &claim("x", "behind"));
    until("another is", async || in_line(&*lock, "x").await == 2).await;
    let status = lock.inspect(&ours.name).await.unwrap();
    let theirs = status.holder().unwrap();
    assert_eq!((theirs.owner.as_str(), theirs.kept, &theirs.value), ("worker-7", false, &None));
    assert!(theirs.remaining <= LONG && theirs.remaining > LONG / 2, "{theirs:?}");
    assert_eq!(status.waiters.iter().map(|waiter| waiter.owner.as_str()).collect::<Vec<_>>(), ["ours", "behind"]);
    assert_eq!(lock.holder(&ours.name).await.unwrap().unwrap().owner, theirs.owner);
    assert!(java.unlocks("x", Duration::ZERO).await);
    let grant = granted(waiting).await;
    assert!(grant.valid_until > lock.clock().now() + LONG / 2);
    assert!(!java.locks("x", LONG).await && !behind.is_finished());
    // It took longer than it may.
    assert!(!java.unlocks("x", Duration::ZERO).await && !java.extends("x", LONG).await);
    assert!(matches!(renewed(&*lock, &ours).await, Renewal::Held { .. }));
    assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::Released);
    let next = granted(behind).await;
    assert!(next.token > grant.token);
    assert!(!java.locks("x", LONG).await);
    assert_eq!(lock.unlock(&claim("x", "behind")).await.unwrap(), Unlocked::Released);
    assert!(java.locks("x", LONG).await);
}

/// While ours runs, renewed or not, theirs changes nothing.
pub(crate) async fn what_we_hold(site: impl Site) {
    let (lock, other, mut java) = (site.client().await, site.client().await, site.java("worker-7").await);
    let held = showing(claim("x", "ours"), "shown");
    let grant = lock.try_lock(&held).await.unwrap().unwrap();
    assert_eq!(lock.try_lock(&held).await.unwrap().unwrap().token, grant.token);
    for _ in 0..2 {
        assert!(!java.locks("x", LONG).await);
        assert!(!java.extends("x", LONG).await && !java.unlocks("x", Duration::ZERO).await);
        assert!(matches!(renewed(&*lock, &held).await, Renewal::Held { .. }));
        let holder = other.holder(&held.name).await.unwrap().unwrap();
        assert_eq!((&holder.owner, &holder.value, holder.token), (&held.owner, &held.value, grant.token));
    }
    assert_eq!(other.unlock(&claim("x", "stranger")).await.unwrap(), Unlocked::NotHeld);
    assert!(!java.locks("x", LONG).await);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::NotHeld);
    assert!(java.locks("x", LONG).await);
    // A lease that nobody renews ends for both.
    let short = lasting("y", "short", REST);
    let began = Instant::now();
    lock.try_lock(&short).await.unwrap().unwrap();
    until("its end", async || java.locks("y", LONG).await).await;
    assert!(began.elapsed() >= REST && began.elapsed() < REST + SLACK, "after {:?}", began.elapsed());
    assert_eq!(renewed(&*lock, &short).await, Renewal::NotHeld);
    assert_eq!(lock.unlock(&short).await.unwrap(), Unlocked::NotHeld);
    assert!(java.extends("y", LONG).await);
}

/// Their `lockAtLeastFor` and their extensions count here.
pub(crate) async fn until_when_they_hold(site: impl Site) {
    let (lock, mut java) = (site.client().await, site.java("worker-7").await);
    let began = Instant::now();
    assert!(java.locks("x", LONG).await);
    assert!(java.unlocks("x", REST).await);
    let early = claim("x", "early");
    if lock.try_lock(&early).await.unwrap().is_some() {
        // Our request was the slow one.
        assert!(began.elapsed() + Duration::from_millis(1) >= REST);
        lock.unlock(&early).await.unwrap();
    }
    granted(in_background(&lock, &claim("x", "ours"))).await;
    // Its clock may tell milliseconds.
    let took = began.elapsed() + Duration::from_millis(1);
    assert!(took >= REST && took < REST + SLACK, "after {took:?}");
    assert!(java.locks("y", REST).await);
    assert!(java.extends("y", LONG).await);
    tokio::time::sleep(REST).await;
    assert_eq!(lock.try_lock(&claim("y", "early")).await.unwrap(), None);
}

/// What counts as done here does so there, until its time is over and not longer, and the reverse.
pub(crate) async fn what_is_kept(site: impl Site) {
    let (lock, mut java) = (site.client().await, site.java("worker-7").await);
    let held = claim("x", "ours");
    lock.try_lock(&held).await.unwrap().unwrap();
    let began = Instant::now();
    for _ in 0..2 {
        assert_eq!(lock.keep(&held, REST).await.unwrap(), Kept::Kept);
    }
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(renewed(&*lock, &held).await, Renewal::NotHeld);
    let holder = lock.holder(&held.name).await.unwrap().unwrap();
    assert!(holder.kept && holder.owner == held.owner && holder.remaining <= REST, "{holder:?}");
    assert!(!java.unlocks("x", Duration::ZERO).await);
    until("its end", async || java.locks("x", LONG).await).await;
    assert!(began.elapsed() >= REST && began.elapsed() < REST + SLACK, "after {:?}", began.elapsed());

    let locks = Locks::new(Arc::clone(&lock));
    let job = locks.once("report").at_least(LONG);
    let mut second = site.java("worker-8").await;
    let ran = job.run(async |_| assert!(!second.locks("report", LONG).await)).await.unwrap();
    assert_eq!(ran, OnceRun::Ran(()));
    assert!(!java.locks("report", LONG).await);
    let OnceRun::Skipped(skipped) = job.run(async |_| ()).await.unwrap() else { panic!("it ran twice") };
    assert!(skipped.done, "{skipped:?}");
    assert!(lock.evict(&name("report")).await.unwrap().unwrap().kept);
    assert!(java.locks("report", LONG).await);
    let OnceRun::Skipped(Skipped { by, remaining, .. }) = job.run(async |_| ()).await.unwrap() else {
        panic!("it ran twice")
    };
    assert_eq!(by.unwrap().as_str(), "worker-7");
    assert!(remaining <= LONG && remaining > LONG / 2, "{remaining:?}");
}

/// A row that somebody deletes, or takes, is a loss that is told at the next renewal; and nobody waits for the end of
/// the lease.
pub(crate) async fn a_row_that_is_gone(site: impl Site) {
    let (lock, other, mut java) = (site.client().await, site.client().await, site.java("worker-7").await);
    let held = claim("x", "ours");
    for statement in
        ["DELETE FROM shedlock WHERE name = 'x'", "UPDATE shedlock SET locked_by = 'hand' WHERE name = 'x'"]
    {
        lock.try_lock(&held).await.unwrap().unwrap();
        site.run(statement).await;
        assert_eq!(renewed(&*lock, &held).await, Renewal::NotHeld, "{statement}");
        assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::NotHeld);
        assert_eq!(lock.keep(&held, LONG).await.unwrap(), Kept::NotHeld);
        site.run("DELETE FROM shedlock").await;
        let next = claim("x", "next");
        other.try_lock(&next).await.unwrap().unwrap();
        assert_eq!(other.unlock(&next).await.unwrap(), Unlocked::Released);
    }
    // Our own lock alone is not enough, whoever took that.
    lock.try_lock(&held).await.unwrap().unwrap();
    site.run("DELETE FROM oarlock_lock WHERE name = 'oarlock/x'").await;
    assert_eq!(renewed(&*lock, &held).await, Renewal::NotHeld);
    assert!(java.locks("x", LONG).await, "the row came free with it");
    // The core is told soon.
    let locks = Locks::builder(Arc::clone(&lock)).lease(REST * 3).build().unwrap();
    let guard = locks.mutex("y").lock().await.unwrap();
    site.run("DELETE FROM shedlock WHERE name = 'y'").await;
    soon("the loss", guard.lost()).await;
    assert!(java.locks("y", LONG).await);
}

/// A request to take the row comes when its owner has given up and its release is done: nothing is left of it.
pub(crate) async fn a_late_request(site: impl Site) {
    let proxy = Proxy::new(site.address());
    let (lock, mut java) = (site.client_at(proxy.address()).await, site.java("worker-7").await);
    assert!(java.locks("x", LONG).await);
    let late = claim("x", "late");
    let waiting = in_background(&lock, &late);
    until("it is in line", async || in_line(&*lock, "x").await == 1).await;
    proxy.hold_c2s_of_present();
    // By then it has asked again.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    soon("the release", async { while lock.unlock(&late).await.is_err() {} }).await;
    assert!(java.unlocks("x", Duration::ZERO).await);
    proxy.forward();
    for _ in 0..20 {
        assert_eq!(lock.holder(&late.name).await.unwrap(), None);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(java.locks("x", LONG).await);
}

/// A client behind a proxy. On a second connection, which the sweep in the background may make, no statement would be
/// known yet.
async fn over_one_connection(site: &impl Site) -> (Proxy, Arc<dyn DistributedLock>) {
    let proxy = Proxy::new(site.address());
    let lock = site.connect(site.options_at(proxy.address()).connections(1)).await;
    (proxy, lock)
}

/// Somebody asks for what looks at the row and then changes it. What changes it waits in front of the server until the
/// proxy forwards, and who asked is told that nobody knows. Before that, all is done once: the connection knows the
/// statements.
async fn lands_late<T: Debug>(
    site: &impl Site,
    proxy: &Proxy,
    mut begin: impl AsyncFnMut(),
    ask: impl AsyncFn() -> Result<T>,
) {
    until("it is held back", async || {
        begin().await;
        ask().await.unwrap();
        begin().await;
        let table = site.keep_table().await;
        let held_back = async {
            until("a look at the table", async || site.table_is_waited_for().await).await;
            proxy.hold_c2s_of_present();
            drop(table);
            tokio::time::sleep(REST).await;
            proxy.end_for_clients();
        };
        match soon("an answer", async { tokio::join!(ask(), held_back) }).await.0 {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unknown, "{error}"),
            // The sweep in the background had the connection in between, and what was asked went over the next one.
            Ok(_) => {
                proxy.forward();
                return false;
            }
        }
        true
    })
    .await;
}

/// Case 271: an owner gives the row back, nobody answers, it does so again and takes the row once more; then the first
/// request lands.
pub(crate) async fn a_late_release_of_the_same_owner(site: impl Site) {
    let (proxy, lock) = over_one_connection(&site).await;
    let (held, mut java) = (claim("x", "ours"), site.java("worker-7").await);
    let take = async || drop(lock.try_lock(&held).await.unwrap().unwrap());
    lands_late(&site, &proxy, take, async || lock.unlock(&held).await).await;
    assert_eq!(soon("an answer", lock.unlock(&held)).await.unwrap(), Unlocked::Released);
    take().await;
    proxy.forward();
    for _ in 0..20 {
        assert!(!java.locks("x", LONG).await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
}

/// Case 272: somebody evicts a job of a host whose processes have one name, and nobody answers; the host's next job goes
/// on when the request lands.
pub(crate) async fn a_late_eviction_of_the_same_host(site: impl Site) {
    let (proxy, lock) = over_one_connection(&site).await;
    let (job, mut java) = (name("x"), site.java("host").await);
    lands_late(&site, &proxy, async || assert!(java.locks("x", LONG).await), async || lock.evict(&job).await).await;
    assert!(java.unlocks("x", Duration::ZERO).await);
    until("the next job", async || java.locks("x", LONG).await).await;
    proxy.forward();
    for _ in 0..20 {
        assert!(java.extends("x", LONG).await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(lock.evict(&job).await.unwrap().unwrap().owner.as_str(), "host");
}

/// What they hold is listed beside ours, page by page, and can be evicted.
pub(crate) async fn seen_and_evicted(site: impl Site) {
    let (lock, mut java) = (site.client().await, site.java("worker-7").await);
    let (mine, gone) = (claim("b", "ours"), claim("d", "gone"));
    for claim in [&mine, &gone] {
        lock.try_lock(claim).await.unwrap().unwrap();
    }
    assert_eq!(lock.unlock(&gone).await.unwrap(), Unlocked::Released);
    for job in ["a", "c", "e", "ö"] {
        assert!(java.locks(job, LONG).await);
    }
    assert!(java.unlocks("e", Duration::ZERO).await);
    let (mut query, mut found) = (ListQuery::new("").limit(2), Vec::new());
    loop {
        let page = lock.list(&query).await.unwrap();
        assert!(page.locks.len() <= 2);
        let held = |lock: lock_core::LockStatus| format!("{} {}", lock.name, lock.holder().unwrap().owner.as_str());
        found.extend(page.locks.into_iter().map(held));
        let Some(next) = page.next else { break };
        query.after = Some(next);
    }
    assert_eq!(found, ["a worker-7", "b ours", "c worker-7", "ö worker-7"]);
    let listed = lock.list(&ListQuery::new("c")).await.unwrap().locks;
    assert_eq!(listed.iter().map(|lock| lock.name.as_str()).collect::<Vec<_>>(), ["c"]);

    let evicted = lock.evict(&name("a")).await.unwrap().unwrap();
    assert_eq!((evicted.owner.as_str(), evicted.token.get()), ("worker-7", 0));
    assert!(!java.extends("a", LONG).await);
    assert_eq!(lock.evict(&name("a")).await.unwrap(), None);
    lock.try_lock(&claim("a", "next")).await.unwrap().unwrap();
    let evicted = lock.evict(&mine.name).await.unwrap().unwrap();
    assert_eq!(evicted.owner, mine.owner);
    assert!(java.locks("b", LONG).await);
    assert_eq!(renewed(&*lock, &mine).await, Renewal::NotHeld);
    assert!(java.extends("b", LONG).await);
    // Whoever of ours is next in line does not keep it from being evicted, and has it then.
    let waiting = in_background(&lock, &claim("c", "waits"));
    until("it is in line", async || in_line(&*lock, "c").await == 1).await;
    assert_eq!(lock.evict(&name("c")).await.unwrap().unwrap().owner.as_str(), "worker-7");
    granted(waiting).await;
    // Nor does a row that does not say since when it is held.
    for statement in ["DROP COLUMN locked_at", "ADD COLUMN locked_at TIMESTAMP NULL"] {
        site.run(&format!("ALTER TABLE shedlock {statement}")).await;
    }
    site.run("UPDATE shedlock SET locked_at = NULL").await;
    assert_eq!(lock.evict(&name("b")).await.unwrap().unwrap().owner.as_str(), "worker-7");
    assert!(!java.extends("b", LONG).await);
}

/// A name for which the column has no room is refused before anything is done.
pub(crate) async fn a_name_that_is_too_long(site: impl Site) {
    let lock = site.client().await;
    let (fits, long) = (claim(&"é".repeat(64), "fits"), claim(&"é".repeat(65), "long"));
    lock.try_lock(&fits).await.unwrap().unwrap();
    for error in [lock.try_lock(&long).await.unwrap_err(), soon("an error", lock.lock(&long)).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("column name takes 64"), "{error}");
    }
    assert_eq!(lock.holder(&long.name).await.unwrap(), None);
    // The column is made narrower meanwhile.
    assert_eq!(lock.unlock(&fits).await.unwrap(), Unlocked::Released);
    site.run("DELETE FROM shedlock").await;
    site.run("ALTER TABLE shedlock DROP COLUMN name").await;
    let error = lock.try_lock(&fits).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.to_string().contains("the table") && error.to_string().contains("shedlock"), "{error}");
    assert!(!error.to_string().contains("s3cr3t"));
}

/// Three Java programs and three of ours want one lock, again and again: no two have it at once, and all get their
/// turns.
pub(crate) async fn all_of_them_exclude_each_other(site: impl Site) {
    const ROUNDS: u32 = 25;
    let (counter, inside) = (Cell::new(0_u32), Cell::new(false));
    let section = async || {
        assert!(!inside.replace(true), "two are inside");
        let seen = counter.get();
        tokio::time::sleep(Duration::from_millis(1)).await;
        counter.set(seen + 1);
        assert!(inside.replace(false));
    };
    let (site, section) = (&site, &section);
    let theirs = ["worker-1", "worker-2", "worker-3"].map(|by| async move {
        let mut java = site.java(by).await;
        for _ in 0..ROUNDS {
            while !java.locks("x", LONG).await {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            section().await;
            assert!(java.unlocks("x", Duration::ZERO).await);
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    });
    let ours = ["one", "two", "three"].map(|who| async move {
        let lock = site.client().await;
        for round in 0..ROUNDS {
            let claim = claim("x", &format!("{who} {round}"));
            if round % 2 == 0 {
                lock.lock(&claim).await.unwrap();
            } else {
                while lock.try_lock(&claim).await.unwrap().is_none() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            section().await;
            assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    });
    let all = async { tokio::join!(join_all(theirs), join_all(ours)) };
    tokio::time::timeout(BOUND * 3, all).await.expect("all have their turns");
    assert_eq!(counter.get(), 6 * ROUNDS);
}

/// What is no table of ShedLock's is refused, with what is wrong with it, and is left as it is.
pub(crate) fn refused<L>(connected: lock_core::Result<L>, why: &str) {
    let error = connected.err().expect("it is refused");
    assert!(matches!(error.kind(), ErrorKind::Refused | ErrorKind::Invalid), "{error}");
    assert!(error.to_string().contains("shedlock") && error.to_string().contains(why), "{error}");
}

/// Whether something is found that has to do with the table.
pub(crate) fn is_found(found: &[Finding]) -> bool {
    found.iter().any(|finding| finding.setting.contains("shedlock"))
}
