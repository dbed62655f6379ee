//! A request is sent again because its connection turned out to be broken, and nobody knows what became of the first.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{BOUND, claim, soon, until};
use lock_core::{DistributedLock, ErrorKind, LockName, Result, Unlocked};
use lock_sql::{MySqlLock, PostgresLock, ServerOptions};
use test_servers::{MariaDbServer, PostgresServer, Proxy};

/// A host that is busy with other tests may take its time.
fn options(url: &str) -> ServerOptions {
    ServerOptions::new(url).unwrap().timeout(Duration::from_secs(6))
}

/// A store, and two clients of it, one of which comes through the proxy.
struct Clients {
    proxy: Proxy,
    proxied: Arc<dyn DistributedLock>,
    other: Arc<dyn DistributedLock>,
}

impl Clients {
    async fn of_postgres(server: &PostgresServer) -> Self {
        let proxy = Proxy::new(server.address());
        let proxied = PostgresLock::with(options(&PostgresServer::url_at(proxy.address()))).await.unwrap();
        let other = PostgresLock::with(options(&server.url())).await.unwrap();
        Self { proxy, proxied: Arc::new(proxied), other: Arc::new(other) }
    }

    async fn of_mysql(server: &MariaDbServer) -> Self {
        let proxy = Proxy::new(server.address());
        let proxied = format!("mysql://root@{}/mysql", proxy.address());
        let proxied = MySqlLock::with(options(&proxied)).await.unwrap();
        let other = MySqlLock::with(options(&server.url())).await.unwrap();
        Self { proxy, proxied: Arc::new(proxied), other: Arc::new(other) }
    }

    /// The proxied client has a connection that it has used just now.
    async fn connected(&self) {
        // It makes the lock's row too.
        let warm = claim("x", "warm");
        self.proxied.try_lock(&warm).await.unwrap().unwrap();
        self.proxied.unlock(&warm).await.unwrap();
    }

    async fn holder(&self) -> Option<String> {
        let status = self.other.inspect(&LockName::new("x").unwrap()).await.unwrap();
        status.into_holder().map(|holder| holder.owner.as_str().to_owned())
    }

    /// The first is done and its answer lost, and there is no connection for the second: that is no refusal.
    async fn no_connection_for_the_second(&self) {
        self.connected().await;
        let late = claim("x", "late");
        self.proxy.hold_s2c();
        let cut = async {
            until("the first is done", async || self.holder().await.as_deref() == Some("late")).await;
            self.proxy.cut();
        };
        let (attempt, ()) = soon("an answer", async { tokio::join!(self.proxied.try_lock(&late), cut) }).await;
        let error = attempt.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        self.proxy.forward();
        until("the release", async || matches!(self.proxied.unlock(&late).await, Ok(Unlocked::Released))).await;
    }

    /// The first is late, and the second denied: nothing is left behind that takes the lock when the first arrives.
    async fn the_second_is_denied(&self) {
        let held = claim("x", "holder");
        self.connected().await;
        self.other.try_lock(&held).await.unwrap().unwrap();
        self.proxy.hold_c2s_of_present();
        self.proxy.end_for_clients();
        let denied: Result<_> = soon("an answer", self.proxied.try_lock(&claim("x", "late"))).await;
        assert_eq!(denied.unwrap(), None);
        self.other.unlock(&held).await.unwrap();
        self.proxy.forward();
        for _ in 0..20 {
            assert_eq!(self.holder().await, None);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(self.proxied.try_lock(&claim("x", "next")).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn postgres_no_connection_for_the_second() {
    let server = PostgresServer::start();
    Clients::of_postgres(&server).await.no_connection_for_the_second().await;
}

#[tokio::test]
async fn mysql_no_connection_for_the_second() {
    let server = MariaDbServer::start();
    Clients::of_mysql(&server).await.no_connection_for_the_second().await;
}

#[tokio::test]
async fn postgres_the_second_is_denied() {
    let server = PostgresServer::start();
    Clients::of_postgres(&server).await.the_second_is_denied().await;
}

#[tokio::test]
async fn mysql_the_second_is_denied() {
    let server = MariaDbServer::start();
    Clients::of_mysql(&server).await.the_second_is_denied().await;
}

/// Who stands in line and then cannot reach the server is not refused either: the place in line has to be undone.
#[tokio::test]
async fn what_fails_in_line_is_no_refusal() {
    let (postgres, mysql) = (PostgresServer::start(), MariaDbServer::start());
    for clients in [Clients::of_postgres(&postgres).await, Clients::of_mysql(&mysql).await] {
        let held = claim("x", "holder");
        clients.other.try_lock(&held).await.unwrap().unwrap();
        let mut waiter = claim("x", "waiter");
        waiter.fair = true;
        let cut = async {
            let name = LockName::new("x").unwrap();
            until("in line", async || clients.other.inspect(&name).await.unwrap().waiters.len() == 1).await;
            clients.proxy.cut();
        };
        let (waited, ()) = tokio::time::timeout(BOUND, async { tokio::join!(clients.proxied.lock(&waiter), cut) })
            .await
            .expect("an answer");
        let error = waited.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        clients.proxy.forward();
        until("the release", async || clients.proxied.unlock(&waiter).await.is_ok()).await;
    }
}
