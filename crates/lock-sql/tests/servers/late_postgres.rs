//! PostgreSQL: a request is asked again over another connection, and its first copy lands after what was asked later.

use std::sync::Arc;
use std::time::Duration;

use crate::by_hand::{client, number, run, text};
use crate::common::{claim, showing, soon};
use lock_core::{DistributedLock, LockName, LockValue, Mode, Proclaimed, Unlocked};
use lock_sql::{PostgresLock, PostgresSessionLock, ServerOptions};
use test_servers::{PostgresServer, Proxy};

/// How the lock `x` is held, and what somebody asks of it who knows how often that was asked before.
const MARK: &str = "SELECT owner FROM oarlock_lock WHERE name = 'oarlock/x'";
const RESIZES: &str = "SELECT resizes FROM oarlock_lock WHERE name = 'oarlock/x'";

/// Of one connection: on a second one, which the sweep in the background may make, no statement would be known yet.
fn options(proxy: &Proxy) -> ServerOptions {
    let options = ServerOptions::new(&PostgresServer::url_at(proxy.address())).unwrap();
    options.timeout(Duration::from_secs(6)).connections(1)
}

/// 273. What was said last stays, by rows and by sessions.
#[tokio::test]
async fn a_value_that_lands_late_replaces_no_later_one() {
    let server = PostgresServer::start();
    let proxy = Proxy::new(server.address());
    let options = || options(&proxy);
    let rows: Arc<dyn DistributedLock> = Arc::new(PostgresLock::with(options()).await.unwrap());
    let sessions = PostgresSessionLock::with(options().table("sessions").unwrap()).await.unwrap();
    for lock in [rows, Arc::new(sessions)] {
        let held = showing(claim("x", "holder"), "first");
        let shows = async |text| {
            let value = LockValue::new(text).unwrap();
            assert_eq!(soon("an answer", lock.proclaim(&held, &value)).await.unwrap(), Proclaimed::Shown);
        };
        lock.try_lock(&held).await.unwrap().unwrap();
        // The connection knows the statement from now on.
        shows("second").await;
        proxy.hold_c2s_of_present();
        proxy.end_for_clients();
        shows("early").await;
        shows("later").await;
        proxy.forward();
        for _ in 0..20 {
            assert_eq!(lock.holder(&held.name).await.unwrap().unwrap().value.unwrap().as_str(), "later");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// 274. The last who changed how many permits there are has changed it, whatever lands then: also where a copy was
/// answered that the semaphore is not in use, or where another client changed it.
#[tokio::test]
async fn a_change_of_permits_that_lands_late_undoes_no_later_one() {
    let server = PostgresServer::start();
    let proxy = Proxy::new(server.address());
    let lock = PostgresLock::with(options(&proxy)).await.unwrap();
    let other = client(&server).await;
    let (mut held, name) = (claim("x", "holder"), LockName::new("x").unwrap());
    held.mode = Mode::Permits { take: 1, of: 5 };
    lock.try_lock(&held).await.unwrap().unwrap();
    assert!(lock.resize(&name, 4).await.unwrap());
    proxy.hold_c2s_of_present();
    proxy.end_for_clients();
    assert!(soon("an answer", lock.resize(&name, 3)).await.unwrap());
    assert!(other.resize(&name, 6).await.unwrap());
    proxy.forward();
    for _ in 0..20 {
        assert_eq!(text(&server, MARK).await, "permits#6");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    // A copy of what was asked when it had been asked so often.
    let late = async |asked: i64| run(&server, &format!("SELECT oarlock_resize('oarlock/x', 2, {asked})")).await;
    let asked = number(&server, RESIZES).await;
    assert!(other.resize(&name, 6).await.unwrap(), "which is as many as there are");
    late(asked).await;
    assert_eq!(text(&server, MARK).await, "permits#6");
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    let asked = number(&server, RESIZES).await;
    assert!(!other.resize(&name, 2).await.unwrap());
    lock.try_lock(&held).await.unwrap().unwrap();
    late(asked).await;
    assert_eq!(text(&server, MARK).await, "permits#5");
}
