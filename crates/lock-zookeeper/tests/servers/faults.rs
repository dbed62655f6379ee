//! What the suite cannot see: sessions that end, servers that are cut off, stopped and killed, how much is asked.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::common::{BOUND, LONG, soon, until};
use crate::raw::{PERSISTENT, raw};
use futures_util::StreamExt;
use lock_core::{
    Claim, Config, DistributedLock, ErrorKind, Instant, LeaseState, LockGuard, LockName, Locks, Notice, OwnerId,
    Registry, Unlocked,
};
use lock_zookeeper::{ZookeeperFactory, ZookeeperLock, ZookeeperOptions};
use test_servers::{Proxy, ZookeeperServers};
use zookeeper_client::Client;

/// A host that is busy with other tests may take its time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longer than a busy machine pauses, and short enough to wait for.
const LEASE: Duration = Duration::from_secs(4);

fn claim(name: &str, owner: &str, lease: Duration) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store(owner), lease)
}

/// The server of the tests that harm none, with ways to it alone.
static SHARED: LazyLock<ZookeeperServers> = LazyLock::new(ZookeeperServers::start);

/// A path of the shared server that is one test's own.
struct Place {
    path: &'static str,
    /// Below it.
    raw: Client,
}

impl Place {
    async fn new(path: &'static str) -> Self {
        let raw = raw(&SHARED).await;
        raw.create(path, b"", &PERSISTENT).await.unwrap();
        Self { path, raw: raw.chroot(path).unwrap() }
    }

    fn address(&self) -> SocketAddr {
        SHARED.addresses()[0]
    }

    /// By the server itself, or by a proxy at this address.
    fn url_at(&self, address: SocketAddr) -> String {
        format!("zookeeper://{address}{}", self.path)
    }

    fn url(&self) -> String {
        self.url_at(self.address())
    }
}

async fn client(url: &str) -> Arc<ZookeeperLock> {
    Arc::new(ZookeeperOptions::new(url).unwrap().timeout(PATIENCE).connect().await.unwrap())
}

async fn locks(url: &str, lease: Duration) -> Locks {
    Locks::builder(client(url).await).lease(lease).build().unwrap()
}

/// A lock, as soon as the servers give one: while they vote they answer with errors.
async fn granted(locks: &Locks, name: &str) -> LockGuard {
    let trying = async {
        loop {
            match locks.mutex(name).lock().await {
                Ok(guard) => return guard,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    soon("a lock", trying).await
}

/// The nodes in the line of a lock, by other means than ours.
async fn nodes(raw: &Client, name: &str) -> Vec<String> {
    raw.sync("/").await.unwrap();
    raw.list_children(&format!("/oarlock/{name}")).await.unwrap_or_default()
}

/// A connection that breaks is a risk at once, and no loss if it comes back in time: the same session goes on.
#[tokio::test]
async fn a_broken_connection_is_a_risk_and_no_loss() {
    let place = Place::new("/broken").await;
    let proxy = Proxy::new(place.address());
    let locks = locks(&place.url_at(proxy.address()), LONG).await;
    let guard = locks.mutex("x").lock().await.unwrap();
    proxy.refuse();
    proxy.reset();
    until("a risk", async || guard.state() == LeaseState::AtRisk).await;
    proxy.forward();
    until("no risk", async || guard.state() == LeaseState::Held).await;
    guard.unlock().await.unwrap();
}

/// A holder is told that its node is gone long before its next renewal.
#[tokio::test]
async fn a_deleted_node_is_a_loss_at_once() {
    let place = Place::new("/deleted").await;
    let locks = locks(&place.url(), LONG).await;
    let guard = locks.mutex("x").lock().await.unwrap();
    let raw = &place.raw;
    for node in nodes(raw, "x").await {
        raw.delete(&format!("/oarlock/x/{node}"), None).await.unwrap();
    }
    soon("the loss", guard.lost()).await;
    assert_eq!(guard.state(), LeaseState::Lost);
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
}

/// The servers end a session, of which a connection was cut off for too long: waiters enter anew, and the holder's node
/// is gone.
#[tokio::test]
async fn a_session_that_expired_is_replaced_and_waiters_go_on() {
    let place = Place::new("/expired").await;
    let proxy = Proxy::new(place.address());
    let url = place.url_at(proxy.address());
    let (here, there) = (locks(&url, LEASE).await, locks(&place.url(), LONG).await);
    let lost = here.mutex("lost").lock().await.unwrap();
    let held = there.mutex("x").lock().await.unwrap();
    let client = client(&url).await;
    let waiting = tokio::spawn(async move { client.lock(&claim("x", "waits", LEASE)).await });
    let raw = &place.raw;
    until("it waits", async || nodes(raw, "x").await.len() == 2).await;
    proxy.hold();
    let successor = soon("the end of the session", there.mutex("lost").lock()).await.unwrap();
    assert!(!lost.is_held());
    until("the waiter is gone", async || nodes(raw, "x").await.len() == 1).await;
    proxy.forward();
    held.unlock().await.unwrap();
    // It was told that it does not know, or has entered the line anew.
    match soon("the waiter", waiting).await.unwrap() {
        Ok(grant) => assert!(grant.token > successor.fencing_token().store()),
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable), "{error}"),
    }
    assert_eq!(lost.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(soon("a new session", here.mutex("lost").try_lock()).await.unwrap().is_none());
    successor.unlock().await.unwrap();
    assert!(soon("the lock", here.mutex("lost").lock()).await.unwrap().is_held());
}

/// 42. The holder's server is cut off from the leader, and goes on answering pings and reads: lost by our clock, before
/// another has the lock.
#[tokio::test]
async fn a_holder_at_a_server_that_is_cut_off_loses_in_time() {
    // A server takes longer to notice that it is cut off than the session lasts.
    let mut servers = ZookeeperServers::start_with(3, &["syncLimit=40"]);
    let leader = servers.leader().unwrap();
    let follower = (leader + 1) % 3;
    let at = |number: usize| format!("zookeeper://{}", servers.addresses()[number]);
    let (here, there) = (locks(&at(follower), LEASE).await, locks(&at(leader), LONG).await);
    for round in 0..3 {
        let guard = granted(&here, "x").await;
        // At different times after a renewal.
        tokio::time::sleep(LEASE * (round + 1) / 9).await;
        servers.cut(follower);
        let next = soon("the end of the session", there.mutex("x").lock()).await.unwrap();
        assert!(!guard.is_held(), "another has it");
        // What the server says now is what it said before.
        servers.heal(follower);
        next.unlock().await.unwrap();
        soon("an answer", guard.unlock()).await.unwrap_err();
    }
}

/// 70. The leader is killed: the same sessions go on with the next one, and no hold is lost.
#[tokio::test]
async fn a_leader_that_is_killed_costs_no_hold() {
    let mut servers = ZookeeperServers::start_with(3, &[]);
    let locks = locks(&servers.url(), LONG).await;
    let guard = locks.mutex("x").lock().await.unwrap();
    let leader = servers.leader().unwrap();
    servers.kill(leader);
    until("a new leader", async || servers.leader().is_some_and(|new| new != leader)).await;
    until("no risk", async || guard.state() == LeaseState::Held).await;
    let next = granted(&locks, "y").await;
    assert!(next.fencing_token() > guard.fencing_token(), "a new epoch");
    guard.unlock().await.unwrap();
}

/// 71. Most servers stand still for longer than a session lasts, and sessions live on with them: the hold is lost by
/// its own clock all the same, and its node is gone when they go on.
#[tokio::test]
async fn without_a_majority_a_hold_is_lost_by_our_clock() {
    let servers = ZookeeperServers::start_with(3, &[]);
    let here = locks(&servers.url(), LEASE).await;
    let guard = here.mutex("x").lock().await.unwrap();
    let start = std::time::Instant::now();
    (0..3).for_each(|number| servers.pause(number));
    soon("the loss", guard.lost()).await;
    assert!(start.elapsed() <= LEASE);
    tokio::time::sleep(LEASE).await;
    (0..3).for_each(|number| servers.resume(number));
    // They have to agree on who leads first.
    let options = ZookeeperOptions::new(&servers.url()).unwrap().timeout(BOUND);
    let there = Locks::builder(Arc::new(options.connect().await.unwrap())).lease(LONG).build().unwrap();
    let next = granted(&there, "x").await;
    assert!(!guard.is_held() && next.fencing_token() > guard.fencing_token());
    drop(guard);
    assert!(here.shutdown(BOUND).await.unreleased.is_empty());
    assert!(next.is_held());
}

/// The answer to the making of a node is lost: the node is found by its name. It is ours if somebody waits for it yet,
/// and otherwise removed.
#[tokio::test]
async fn a_node_whose_making_was_not_answered_is_found() {
    let place = Place::new("/found").await;
    let proxy = Proxy::new(place.address());
    let lock = client(&place.url_at(proxy.address())).await;
    let warm = claim("x", "warm", LONG);
    lock.try_lock(&warm).await.unwrap().unwrap();
    lock.unlock(&warm).await.unwrap();
    let raw = &place.raw;
    for (owner, wait, dropped) in [("tries", false, false), ("waits", true, false), ("leaves", true, true)] {
        let lost = claim("x", owner, LONG);
        proxy.hold_s2c();
        let mut asking =
            Box::pin(async { if wait { lock.lock(&lost).await.map(Some) } else { lock.try_lock(&lost).await } });
        let made = until("the node", async || nodes(raw, "x").await.len() == 1);
        tokio::select! {
            () = made => {}
            answer = &mut asking => panic!("{answer:?} before the answer"),
        }
        let node = nodes(raw, "x").await;
        let asking = (!dropped).then_some(asking);
        proxy.reset();
        proxy.forward();
        if let Some(asking) = asking {
            let grant = soon("the grant", asking).await.unwrap().unwrap();
            assert_eq!(nodes(raw, "x").await, node);
            let stat = raw.check_stat(&format!("/oarlock/x/{}", node[0])).await.unwrap().unwrap();
            let (data, base) = raw.get_data("/oarlock-tokens").await.unwrap();
            let addition = String::from_utf8(data).unwrap().parse().unwrap_or(0);
            assert_eq!(grant.token.get() as i64, (base.ctime + 1) * 1000 + addition + stat.czxid - base.czxid);
        }
        // Dropped, it was the first in line all the same.
        assert_eq!(soon("the release", lock.unlock(&lost)).await.unwrap(), Unlocked::Released);
        assert_eq!(nodes(raw, "x").await, [""; 0]);
    }
}

/// Waiting costs three requests when it begins and none while it lasts; a release wakes one, which looks no more; six
/// requests in all.
#[tokio::test]
async fn a_contended_lock_costs_six_requests_whatever_the_crowd() {
    for crowd in [2, 1000] {
        let servers = ZookeeperServers::start();
        // A thousand lists of a thousand nodes go over one session.
        let options = ZookeeperOptions::new(&servers.url()).unwrap().timeout(BOUND);
        let lock = Arc::new(options.connect().await.unwrap());
        let first = claim("x", "first", LONG);
        lock.lock(&first).await.unwrap();
        let raw = raw(&servers).await;
        // By the session of these claims, which is known by how long it lasts.
        let packets = || {
            let connections = servers.ask(0, "cons").unwrap();
            let ours = connections.lines().find(|line| line.contains(&format!("to={}", LONG.as_millis()))).unwrap();
            ["recved=", "sent="].map(|what| {
                let (_, count) = ours.split_once(what).unwrap();
                count.split(',').next().unwrap().parse::<u64>().unwrap()
            })
        };
        let [received, sent] = packets();
        let start = std::time::Instant::now();
        let waiting: Vec<_> = (0..crowd)
            .map(|number| {
                let lock = Arc::clone(&lock);
                tokio::spawn(async move {
                    let waits = claim("x", &number.to_string(), LONG);
                    lock.lock(&waits).await.unwrap();
                    assert_eq!(lock.unlock(&waits).await.unwrap(), Unlocked::Released);
                })
            })
            .collect();
        until("all in line", async || nodes(&raw, "x").await.len() == crowd + 1).await;
        lock.unlock(&first).await.unwrap();
        for waiter in waiting {
            soon("its turn", waiter).await.unwrap();
        }
        let now = packets();
        let (asked, told) = (now[0] - received, now[1] - sent);
        let crowd = crowd as u64;
        // Pings, looks at the nodes of all; and the first one's release, which is told as anybody's, and looked after.
        let others = 8 + start.elapsed().as_secs() + start.elapsed().as_secs() / 5 * (crowd * 2).div_ceil(200);
        assert!(asked <= 6 * crowd + others, "{asked} requests for {crowd}, and {others} others");
        // What is sent beyond the answers is watches that fired: two of the next for each release, and the holder's own.
        assert!(
            told <= asked + 3 * crowd + others,
            "{told} packets for {asked} requests of {crowd}, and {others} others"
        );
    }
}

/// A lease above the longest session is refused, and says what to do.
#[tokio::test]
async fn a_lease_is_as_long_as_the_servers_allow() {
    let longest = Duration::from_secs(3);
    let servers = ZookeeperServers::start_with(1, &["maxSessionTimeout=3000"]);
    let lock = client(&servers.url()).await;
    assert_eq!(lock.capabilities().min_lease, Duration::from_secs(1));
    let before: Instant = lock.clock().now();
    let fits = claim("x", "a", longest);
    let grant = lock.try_lock(&fits).await.unwrap().unwrap();
    assert!(grant.valid_until <= lock.clock().now() + longest && grant.valid_until > before);
    lock.unlock(&fits).await.unwrap();
    let settings: Vec<_> = lock.doctor().await.unwrap().into_iter().map(|finding| finding.setting).collect();
    assert!(settings.iter().any(|setting| setting.contains("maxSessionTimeout")), "{settings:?}");
    let locks = Locks::builder(lock).lease(LONG).build().unwrap();
    let error = locks.mutex("x").lock().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("maxSessionTimeout"), "{error}");
    assert!(locks.inspect("x").await.unwrap().holder().is_none());
    // One that nobody chose is as long as they allow.
    let unchosen = Locks::new(client(&servers.url()).await);
    for _ in 0..2 {
        let guard = unchosen.mutex("y").lock().await.unwrap();
        assert!(guard.remaining() <= longest);
        guard.unlock().await.unwrap();
    }
    let guard = locks.mutex("x").lease(longest).lock().await.unwrap();
    assert!(tokio::time::timeout(longest * 2, guard.lost()).await.is_err(), "renewed in time");
}

/// The nodes of a user are its own, and a chroot that is not there is named.
#[tokio::test]
async fn a_user_keeps_others_out() {
    let address = Place::new("/app").await.address();
    let ours = client(&format!("zookeeper://us:secret@{address}/app")).await;
    let held = claim("x", "ours", LONG);
    ours.try_lock(&held).await.unwrap().unwrap();
    let theirs = client(&format!("zookeeper://them:secret@{address}/app")).await;
    let error = theirs.try_lock(&claim("x", "theirs", LONG)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(!format!("{error:?}{theirs:?}").contains("secret"));
    assert_eq!(ours.unlock(&held).await.unwrap(), Unlocked::Released);

    let nowhere = ZookeeperOptions::new(&format!("zookeeper://{address}/nowhere")).unwrap().connect().await;
    let error = nowhere.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("/nowhere"), "{error}");
}

/// Its own settings are read, and a lease that no session can give is refused.
#[tokio::test]
async fn settings_are_read_and_leases_checked() {
    let place = Place::new("/settings").await;
    let mut registry = Registry::new();
    registry.register(ZookeeperFactory);
    let url = format!("{}?timeout=3s&user=us&password=secret&prefix=app/locks", place.url());
    let locks = registry.connect(Config::from_url(&url).unwrap()).await.unwrap();
    let error = locks.mutex("x").lease(Duration::from_millis(500)).lock().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("lease"), "{error}");
    let guard = locks.mutex("x").lease(LEASE).lock().await.unwrap();
    let raw = &place.raw;
    raw.auth("digest", b"us:secret").await.unwrap();
    assert_eq!(raw.list_children("/app/locks/x").await.unwrap().len(), 1);
    guard.unlock().await.unwrap();
    for (setting, part) in [
        ("auth=x", "auth is digest or sasl"),
        ("auth=sasl", "sasl needs user and password"),
        ("user=u", "of user and password, one needs the other"),
        ("password=p", "of user and password, one needs the other"),
        ("timeoud=1s", "timeout"),
        ("cert=/x", "of cert and key, one needs the other"),
        ("key=/x", "of cert and key, one needs the other"),
        ("cert=/x&key=/y", "/x cannot be read"),
        ("ca=/x", "/x cannot be read"),
    ] {
        let wrong = Config::from_url(&format!("{}?{setting}", place.url())).unwrap();
        let error = registry.connect(wrong).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(part), "{error}");
    }
}

/// Closed, its sessions end on the servers at once, and nothing more can be asked.
#[tokio::test]
async fn what_is_closed_leaves_nothing() {
    let place = Place::new("/closed").await;
    let lock = ZookeeperOptions::new(&place.url()).unwrap().connect().await.unwrap();
    let held = claim("x", "a", LONG);
    lock.try_lock(&held).await.unwrap().unwrap();
    lock.close().await.unwrap();
    let raw = &place.raw;
    assert_eq!(nodes(raw, "x").await, [""; 0]);
    assert_eq!(lock.try_lock(&claim("x", "b", LONG)).await.unwrap_err().kind(), ErrorKind::Closed);
}

/// The runtime is gone on which a claim was made, and with it what served its connection: whoever asks on is told so,
/// and a release ends the session as soon as the servers can be reached.
#[test]
fn what_was_begun_on_a_runtime_that_is_gone_is_bounded() {
    let servers = ZookeeperServers::start();
    let proxy = Proxy::new(servers.addresses()[0]);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gone = runtime();
    let options = ZookeeperOptions::new(&format!("zookeeper://{}", proxy.address())).unwrap();
    let held = claim("x", "holder", LONG);
    let lock = gone.block_on(async {
        let lock = options.timeout(Duration::from_secs(5)).connect().await.unwrap();
        lock.try_lock(&held).await.unwrap().unwrap();
        let mut notices = lock.notices();
        proxy.refuse();
        proxy.reset();
        assert_eq!(soon("the risk", notices.next()).await, Some(Notice::AtRisk(held.owner.clone())));
        lock
    });
    drop(gone);
    let (refused, answer) = std::sync::mpsc::channel();
    let (released, left) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            refused.send(lock.try_lock(&held).await.unwrap_err().kind()).unwrap();
            proxy.forward();
            until("a release", async || matches!(lock.unlock(&held).await, Ok(Unlocked::NotHeld))).await;
            released.send(nodes(&raw(&servers).await, "x").await)
        })
    });
    assert_eq!(answer.recv_timeout(BOUND).unwrap(), ErrorKind::Unknown);
    assert_eq!(left.recv_timeout(BOUND).unwrap(), [""; 0]);
}
