//! What the suite cannot see: members that die, are paused, restarted, full and slow, and how much is asked.

mod line;
mod patience;

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, CompactionOptions};
use line::key_of;
use lock_core::{Claim, Config, DistributedLock, ErrorKind, LockName, Locks, OwnerId, Registry, Renewal, Unlocked};
use lock_etcd::{EtcdFactory, EtcdLock, EtcdOptions};
use test_servers::{EtcdCluster, Proxy};

/// Never over while a test runs.
const LONG: Duration = Duration::from_secs(300);

/// For what needs no lease's end.
const BOUND: Duration = Duration::from_secs(20);

fn claim(name: &str, owner: &str) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store(owner), LONG)
}

async fn client(cluster: &EtcdCluster) -> Arc<EtcdLock> {
    Arc::new(EtcdLock::connect(&cluster.url(), "oarlock").await.unwrap())
}

async fn locks(cluster: &EtcdCluster, lease: Duration) -> Locks {
    Locks::builder(client(cluster).await).lease(lease).build().unwrap()
}

async fn raw(cluster: &EtcdCluster) -> Client {
    let members: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
    Client::connect(members, None).await.unwrap()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, waiting).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"));
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, future).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

async fn in_line(lock: &EtcdLock, name: &str) -> usize {
    lock.inspect(&LockName::new(name).unwrap()).await.unwrap().waiters.len()
}

type Waiting = tokio::task::JoinHandle<lock_core::Result<lock_core::Grant>>;

fn in_background(lock: &Arc<EtcdLock>, claim: &Claim) -> Waiting {
    let (lock, claim) = (Arc::clone(lock), claim.clone());
    tokio::spawn(async move { lock.lock(&claim).await })
}

async fn renewed(lock: &EtcdLock, claim: &Claim) -> lock_core::Result<bool> {
    let answer = lock.renew(std::slice::from_ref(claim)).await.pop().unwrap();
    answer.map(|renewal| matches!(renewal, Renewal::Held { .. }))
}

async fn holds(lock: &EtcdLock, claim: &Claim) -> bool {
    renewed(lock, claim).await.unwrap()
}

/// What the store answers when it is back.
async fn once_back<T>(what: &str, mut ask: impl AsyncFnMut() -> lock_core::Result<T>) -> T {
    let asking = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => patience::pause_after(error).await,
            }
        }
    };
    soon(what, asking).await
}

/// An operator evicts the holder, or revokes its lease: the holder is told at once, long before its next renewal.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_is_told_at_once() {
    let cluster = EtcdCluster::start(1);
    let (locks, operator) = (locks(&cluster, LONG).await, client(&cluster).await);
    assert!(locks.capabilities().prompt_loss);
    let guard = locks.mutex("x").lock().await.unwrap();
    operator.evict(guard.name()).await.unwrap().unwrap();
    soon("the loss", guard.lost()).await;
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);

    let guard = locks.mutex("x").lock().await.unwrap();
    let mut raw = raw(&cluster).await;
    for lease in raw.leases().await.unwrap().leases() {
        raw.lease_revoke(lease.id()).await.unwrap();
    }
    soon("the loss", guard.lost()).await;
    // With its lease gone, the client takes another.
    drop(soon("the lock", locks.mutex("x").lock()).await.unwrap());
}

/// 72. The leader is killed: nothing is lost, and as soon as another leads, holders are confirmed, and others get their
/// locks.
#[tokio::test(flavor = "multi_thread")]
async fn the_leader_is_killed() {
    let mut cluster = EtcdCluster::start(3);
    let (one, other) = (client(&cluster).await, locks(&cluster, LONG).await);
    let first = claim("x", "first");
    let before = one.try_lock(&first).await.unwrap().unwrap();
    let waiting = tokio::spawn(patience::lock(other.mutex("x")));
    until("the second in line", async || in_line(&one, "x").await == 1).await;
    cluster.kill(cluster.leader());
    assert!(once_back("a renewal", async || renewed(&one, &first).await).await);
    drop(soon("another lock", patience::lock(other.mutex("y"))).await);
    assert!(!waiting.is_finished());
    let released = once_back("the release", async || one.unlock(&first).await).await;
    assert_eq!(released, Unlocked::Released);
    let after = soon("its turn", waiting).await.unwrap();
    assert!(after.fencing_token().store() > before.token);
}

/// 72. A holder dies, and the leader when the lease is half over: whoever leads next grants the dead a whole lease
/// more, and then the lock is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_grants_the_dead_a_lease_more() {
    const LEASE: Duration = Duration::from_secs(6);
    let mut cluster = EtcdCluster::start(3);
    let proxies: Vec<_> = cluster.addresses().into_iter().map(Proxy::new).collect();
    let hosts: Vec<_> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let dying = Arc::new(in_order(&hosts).await);
    let (dying, other) = (Locks::builder(dying).lease(LEASE).build().unwrap(), locks(&cluster, LONG).await);
    let lost = dying.mutex("x").lock().await.unwrap();
    let waiting = tokio::spawn(patience::lock(other.mutex("x")));
    until("the second in line", async || !dying.inspect("x").await.unwrap().waiters.is_empty()).await;
    proxies.iter().for_each(Proxy::hold);
    tokio::time::sleep(LEASE / 2).await;
    let killed = tokio::time::Instant::now();
    cluster.kill(cluster.leader());
    let next = tokio::time::timeout(LEASE + BOUND, waiting).await.expect("the longer lease ends").unwrap();
    assert!(!lost.is_held() && next.fencing_token() > lost.fencing_token());
    assert!(killed.elapsed() >= LEASE, "{:?}", killed.elapsed());
}

/// 73. Each member is restarted in turn, or the only one is: nothing is lost, and waiters are served.
#[tokio::test(flavor = "multi_thread")]
async fn members_are_restarted() {
    for members in [1, 3] {
        let mut cluster = EtcdCluster::start(members);
        let (one, other) = (client(&cluster).await, locks(&cluster, LONG).await);
        let first = claim("x", "first");
        one.try_lock(&first).await.unwrap().unwrap();
        let waiting = tokio::spawn(patience::lock(other.mutex("x")));
        until("the second in line", async || in_line(&one, "x").await == 1).await;
        for member in 0..members {
            cluster.restart(member);
        }
        assert!(once_back("a renewal", async || renewed(&one, &first).await).await);
        assert!(!waiting.is_finished());
        let released = once_back("the release", async || one.unlock(&first).await).await;
        assert_eq!(released, Unlocked::Released);
        drop(soon("its turn", waiting).await.unwrap());
    }
}

/// The member that a client talks to is paused, the leader or not: another one is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_member_is_left() {
    let cluster = EtcdCluster::start(3);
    let (lock, other) = (client(&cluster).await, locks(&cluster, LONG).await);
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    // Either may talk to it, and it may lead.
    cluster.pause(0);
    assert!(once_back("a renewal", async || renewed(&lock, &held).await).await);
    drop(soon("another lock", patience::lock(other.mutex("y"))).await);
    let released = once_back("the release", async || lock.unlock(&held).await).await;
    assert_eq!(released, Unlocked::Released);
}

/// 74. While one waits, the store is compacted and defragmented, and connections are reset, so that no watch can go on
/// where it was: it is served all the same, also if the lock came free while nobody could hear of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_is_resumed_over_a_compaction() {
    let cluster = EtcdCluster::start(1);
    let proxy = Proxy::new(cluster.addresses()[0]);
    let one = client(&cluster).await;
    let other = Arc::new(EtcdLock::connect(&format!("etcd://{}", proxy.address()), "oarlock").await.unwrap());
    for unheard in [false, true] {
        let (first, second) = (claim("x", "first"), claim("x", &format!("second {unheard}")));
        one.try_lock(&first).await.unwrap().unwrap();
        // The reset may come before the answer that it is in line.
        let waiting = tokio::spawn(patience::claim(Arc::clone(&other), second.clone()));
        until("the second in line", async || in_line(&one, "x").await == 1).await;
        let connections = proxy.connections();
        if unheard {
            proxy.hold();
            assert_eq!(one.unlock(&first).await.unwrap(), Unlocked::Released);
        }
        let mut raw = raw(&cluster).await;
        let revision = raw.put("z", "", None).await.unwrap().header().unwrap().revision();
        raw.compact(revision, Some(CompactionOptions::new().with_physical())).await.unwrap();
        raw.defragment().await.unwrap();
        proxy.reset();
        proxy.forward();
        if !unheard {
            until("a new connection", async || proxy.connections() > connections).await;
            assert_eq!(one.unlock(&first).await.unwrap(), Unlocked::Released);
        }
        soon("its turn", waiting).await.unwrap();
        // The reset may come as late as this.
        while let Err(error) = other.unlock(&second).await {
            patience::pause_after(error).await;
        }
    }
}

/// 75. The store is full: new locks are refused with the way out, and those that are held can be renewed and released.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_refuses_and_releases() {
    let cluster = EtcdCluster::start_with(1, &["--quota-backend-bytes", "2000000"]);
    let lock = client(&cluster).await;
    let (before, waited, held) = (claim("z", "before"), claim("z", "waited"), claim("x", "holder"));
    lock.try_lock(&held).await.unwrap().unwrap();
    // One that had to wait.
    lock.try_lock(&before).await.unwrap().unwrap();
    let waits = in_background(&lock, &waited);
    until("it is in line", async || in_line(&lock, "z").await == 1).await;
    lock.unlock(&before).await.unwrap();
    soon("its turn", waits).await.unwrap().unwrap();
    let mut raw = raw(&cluster).await;
    while raw.put("filler", vec![b'x'; 300_000], None).await.is_ok() {}
    let error = lock.try_lock(&claim("y", "other")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.to_string().contains("full"), "{error}");
    for held in [held, waited] {
        assert!(holds(&lock, &held).await);
        assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    }
}

/// What a cancelled request left on its way is void, also for others that share its lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_request_that_lands_late_does_nothing() {
    let cluster = EtcdCluster::start(3);
    let proxies: Vec<_> = cluster.addresses().into_iter().map(Proxy::new).collect();
    let hosts: Vec<_> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let lock = Arc::new(in_order(&hosts).await);
    let (held, late) = (claim("y", "holder"), claim("x", "late"));
    lock.try_lock(&held).await.unwrap().unwrap();
    // It is stuck on its way to the first member, and the release goes to another.
    proxies[0].hold_c2s();
    let attempt = tokio::spawn({
        let (lock, late) = (Arc::clone(&lock), late.clone());
        async move { lock.try_lock(&late).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    attempt.abort();
    let _ = attempt.await;
    // The first may get stuck there too.
    until("the release", async || lock.unlock(&late).await.is_ok_and(|unlocked| unlocked == Unlocked::NotHeld)).await;
    proxies[0].forward();
    let raw = raw(&cluster).await;
    for _ in 0..20 {
        assert!(key_of(&raw, "x", "late").await.is_none());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(holds(&lock, &held).await);
    lock.try_lock(&claim("x", "next")).await.unwrap().unwrap();
}

/// A claim that nobody renews ends, while another one with the same lease goes on.
#[tokio::test(flavor = "multi_thread")]
async fn claims_that_share_a_lease_end_apart() {
    let cluster = EtcdCluster::start(1);
    let (locks, other) = (locks(&cluster, Duration::from_secs(3)).await, client(&cluster).await);
    let renewed = locks.mutex("renewed").lock().await.unwrap();
    let fixed = locks.mutex("fixed").hold_for(Duration::from_secs(3)).lock().await.unwrap();
    let next = soon("its end", other.lock(&claim("fixed", "next"))).await;
    assert!(!fixed.is_held() && renewed.is_held());
    next.unwrap();
}

/// A waiter whose place is deleted stands in line anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_lost_its_place_enters_anew() {
    let cluster = EtcdCluster::start(1);
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let first = claim("x", "first");
    one.try_lock(&first).await.unwrap().unwrap();
    let waiting = in_background(&other, &claim("x", "second"));
    until("the second in line", async || in_line(&one, "x").await == 1).await;
    let mut raw = raw(&cluster).await;
    let before = key_of(&raw, "x", "second").await.unwrap();
    raw.delete(before.key(), None).await.unwrap();
    let is_anew = async || {
        let key = key_of(&raw, "x", "second").await;
        key.is_some_and(|key| key.create_revision() > before.create_revision())
    };
    until("the second in line anew", is_anew).await;
    one.unlock(&first).await.unwrap();
    soon("its turn", waiting).await.unwrap().unwrap();
}

/// A key without a lease in the line: a waiter behind it is told, and leaves nothing; `doctor` names it, and `evict`
/// removes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_stray_key_is_named_and_not_obeyed() {
    let cluster = EtcdCluster::start(1);
    let lock = client(&cluster).await;
    let mut raw = raw(&cluster).await;
    raw.put("oarlock/x/stray", "somebody", None).await.unwrap();
    let error = soon("an error", lock.lock(&claim("x", "waiter"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("oarlock/x/stray"), "{error}");
    assert_eq!(in_line(&lock, "x").await, 0);
    let findings = lock.doctor().await.unwrap();
    assert!(findings.iter().any(|finding| finding.setting.contains("oarlock/x/stray")), "{findings:?}");
    assert_eq!(lock.evict(&LockName::new("x").unwrap()).await.unwrap().unwrap().owner.as_str(), "somebody");
    lock.try_lock(&claim("x", "next")).await.unwrap().unwrap();
}

/// One who holds, another in line behind it, and who looks into the store.
async fn holder_and_waiter(cluster: &EtcdCluster) -> (Arc<EtcdLock>, Arc<EtcdLock>, Waiting, Client) {
    let (holder, other) = (client(cluster).await, client(cluster).await);
    holder.try_lock(&claim("x", "holder")).await.unwrap().unwrap();
    let waits = in_background(&other, &claim("x", "waiter"));
    until("it is in line", async || in_line(&holder, "x").await == 1).await;
    (holder, other, waits, raw(cluster).await)
}

/// The same where somebody takes the lease from a key while others are in line behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_loses_its_lease_is_told_to_who_waits() {
    let cluster = EtcdCluster::start(1);
    let (holder, other, waits, mut raw) = holder_and_waiter(&cluster).await;
    raw.put("oarlock/x/write/0", "holder", None).await.unwrap();
    let error = soon("an error", waits).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("oarlock/x/write/0"), "{error}");
    assert_eq!(in_line(&holder, "x").await, 0);
    assert_eq!(holder.unlock(&claim("x", "holder")).await.unwrap(), Unlocked::Released);
    other.try_lock(&claim("x", "next")).await.unwrap().unwrap();
}

/// Nor does a waiter leave a key behind whose lease somebody took, or hold by it.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_key_lost_its_lease_puts_another() {
    let cluster = EtcdCluster::start(1);
    let (holder, other, waits, mut raw) = holder_and_waiter(&cluster).await;
    let key = key_of(&raw, "x", "waiter").await.unwrap();
    raw.put(key.key(), "somebody", None).await.unwrap();
    let is_new = async || key_of(&raw, "x", "waiter").await.is_some_and(|key| key.lease() != 0);
    until("it has another key", is_new).await;
    holder.unlock(&claim("x", "holder")).await.unwrap();
    soon("its turn", waits).await.unwrap().unwrap();
    assert_eq!(other.unlock(&claim("x", "waiter")).await.unwrap(), Unlocked::Released);
    let left = raw.clone().get("oarlock/x/", Some(etcd_client::GetOptions::new().with_prefix())).await.unwrap();
    assert!(left.kvs().is_empty(), "{:?}", left.kvs());
}

/// `close` ends the leases: what was held is free at once.
#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_the_leases() {
    let cluster = EtcdCluster::start(1);
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    one.try_lock(&claim("x", "first")).await.unwrap().unwrap();
    one.close().await.unwrap();
    other.try_lock(&claim("x", "second")).await.unwrap().unwrap();
    assert_eq!(one.try_lock(&claim("y", "first")).await.unwrap_err().kind(), ErrorKind::Closed);
    other.close().await.unwrap();
    assert!(raw(&cluster).await.leases().await.unwrap().leases().is_empty());
}

/// Users: a role for the prefix is enough, tokens that ran out are renewed, and errors do not show the password.
#[tokio::test(flavor = "multi_thread")]
async fn users_and_passwords() {
    let cluster = EtcdCluster::start_with(1, &["--auth-token-ttl", "1"]);
    let run = |arguments: &[&str]| {
        let output = cluster.etcdctl(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    run(&["user", "add", "root:r00t"]);
    run(&["user", "grant-role", "root", "root"]);
    run(&["role", "add", "locks"]);
    run(&["role", "grant-permission", "locks", "--prefix=true", "readwrite", "oarlock/"]);
    run(&["user", "add", "locks:s3cr3t"]);
    run(&["user", "grant-role", "locks", "locks"]);
    run(&["user", "add", "nobody:s3cr3t"]);
    run(&["auth", "enable"]);
    let mut registry = Registry::new();
    registry.register(EtcdFactory);
    let connect = async |login: &str| {
        registry.connect(Config::from_url(&format!("etcd://{login}{}", cluster.hosts())).unwrap()).await
    };
    let locks = connect("locks:s3cr3t@").await.unwrap();
    let guard = locks.mutex("x").lock().await.unwrap();
    let second = tokio::spawn({
        let mutex = connect("locks:s3cr3t@").await.unwrap().mutex("x");
        async move { mutex.lock().await.unwrap().unlock().await.unwrap() }
    });
    until("another in line", async || !locks.inspect("x").await.unwrap().waiters.is_empty()).await;
    // Longer than a token lasts.
    tokio::time::sleep(Duration::from_secs(3)).await;
    locks.list(&Default::default()).await.unwrap();
    locks.doctor().await.unwrap();
    guard.unlock().await.unwrap();
    soon("its turn", second).await.unwrap();
    for login in ["locks:wr0ng@", "nobody:s3cr3t@", ""] {
        let error = connect(login).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{login} {error:?}");
        let shown = format!("{error:?}");
        assert!(!shown.contains("wr0ng") && !shown.contains("s3cr3t"), "{shown}");
    }
    assert!(!format!("{locks:?}").contains("s3cr3t"));
}

/// A client that begins with the first of these.
async fn in_order(hosts: &[String]) -> EtcdLock {
    EtcdOptions::new(&format!("etcd://{}", hosts.join(","))).unwrap().in_order(true).connect().await.unwrap()
}
