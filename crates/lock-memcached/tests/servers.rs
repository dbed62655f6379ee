//! What only a real server shows, and what no server says.

mod common;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use common::withholding::Withholding;
use common::{BOUND, LONG, Raw, claim, soon, used};
use conformance_tests::hostile::{Says, withstand};
use lock_core::{Config, DistributedLock, Error, ErrorKind, LockName, Locks, Registry, Renewal, StoreToken, Unlocked};
use lock_memcached::{MemcachedFactory, MemcachedLock, MemcachedOptions};
use test_servers::{Disk, MemcachedServer, Proxy};

const PREFIX: &str = "test";

/// How requests begin that change something.
const CHANGES: [&str; 2] = ["md ", "ms "];

/// Longer than the server's clock takes to go on.
const CLOCK_GOES_ON: Duration = Duration::from_secs(5);

fn start(arguments: &[&str]) -> MemcachedServer {
    used(MemcachedServer::start_with(arguments), PREFIX)
}

async fn connect(server: &MemcachedServer) -> MemcachedLock {
    MemcachedLock::connect(&server.url(), PREFIX).await.unwrap()
}

fn locks(lock: &MemcachedLock) -> Locks {
    Locks::builder(Arc::new(lock.clone())).lease(LONG).build().unwrap()
}

async fn token(lock: &MemcachedLock, owner: &str) -> StoreToken {
    let claim = claim("x", owner);
    let grant = lock.try_lock(&claim).await.unwrap().expect("a free lock");
    assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
    grant.token
}

fn seconds(server: &MemcachedServer) -> u64 {
    let told = server.ask("stats");
    let time = told.lines().find_map(|line| line.strip_prefix("STAT time ")).expect("it tells the time");
    time.trim().parse().unwrap()
}

#[tokio::test]
async fn a_restart_is_a_loss_that_is_told_at_once() {
    let mut server = start(&["-M"]);
    let locks = locks(&connect(&server).await);
    let guard = soon("the lock", locks.mutex("x").lock()).await.unwrap();
    server.restart();
    // The next renewal would come after a third of the lease.
    soon("the loss", guard.lost()).await;
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    soon("the lock", locks.mutex("x").lock()).await.unwrap().unlock().await.unwrap();
}

/// The hold is removed, or kept for a moment, the answer to that is lost, and what is asked again finds nothing: nobody can
/// tell who ended the hold.
#[tokio::test]
async fn an_end_whose_answer_is_lost_is_unknown() {
    let server = start(&[]);
    let proxy = Proxy::new(server.address());
    let lock = MemcachedLock::connect(&format!("memcached://{}", proxy.address()), PREFIX).await.unwrap();
    let direct = connect(&server).await;
    for is_kept in [false, true] {
        let held = claim("x", &format!("holder, kept: {is_kept}"));
        lock.try_lock(&held).await.unwrap().unwrap();
        // It first reads what is there: only the answer to the change is lost.
        proxy.hold_answers_to(CHANGES.map(str::to_owned));
        let ending = tokio::spawn({
            let (lock, held) = (lock.clone(), held.clone());
            async move {
                match is_kept {
                    true => lock.keep(&held, Duration::from_millis(1)).await.map(drop),
                    false => lock.unlock(&held).await.map(drop),
                }
            }
        });
        while direct.inspect(&held.name).await.unwrap().holder().is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        proxy.reset();
        proxy.forward();
        assert_eq!(soon("an answer", ending).await.unwrap().unwrap_err().kind(), ErrorKind::Unknown);
        assert_eq!(direct.inspect(&held.name).await.unwrap().holder(), None);
    }
}

/// 275. A hold is evicted, the answer to that is lost, and somebody else holds the lock when it is asked again: that one
/// goes on to hold, and nobody can tell who ended the first.
#[tokio::test]
async fn an_eviction_that_is_repeated_ends_no_other_hold() {
    let server = start(&[]);
    let proxy = Proxy::new(server.address());
    let lock = MemcachedLock::connect(&format!("memcached://{}", proxy.address()), PREFIX).await.unwrap();
    let direct = connect(&server).await;
    let (held, next) = (claim("x", "holder"), claim("x", "next"));
    direct.try_lock(&held).await.unwrap().unwrap();
    // It first reads who holds: only the answer to the removal is lost.
    proxy.hold_answers_to(CHANGES.map(str::to_owned));
    let evicting = tokio::spawn({
        let (lock, name) = (lock.clone(), held.name.clone());
        async move { lock.evict(&name).await }
    });
    while server.holder(PREFIX, &held.name).is_some() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    direct.try_lock(&next).await.unwrap().unwrap();
    proxy.reset();
    proxy.forward();
    assert_eq!(soon("an answer", evicting).await.unwrap().unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(server.holder(PREFIX, &held.name).as_deref(), Some("next"));
    // Asked anew, it ends that.
    assert_eq!(lock.evict(&held.name).await.unwrap().unwrap().owner, next.owner);
}

/// 276. A waiter finds that a hold is over, and gives up when it has asked for the lock. What it asked arrives after its
/// release was answered over another connection: nobody has the lock then.
#[tokio::test]
async fn a_waiter_that_gave_up_takes_over_nothing_later() {
    let server = start(&["-M"]);
    let direct = connect(&server).await;
    let (mut dead, waits) = (claim("x", "dead"), claim("x", "waiter"));
    dead.lease = Duration::from_secs(1);
    direct.try_lock(&dead).await.unwrap().unwrap();
    // Its item stands for longer than this takes, with the same CAS number.
    let key = server.key(PREFIX, &dead.name).unwrap();
    assert_eq!(server.ask(&format!("mg {key} T{}", LONG.as_secs())), "HD");
    let changes = ["ms", "md"].map(|command| format!("{command} {key} "));
    let relay =
        Withholding::new(server.address(), move |sent| changes.iter().any(|change| sent.contains(change))).await;
    let options = MemcachedOptions::new(&format!("memcached://{}", relay.address)).unwrap();
    let waiter = options.prefix(PREFIX).timeout(BOUND).connect().await.unwrap();
    let waiting = tokio::spawn({
        let (waiter, waits) = (waiter.clone(), waits.clone());
        async move { waiter.lock(&waits).await }
    });
    let withheld = soon("a change", relay.withheld).await.unwrap();
    waiting.abort();
    assert_eq!(soon("the release", waiter.unlock(&waits)).await.unwrap(), Unlocked::NotHeld);
    withheld.arrives().await;
    for _ in 0..20 {
        assert_ne!(server.holder(PREFIX, &waits.name).as_deref(), Some("waiter"));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    soon("the lock", direct.lock(&claim("x", "next"))).await.unwrap();
}

#[tokio::test]
async fn tokens_rise_over_restarts() {
    let mut server = start(&["-M"]);
    let mut last = token(&connect(&server).await, "first").await;
    for turn in 0..3 {
        server.restart();
        let again = connect(&server).await;
        // The clock may show the same second, and CAS numbers begin anew.
        let next =
            tokio::time::timeout(CLOCK_GOES_ON, token(&again, &turn.to_string())).await.expect("the clock goes on");
        assert!(next > last, "{next:?} after {last:?}");
        last = next;
    }
}

#[tokio::test]
async fn tokens_are_never_below_the_servers_clock() {
    let server = start(&["-M"]);
    let (one, other) = (connect(&server).await, connect(&server).await);
    let mut last = None;
    for turn in 0..60 {
        let before = seconds(&server) * 1_000_000;
        let next = token(if turn % 2 == 0 { &one } else { &other }, &turn.to_string()).await;
        assert!(next.get() >= before && Some(next) > last, "{next:?} after {last:?} at {before}");
        last = Some(next);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The base of the tokens is thrown out: it is made anew, and tokens go on.
#[tokio::test]
async fn tokens_rise_though_their_base_is_deleted() {
    let server = start(&["-M"]);
    let lock = connect(&server).await;
    let mut last = token(&lock, "first").await;
    for turn in 0..2 {
        assert_eq!(server.ask(&format!("delete {PREFIX}::tokens")), "DELETED");
        let next =
            tokio::time::timeout(CLOCK_GOES_ON, token(&lock, &turn.to_string())).await.expect("the clock goes on");
        assert!(next > last, "{next:?} after {last:?}");
        last = next;
    }
}

/// The server was paused while the request waited, so its clock lags when it does it.
#[tokio::test]
async fn a_pause_shortens_no_lease() {
    let server = start(&["-M"]);
    let options = MemcachedOptions::new(&server.url()).unwrap().prefix(PREFIX).timeout(BOUND);
    let lock = options.connect().await.unwrap();
    for turn in 0..3 {
        let mut held = claim("x", &turn.to_string());
        held.lease = Duration::from_secs(6);
        server.pause();
        let asking = async {
            // Most of the pause is before the request is sent: the lease counts from there.
            tokio::time::sleep(Duration::from_secs(4)).await;
            lock.try_lock(&held).await.unwrap().expect("a free lock")
        };
        let resuming = async {
            tokio::time::sleep(Duration::from_millis(4_200)).await;
            server.resume();
        };
        let (grant, ()) = tokio::join!(asking, resuming);
        let name = LockName::new("x").unwrap();
        while lock.clock().now() < grant.valid_until {
            assert_eq!(server.holder(PREFIX, &name).as_deref(), Some(held.owner.as_str()));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        lock.unlock(&held).await.unwrap();
    }
}

#[tokio::test]
async fn a_connection_that_dies_silently_is_noticed_in_time() {
    let server = start(&["-M"]);
    let proxy = Proxy::new(server.address());
    let timeout = Duration::from_secs(1);
    let through = MemcachedOptions::new(&format!("memcached://{}", proxy.address())).unwrap();
    let waiter = through.prefix(PREFIX).timeout(timeout).connect().await.unwrap();
    let holder = connect(&server).await;
    let (held, wanted) = (claim("x", "holder"), claim("x", "waiter"));
    holder.try_lock(&held).await.unwrap().unwrap();
    let waiting = tokio::spawn({
        let (waiter, wanted) = (waiter.clone(), wanted.clone());
        async move { waiter.lock(&wanted).await }
    });
    while proxy.connections() == 0 {
        tokio::task::yield_now().await;
    }
    proxy.swallow(proxy.connections() - 1);
    holder.unlock(&held).await.unwrap();
    // It polls, so it is told that there is no answer; then it asks over another connection.
    let told = soon("an error", waiting).await.unwrap().unwrap_err();
    assert!(matches!(told.kind(), ErrorKind::Unknown | ErrorKind::Unavailable), "{told}");
    assert_eq!(soon("an answer", waiter.unlock(&wanted)).await.unwrap(), Unlocked::NotHeld);
    soon("the lock", waiter.lock(&wanted)).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_was_ended_is_made_anew_without_an_error() {
    let server = start(&["-M"]);
    let proxy = Proxy::new(server.address());
    let lock = MemcachedLock::connect(&format!("memcached://{}", proxy.address()), PREFIX).await.unwrap();
    let held = claim("x", "owner");
    let grant = lock.try_lock(&held).await.unwrap().unwrap();
    for _ in 0..20 {
        proxy.reset();
        assert_eq!(lock.try_lock(&held).await.unwrap().unwrap().token, grant.token);
        proxy.reset();
        assert!(matches!(lock.renew(std::slice::from_ref(&held)).await[0], Ok(Renewal::Held { .. })));
    }
    proxy.reset();
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
}

/// Fills the memory with other items, as an application with its cache does. memcached keeps items of about one size
/// together, and has some memory for each size.
fn fill(server: &MemcachedServer) -> String {
    let mut answers = String::new();
    for size in [16, 40, 72, 112, 160, 224, 304, 400] {
        let value = "x".repeat(size);
        let sets = (0..3_000_000 / (size + 80)).map(|number| format!("set o{size}-{number} 0 0 {size}\r\n{value}"));
        let all: Vec<_> = sets.collect();
        answers.extend(all.chunks(500).map(|some| server.ask(&some.join("\r\n"))));
    }
    answers
}

#[tokio::test]
async fn an_evicted_lock_is_lost() {
    let server = start(&["-m", "2"]);
    let lock = connect(&server).await;
    let held = claim("x", "owner");
    lock.try_lock(&held).await.unwrap().unwrap();
    fill(&server);
    assert_eq!(server.holder(PREFIX, &held.name), None);
    assert_eq!(*lock.renew(std::slice::from_ref(&held)).await[0].as_ref().unwrap(), Renewal::NotHeld);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::NotHeld);
    let found = lock.doctor().await.unwrap();
    for setting in ["evictions are on", "items were evicted", "nothing is kept", "flush_all"] {
        assert!(found.iter().any(|finding| finding.setting.contains(setting)), "{setting}: {found:?}");
    }
}

#[tokio::test]
async fn without_memory_nothing_is_granted_and_that_is_told() {
    let server = start(&["-m", "2", "-M", "-F"]);
    let lock = connect(&server).await;
    let quiet = lock.doctor().await.unwrap();
    assert_eq!(quiet.iter().map(|finding| &*finding.setting).collect::<Vec<_>>(), ["nothing is kept over a restart"]);
    assert!(fill(&server).contains("out of memory"));
    let error = lock.try_lock(&claim("x", "owner")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("memory"), "{error}");
    let found = lock.doctor().await.unwrap();
    assert!(found.iter().any(|finding| finding.setting.contains("of memory are used")), "{found:?}");
}

#[tokio::test]
async fn what_cannot_keep_locks_is_refused() {
    let folder = test_servers::folder(Disk::Memory);
    let logins = folder.path().join("logins");
    std::fs::write(&logins, "user:password\n").unwrap();
    // The server may run as another user.
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    for (arguments, why) in [(vec!["-C"], "-C"), (vec!["-Y", logins.to_str().unwrap()], "login")] {
        let server = MemcachedServer::start_with(&arguments);
        let error = MemcachedLock::connect(&server.url(), PREFIX).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_tells_no_keys_lists_no_locks() {
    let server = start(&["-M", "-X"]);
    let lock = connect(&server).await;
    let error = lock.list(&lock_core::ListQuery::default()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("-X"), "{error}");
    let found = lock.doctor().await.unwrap();
    assert!(found.iter().any(|finding| finding.setting == "keys cannot be listed"), "{found:?}");
}

#[tokio::test]
async fn what_it_lacks_is_refused_with_the_reason() {
    let server = start(&["-M"]);
    let mut registry = Registry::new();
    registry.register(MemcachedFactory);
    let locks = registry.connect(Config::from_url(&server.url()).unwrap()).await.unwrap();
    let refused = |error: Error| assert!(error.kind() == ErrorKind::Unsupported, "{error}");
    refused(locks.rw_lock("x").map(drop).unwrap_err());
    refused(locks.semaphore("x", 2).map(drop).unwrap_err());
    refused(locks.raise_tokens("x", 7_u64).await.unwrap_err());
    let fair = Config::from_url(&format!("{}?require=fair", server.url())).unwrap();
    let error = registry.connect(fair).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("fair"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_says_is_an_error_in_time() {
    let server = start(&["-M"]);
    let timeout = Duration::from_millis(300);
    let says = |once: &str, again: &str| Says::new(once, again);
    let mut all = vec![
        says("", ""),
        says("", "x"),
        says("", "\r\n"),
        says("", "STAT a b\r\n"),
        says("", "END\r\n"),
        says("ERROR\r\n", ""),
        says("STAT pid x\r\nEND\r\nEND\r\n", ""),
        says("VA 99999999999999\r\n", "x"),
        says("VA 1000000 c1 t1\r\n", "x"),
        says("VA -1\r\n", "x"),
        says("", "HD\r\n"),
        says("", "EN\r\n"),
        says("", "EX\r\n"),
        says("", "VA 0 c1 t5\r\n\r\n"),
        says("", "VA 3 c1 t5\r\nabc\r\n"),
        says("SERVER_ERROR \u{1b}[2J\r\n", ""),
    ];
    all.extend((0..10).map(Says::noise));
    let ask = async |address| {
        let options = MemcachedOptions::new(&format!("memcached://{address}"))?.timeout(timeout);
        options.connect().await?.try_lock(&claim("x", "owner")).await.map(drop)
    };
    withstand(all.clone(), None, BOUND, ask).await;
    // Behind a server that means well.
    let cue = b"mg oarlock:x ";
    withstand(all, Some((server.address(), cue)), BOUND, ask).await;
}
