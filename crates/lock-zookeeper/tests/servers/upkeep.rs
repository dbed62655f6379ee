//! What is done beside all requests: sessions that are shared and end, nodes that nobody holds, watch events that are
//! lost.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{LONG, soon, until};
use crate::events::Events;
use crate::raw::{PERSISTENT, is_watched, raw};
use lock_core::{Claim, DistributedLock, LockName, Locks, OwnerId, Unlocked};
use lock_zookeeper::ZookeeperLock;
use test_servers::ZookeeperServers;
use tracing::Level;
use zookeeper_client::{Acl, AuthId, Client, Permission};

/// Short enough to wait for its end.
const LEASE: Duration = Duration::from_secs(4);

fn claim(name: &str, owner: &str, lease: Duration) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store(owner), lease)
}

async fn nodes(raw: &Client) -> Vec<String> {
    let mut nodes = raw.list_children("/oarlock/x").await.unwrap_or_default();
    nodes.sort_by_key(|node| node.rsplit('-').next().unwrap().to_owned());
    nodes
}

/// 136. Each of hundreds of leases is of another length, as the times to deadlines are, and a server takes ten
/// connections from one host: more would be refused, and the sessions of holders could not come back.
#[tokio::test]
async fn leases_of_all_lengths_need_few_connections() {
    let servers = ZookeeperServers::start_with(1, &["maxClientCnxns=10"]);
    let lock = ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap();
    let held = claim("held", "holder", LONG);
    lock.try_lock(&held).await.unwrap().unwrap();
    for number in 0..300 {
        let lease = LEASE + Duration::from_millis(number * 119);
        let claim = claim("x", &number.to_string(), lease);
        let grant = lock.try_lock(&claim).await.unwrap().unwrap();
        assert!(grant.valid_until <= lock.clock().now() + lease);
        assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
    }
    let connections = servers.ask(0, "cons").unwrap().lines().filter(|line| line.contains("queued=")).count();
    assert!(connections <= 8, "{connections} connections");
    assert!(lock.renew(std::slice::from_ref(&held)).await.pop().unwrap().is_ok());
}

/// 137. A release fails for as long as it is repeated, and the session lives on: the node goes as soon as it can.
#[tokio::test]
async fn what_was_given_back_in_vain_goes_while_the_session_lives() {
    let servers = ZookeeperServers::start();
    let (lock, raw) = (ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap(), raw(&servers).await);
    let held = claim("x", "holder", LEASE);
    // Of another lock in the same session, which goes on.
    let other = claim("y", "other", LEASE);
    lock.try_lock(&held).await.unwrap().unwrap();
    lock.try_lock(&other).await.unwrap().unwrap();
    let may = |permission| [Acl::new(permission, AuthId::anyone())];
    let all_but_delete = Permission::READ | Permission::WRITE | Permission::CREATE | Permission::ADMIN;
    raw.set_acl("/oarlock/x", &may(all_but_delete), None).await.unwrap();
    lock.unlock(&held).await.unwrap_err();
    assert_eq!(nodes(&raw).await.len(), 1);
    raw.set_acl("/oarlock/x", &may(Permission::ALL), None).await.unwrap();
    until("the node is gone", async || {
        lock.renew(std::slice::from_ref(&other)).await;
        nodes(&raw).await.is_empty()
    })
    .await;
    assert_eq!(lock.unlock(&other).await.unwrap(), Unlocked::Released, "in the same session");
}

/// 137. A wait is given up, and nobody undoes it: its place in line goes, and the next is granted.
#[tokio::test]
async fn a_place_that_nobody_waits_in_goes_while_the_session_lives() {
    let servers = ZookeeperServers::start();
    let connect = async || Arc::new(ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap());
    let (holder, left, raw) = (connect().await, connect().await, raw(&servers).await);
    let (held, wait, other) = (claim("x", "holder", LONG), claim("x", "waits", LEASE), claim("y", "other", LEASE));
    holder.try_lock(&held).await.unwrap().unwrap();
    left.try_lock(&other).await.unwrap().unwrap();
    {
        let in_line = until("its place", async || nodes(&raw).await.len() == 2);
        tokio::select! {
            () = in_line => {}
            granted = left.lock(&wait) => panic!("{granted:?} while another holds"),
        }
    }
    until("the place is gone", async || {
        left.renew(std::slice::from_ref(&other)).await;
        nodes(&raw).await.len() == 1
    })
    .await;
    assert_eq!(left.unlock(&other).await.unwrap(), Unlocked::Released, "in the same session");
}

/// 138. The event that wakes a waiter is lost: it costs seconds, and not the waiter.
#[tokio::test]
async fn a_lost_event_costs_no_waiter() {
    let servers = ZookeeperServers::start();
    let (events, raw) = (Events::of(servers.addresses()[0]).await, raw(&servers).await);
    let holder = ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap();
    let held = claim("x", "holder", LONG);
    holder.try_lock(&held).await.unwrap().unwrap();
    let lock = events.client().await;
    let waiting = tokio::spawn(async move { lock.lock(&claim("x", "waits", LONG)).await });
    let node = format!("/oarlock/x/{}", nodes(&raw).await[0]);
    until("it waits", async || is_watched(&servers, &raw, &node).await).await;
    events.lose();
    assert_eq!(holder.unlock(&held).await.unwrap(), Unlocked::Released);
    soon("the grant", waiting).await.unwrap().unwrap();
    assert!(events.lost() > 0);
}

/// 138. The event that tells of the end of a hold is lost: the loss is told seconds later, and not at the lease's end.
#[tokio::test]
async fn a_lost_event_hides_no_loss_for_long() {
    let servers = ZookeeperServers::start();
    let (events, raw) = (Events::of(servers.addresses()[0]).await, raw(&servers).await);
    let locks = Locks::builder(events.client().await).lease(LONG).build().unwrap();
    let guard = locks.mutex("x").lock().await.unwrap();
    let held = format!("/oarlock/x/{}", nodes(&raw).await[0]);
    until("it watches", async || servers.ask(0, "wchp").unwrap().lines().any(|line| line == held)).await;
    events.lose();
    raw.delete(&held, None).await.unwrap();
    soon("the loss", guard.lost()).await;
    assert!(events.lost() > 0);
}

/// Who connects to servers whose settings void a promise is warned, and does not wait for that.
#[tokio::test]
async fn unsafe_settings_are_warned_of_on_connecting() {
    let servers = ZookeeperServers::start_with(1, &["tickTime=2000", "minSessionTimeout=1000"]);
    let log = Log::default();
    let writer = log.clone();
    let _logging = tracing::subscriber::set_default(
        tracing_subscriber::fmt().with_max_level(Level::WARN).with_writer(move || writer.clone()).finish(),
    );
    let _lock = ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap();
    until("the warning", async || String::from_utf8_lossy(&log.0.lock().unwrap()).contains("tickTime=2000")).await;
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What keeps a host from its locks is found before it does: connections that are nearly all, and nodes of another kind
/// in the line of a lock.
#[tokio::test]
async fn the_doctor_finds_strangers_and_a_server_that_is_nearly_full() {
    let servers = ZookeeperServers::start_with(1, &["maxClientCnxns=8"]);
    let (lock, raw) = (ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap(), raw(&servers).await);
    let held = claim("x", "holder", LONG);
    lock.try_lock(&held).await.unwrap().unwrap();
    let settings = async || {
        let found = lock.doctor().await.unwrap();
        found.into_iter().map(|finding| finding.setting).collect::<Vec<_>>().join("; ")
    };
    let before = settings().await;
    assert!(!before.contains("maxClientCnxns") && !before.contains("node="), "{before}");
    let stray = "/oarlock/x/_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lock-0000000006";
    raw.create(stray, b"", &PERSISTENT).await.unwrap();
    let stranger = "/oarlock/x/_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-__WRIT__0000000007";
    raw.create(stranger, b"", &PERSISTENT).await.unwrap();
    // It needs two connections itself.
    let _more = [crate::raw::raw(&servers).await, crate::raw::raw(&servers).await, crate::raw::raw(&servers).await];
    let after = settings().await;
    assert!(after.contains("maxClientCnxns=8, ") && after.contains(stranger) && after.contains(stray), "{after}");
}
