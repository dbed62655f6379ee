//! How much is asked of the store, by its own count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_client::{Client, GetOptions};
use futures_util::future::join_all;
use lock_core::{Claim, DistributedLock, LockName, Locks, Mode, OwnerId, Renewal, Unlocked};
use lock_etcd::{EtcdLock, EtcdOptions};
use test_servers::{EtcdCluster, Proxy};
use tokio::task::JoinSet;

/// Never over while a test runs, and not renewed either.
const LONG: Duration = Duration::from_secs(3000);

/// For what needs no lease's end, and a thousand turns.
const BOUND: Duration = Duration::from_secs(240);

/// The longest that a request may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// No request of this client is sent again: however slow the machine is, or however long a test holds answers back.
async fn patient(url: &str) -> EtcdLock {
    EtcdOptions::new(url).unwrap().timeout(TIMEOUT).connect().await.unwrap()
}

async fn client(cluster: &EtcdCluster) -> Arc<EtcdLock> {
    Arc::new(patient(&cluster.url()).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncontended_lock_is_two_requests() {
    let cluster = EtcdCluster::start(1);
    let locks = Locks::builder(client(&cluster).await).lease(LONG).build().unwrap();
    let mutex = locks.mutex("x");
    // The first one opens the session.
    mutex.lock().await.unwrap().unlock().await.unwrap();
    let (before, watches) = (cluster.requests(&[]), cluster.requests(&["Watch"]));
    for _ in 0..10 {
        mutex.lock().await.unwrap().unlock().await.unwrap();
        mutex.try_lock().await.unwrap().unwrap().unlock().await.unwrap();
    }
    // The key of a hold that lasts for as long as a busy machine pauses is watched, and looked at once.
    let watches = cluster.requests(&["Watch"]) - watches;
    let asked = cluster.requests(&[]) - before;
    assert!((40..=40 + 2 * watches).contains(&asked), "{asked} requests, {watches} of them about watches");
}

/// What a client asks of the store. A test that looks into it asks otherwise.
const OURS: [&str; 4] = ["Txn", "LeaseGrant", "LeaseKeepAlive", "Watch"];

/// While a client waits it looks so often whether it missed something, by one request.
const LOOK: Duration = Duration::from_secs(3);

/// A client has its stream of watches, and one each for the key that others hold, for the waiters behind that, which are
/// as many as a waiter knows of those ahead, and for the key of who holds for a while. They are closed when nobody needs
/// them any more.
const WATCHES: u64 = 2 + 2 * 4;

/// However many wait: at most three requests for each, none of theirs while they wait, few watches and one lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_contended_lock_is_three_requests_at_most() {
    for waiters in [2, 1000] {
        let cluster = EtcdCluster::start(1);
        let (holder, client) = (client(&cluster).await, client(&cluster).await);
        let mut raw = Client::connect([cluster.addresses()[0].to_string()], None).await.unwrap();
        let watched = async {
            while cluster.requests(&["Watch"]) < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(BOUND, watched).await.expect("both watch");
        let name = LockName::new("x").unwrap();
        let held = Claim::new(name.clone(), OwnerId::from_store("holder"), LONG);
        holder.try_lock(&held).await.unwrap().unwrap();
        let (before, began) = (cluster.requests(&OURS), Instant::now());
        // Where a busy server ends a stream, its client opens another, and whoever was about to wait then asks once more, and
        // perhaps the leader after that.
        let reopened = || {
            let reopened = cluster.calls(&["Watch"]).saturating_sub(2);
            assert!(reopened <= 20, "{reopened} streams of watches: not one for each waiter");
            reopened
        };
        let looks = || began.elapsed().as_secs() / LOOK.as_secs() + 1 + reopened();
        let mut tasks = JoinSet::new();
        for number in 0..waiters {
            let (client, name) = (Arc::clone(&client), name.clone());
            tasks.spawn(async move {
                let claim = Claim::new(name, OwnerId::from_store(&number.to_string()), LONG);
                client.lock(&claim).await.unwrap();
                client.unlock(&claim).await.unwrap();
            });
        }
        let in_line = async {
            let all = GetOptions::new().with_prefix().with_count_only();
            while raw.get("oarlock/x/", Some(all.clone())).await.unwrap().count() <= waiters as i64 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(BOUND, in_line).await.expect("all stand in line");
        // As long as a busy machine takes for it.
        let ([asked, watches], since) = ([&OURS[..], &["Watch"]].map(|of| cluster.requests(of)), Instant::now());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let [asked, watches] = [cluster.requests(&OURS) - asked, cluster.requests(&["Watch"]) - watches];
        let seen = since.elapsed().as_secs() / LOOK.as_secs();
        // A new watch is followed by a look, and on a busy machine the one may be from before and the other not.
        let most = 2 * watches.max(WATCHES) + (2 + seen) * (1 + waiters / 100) + 2 * waiters * reopened();
        assert!(asked <= most, "{waiters} ask {asked} times while they wait, {watches} watches, {seen} looks");
        holder.unlock(&held).await.unwrap();
        tokio::time::timeout(BOUND, tasks.join_all()).await.expect("all are served");
        // A look that finds what a busy server tells late opens them anew.
        let (looks, watches) = (looks(), cluster.requests(&["Watch"]));
        assert!(watches <= (1 + looks) * WATCHES, "{watches} watches, {looks} looks");
        // Opening the session is two, and the holder's release one. A new watch is followed by a look.
        let asked = cluster.requests(&OURS) - before;
        let most = 3 * waiters + 3 + 2 * watches + looks * (2 + waiters / 100) + 2 * waiters * reopened();
        assert!(asked <= most, "{asked} requests for {waiters}, {watches} watches, {looks} looks");
        assert_eq!(cluster.requests(&["LeaseGrant"]), 2);
        assert_eq!(cluster.requests(&["LeaseKeepAlive"]), 0);
    }
}

/// A client behind a proxy.
async fn client_behind(cluster: &EtcdCluster) -> (EtcdLock, Proxy) {
    let proxy = Proxy::new(cluster.addresses()[0]);
    (patient(&format!("etcd://{}", proxy.address())).await, proxy)
}

/// Many who give up before they are answered are undone together.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_up_costs_few_requests() {
    // What they send has to fit into the window of the connection, since what widens that is held back with the answers.
    const MANY: u64 = 60;
    let cluster = EtcdCluster::start(1);
    let (client, proxy) = client_behind(&cluster).await;
    let claim =
        |name: u64| Claim::new(LockName::new(&name.to_string()).unwrap(), OwnerId::from_store("given up"), LONG);
    client.try_lock(&claim(MANY)).await.unwrap().unwrap();
    proxy.hold_s2c();
    let before = cluster.requests(&["Txn"]);
    let mut asking = JoinSet::new();
    for name in 0..MANY {
        let (client, claim) = (client.clone(), claim(name));
        asking.spawn(async move { client.lock(&claim).await });
    }
    let asked = async {
        while cluster.requests(&["Txn"]) < before + MANY {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, asked).await.expect("all ask");
    asking.shutdown().await;
    proxy.forward();
    let claims: Vec<_> = (0..MANY).map(claim).collect();
    for undone in join_all(claims.iter().map(|claim| client.unlock(claim))).await {
        assert_eq!(undone.unwrap(), Unlocked::Released);
    }
    let undone = cluster.requests(&["Txn"]) - before - MANY;
    assert!(undone <= 4, "{undone} requests to undo {MANY}");
}

/// Those who wait no longer than it takes to get a lease leave the next one the same.
#[tokio::test(flavor = "multi_thread")]
async fn short_waits_get_one_lease() {
    const WAIT: Duration = Duration::from_millis(50);
    let cluster = EtcdCluster::start(1);
    let (client, proxy) = client_behind(&cluster).await;
    proxy.delay(WAIT * 2);
    let claim = Claim::new(LockName::new("x").unwrap(), OwnerId::from_store("hasty"), LONG);
    for _ in 0..5 {
        assert!(tokio::time::timeout(WAIT, client.lock(&claim)).await.is_err());
    }
    tokio::time::timeout(BOUND, client.lock(&claim)).await.expect("a grant").unwrap();
    assert_eq!(cluster.requests(&["LeaseGrant"]), 1);
}

/// A renewal of many locks is one keep-alive, and a request for each hundred.
#[tokio::test(flavor = "multi_thread")]
async fn many_locks_are_renewed_at_once() {
    const MANY: usize = 1000;
    let cluster = EtcdCluster::start(1);
    let client = client(&cluster).await;
    let claims: Vec<_> = (0..MANY)
        .map(|name| Claim::new(LockName::new(&name.to_string()).unwrap(), OwnerId::from_store("one"), LONG))
        .collect();
    for granted in join_all(claims.iter().map(|claim| client.try_lock(claim))).await {
        granted.unwrap().unwrap();
    }
    // The first opens the stream, with a keep-alive of its own.
    client.renew(&claims[..1]).await.pop().unwrap().unwrap();
    let watched = async {
        while cluster.requests(&["Watch"]) <= MANY as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, watched).await.expect("all are watched");
    let (asked, alive) = (cluster.requests(&["Txn"]), cluster.requests(&["LeaseKeepAlive"]));
    for renewed in client.renew(&claims).await {
        assert!(matches!(renewed, Ok(Renewal::Held { .. })), "{renewed:?}");
    }
    assert_eq!(cluster.requests(&["LeaseKeepAlive"]) - alive, 1);
    // And as often they are looked at when their watches have begun.
    let asked = cluster.requests(&["Txn"]) - asked;
    assert!((MANY as u64 / 100..=2 * MANY as u64 / 100 + 1).contains(&asked), "{asked} requests");
}

/// However many clients want one lock, the server tells a release to those who come next.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_told_to_few() {
    const CLIENTS: usize = 40;
    const TURNS: usize = 5;
    let cluster = EtcdCluster::start(1);
    let clients = join_all((0..CLIENTS).map(|_| client(&cluster))).await;
    let (before, began) = (cluster.messages_sent(), Instant::now());
    let mut tasks = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        tasks.spawn(async move {
            for turn in 0..TURNS {
                let owner = OwnerId::from_store(&format!("{number} {turn}"));
                let claim = Claim::new(LockName::new("x").unwrap(), owner, LONG);
                client.lock(&claim).await.unwrap();
                client.unlock(&claim).await.unwrap();
            }
        });
    }
    tokio::time::timeout(BOUND, tasks.join_all()).await.expect("all are served");
    let looks = (began.elapsed().as_secs() / LOOK.as_secs() + 1) * CLIENTS as u64;
    let (sent, releases) = (cluster.messages_sent() - before, (CLIENTS * TURNS) as u64);
    assert!(sent < 10 * releases + looks, "{sent} messages for {releases} releases");
}

/// A client that is connected anew does not have the server count all keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_watch_counts_no_keys() {
    let cluster = EtcdCluster::start(1);
    let (client, proxy) = client_behind(&cluster).await;
    let watches = async |count: u64| {
        while cluster.requests(&["Watch"]) < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, watches(1)).await.expect("it watches");
    let before = cluster.requests(&["Range"]);
    proxy.reset();
    tokio::time::timeout(BOUND, watches(2)).await.expect("it watches again");
    let claim = Claim::new(LockName::new("x").unwrap(), OwnerId::from_store("one"), LONG);
    while client.try_lock(&claim).await.is_err() {}
    assert_eq!(cluster.requests(&["Range"]), before);
}

/// Whoever waits for permits has to know the whole line: those of one client ask for it together.
#[tokio::test(flavor = "multi_thread")]
async fn many_who_wait_for_permits_ask_for_the_line_together() {
    const WAITERS: u64 = 64;
    let cluster = EtcdCluster::start(1);
    let locks = Locks::builder(client(&cluster).await).lease(LONG).build().unwrap();
    let semaphore = locks.semaphore("x", 5).unwrap();
    semaphore.acquire().await.unwrap().unlock().await.unwrap();
    let held = semaphore.acquire_many(5).await.unwrap();
    let before = cluster.requests(&["Txn"]);
    let mut waiting = JoinSet::new();
    for _ in 0..WAITERS {
        let semaphore = semaphore.clone();
        waiting.spawn(async move { semaphore.acquire().await.unwrap().unlock().await.unwrap() });
    }
    let in_line = async {
        while locks.inspect("x").await.unwrap().waiters.len() < WAITERS as usize {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, in_line).await.expect("all are in line");
    let joined = cluster.requests(&["Txn"]) - before;
    held.unlock().await.unwrap();
    tokio::time::timeout(BOUND, waiting.join_all()).await.expect("all had one");
    let asked = cluster.requests(&["Txn"]) - before;
    // Each puts its place, takes its permit and gives it back. Of those who take theirs at the same time one may be refused,
    // and what happens in the line is looked at once for all.
    assert!(joined <= 4 * WAITERS && asked <= 12 * WAITERS, "{joined} requests to join, {asked} in all");
}

/// However many clients want permits, what happens in the line is told to those who wait: none of them asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_contended_permit_is_three_requests_and_no_vain_look() {
    const CLIENTS: u64 = 12;
    const TURNS: u64 = 10;
    let cluster = EtcdCluster::start(1);
    let clients = join_all((0..CLIENTS).map(|_| client(&cluster))).await;
    // Each has its session.
    let free =
        |number: usize| Claim::new(LockName::new(&number.to_string()).unwrap(), OwnerId::from_store("one"), LONG);
    for (number, client) in clients.iter().enumerate() {
        client.try_lock(&free(number)).await.unwrap().unwrap();
    }
    let asked = || (cluster.requests(&["Txn"]), cluster.requests(&["Watch"]));
    let (before, began) = (asked(), Instant::now());
    let mut tasks = JoinSet::new();
    for (number, client) in clients.iter().enumerate() {
        let client = Arc::clone(client);
        tasks.spawn(async move {
            for turn in 0..TURNS {
                let owner = OwnerId::from_store(&format!("{number} {turn}"));
                let mut claim = Claim::new(LockName::new("x").unwrap(), owner, LONG);
                claim.mode = Mode::Permits { take: 1, of: 2 };
                client.lock(&claim).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
                client.unlock(&claim).await.unwrap();
            }
        });
    }
    tokio::time::timeout(BOUND, tasks.join_all()).await.expect("all are served");
    let [asked, watches] = [asked().0 - before.0, asked().1 - before.1];
    // A client looks when its watches have begun, and now and then.
    let looks = watches + (began.elapsed().as_secs() / LOOK.as_secs() + 1) * CLIENTS;
    // Each puts its place, takes its permit and gives it back. Where a busy machine lets one be late, another may be refused
    // once.
    let most = 5 * CLIENTS * TURNS + 2 * looks;
    assert!(asked <= most, "{asked} requests for {} permits, {watches} watches, {looks} looks", CLIENTS * TURNS);
}
