//! What the suite cannot see of MySQL's locks by sessions, on MariaDB: what ends a session, and what is left of its
//! lock then.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::by_sessions;
use crate::common::{LONG, claim, connect, in_background, in_line, renewed, showing, soon, until};
use futures_util::future::join_all;
use lock_core::{
    Config, DistributedLock, ErrorKind, Kept, ListQuery, LockName, LockValue, Registry, Renewal, StoreToken, Unlocked,
};
use lock_sql::{MySqlFactory, MySqlLock, MySqlSessionLock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
use test_servers::{MariaDbServer, Proxy};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const HOUR: Duration = Duration::from_secs(3600);

/// How many notes of holds there are whose session has the server's lock.
const LOCKED: &str = "SELECT COUNT(*) FROM oarlock_hold WHERE name <> '' AND IS_USED_LOCK(k) <=> session";

pub(crate) async fn client(server: &MariaDbServer) -> Arc<MySqlSessionLock> {
    client_of(&server.url()).await
}

async fn client_of(url: &str) -> Arc<MySqlSessionLock> {
    let options = ServerOptions::new(url).unwrap().timeout(Duration::from_secs(6));
    Arc::new(MySqlSessionLock::with(options).await.unwrap())
}

/// An address that leads to one server, and then to another, as that of a fleet's primary.
struct Address {
    own: SocketAddr,
    leads_to: watch::Sender<SocketAddr>,
}

impl Address {
    async fn of(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (own, leads_to) = (listener.local_addr().unwrap(), watch::Sender::new(server));
        let mut leading = leads_to.subscribe();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let server = *leading.borrow_and_update();
                let mut led_away = leading.clone();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = led_away.changed() => {}
                    }
                });
            }
        });
        Self { own, leads_to }
    }

    /// The connections that are there break.
    fn lead_to(&self, server: SocketAddr) {
        self.leads_to.send_replace(server);
    }
}

pub(crate) async fn raw(server: &MariaDbServer) -> MySqlConnection {
    MySqlConnection::connect(&server.url()).await.unwrap()
}

pub(crate) async fn run(server: &MariaDbServer, script: &str) {
    raw(server).await.execute(sqlx::raw_sql(AssertSqlSafe(script))).await.unwrap();
}

pub(crate) async fn number(server: &MariaDbServer, query: &str) -> i64 {
    let query = format!("SELECT CAST(({query}) AS SIGNED)");
    sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut raw(server).await).await.unwrap()
}

/// The session that a note names.
pub(crate) async fn session_of(server: &MariaDbServer, name: &str) -> i64 {
    number(server, &format!("SELECT session FROM oarlock_hold WHERE name = 'oarlock/{name}'")).await
}

/// 248. Something ends a holder's session while its process lives: nobody else has the lock before its lease is over,
/// it is renewed and released over other connections, and who waits has it then.
#[tokio::test]
async fn a_hold_outlives_its_session() {
    let server = MariaDbServer::start();
    let proxy = Proxy::new(server.address());
    let one = client_of(&format!("mysql://root@{}/mysql", proxy.address())).await;
    let other = client(&server).await;
    let gone = async || number(&server, LOCKED).await == 0;
    let waits = async || in_line(&*other, "x").await == 1;
    for by_the_server in [true, false] {
        let end = async || {
            assert_eq!(number(&server, LOCKED).await, 1);
            match by_the_server {
                true => run(&server, &format!("KILL {}", session_of(&server, "x").await)).await,
                false => proxy.reset(),
            }
        };
        by_sessions::outlives_its_session(&*one, &other, &by_the_server.to_string(), end, gone, waits).await;
        assert_eq!(in_line(&*other, "x").await, 0);
        other.unlock(&claim("x", &format!("next {by_the_server}"))).await.unwrap();
    }
}

/// 256. A release is done, or a hold is kept, and the answer is lost: nobody says that the lock was not held until then.
#[tokio::test]
async fn an_end_whose_answer_is_lost_is_unknown() {
    let server = MariaDbServer::start();
    let proxy = Proxy::new(server.address());
    let lock = client_of(&format!("mysql://root@{}/mysql", proxy.address())).await;
    by_sessions::ended_unheard(lock, &proxy, &*client(&server).await).await;
}

/// 267. A hold is evicted, and its owner gives it back before it could hear of that: it is told.
#[tokio::test]
async fn who_was_evicted_is_told_at_its_release() {
    let server = MariaDbServer::start();
    by_sessions::evicted_before_its_release(&*client(&server).await, &*client(&server).await).await;
}

/// 249. A client falls silent: the server ends its session when its lease is over, and who waits has the lock then, not
/// sooner. The session of who waits is never idle.
#[tokio::test]
async fn a_silent_session_ends_with_its_lease() {
    const LEASE: Duration = Duration::from_secs(3);
    let server = MariaDbServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    by_sessions::ends_with_its_lease(&*one, &other, LEASE, LEASE / 3).await;
}

/// 250. A waiter's client is gone: its session leaves the line while others hold the lock.
#[tokio::test]
async fn who_waits_and_is_gone_leaves_the_line() {
    let server = MariaDbServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    one.try_lock(&claim("x", "holder")).await.unwrap().unwrap();
    let waiting = in_background(&other, &claim("x", "gone"));
    until("the waiter in line", async || in_line(&*one, "x").await == 1).await;
    waiting.abort();
    until("nobody in line", async || in_line(&*one, "x").await == 0).await;
}

/// 251. Tables are of one mode, and clients of the other are refused; so are tables that were made before there were
/// modes. Neither a pooler nor ShedLock's table goes with sessions, nor a server that is one of several.
#[tokio::test]
async fn modes_do_not_mix() {
    let server = MariaDbServer::start();
    let with = |query: &str| format!("{}?{query}", server.url());
    let refused = async |query: &str| {
        let error = connect(&with(query)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        for said in ["mode=row", "mode=session", "`table`"] {
            assert!(error.to_string().contains(said), "{error}");
        }
    };
    connect(&with("table=rows")).await.unwrap();
    refused("table=rows&mode=session").await;
    run(&server, "DELETE FROM rows_meta WHERE name = 'mode'").await;
    refused("table=rows&mode=session").await;
    connect(&with("table=rows&mode=row")).await.unwrap();
    connect(&with("table=sessions&mode=session")).await.unwrap();
    refused("table=sessions").await;
    refused("table=sessions&mode=row").await;
    // Even where the tables of both are there.
    let rows = ServerOptions::new(&server.url()).unwrap().table("sessions").unwrap();
    run(&server, &rows.mysql_schema()).await;
    refused("table=sessions").await;
    connect(&with("table=sessions&mode=session")).await.unwrap();
    for (query, kind) in
        [("mode=session&pooler=true", ErrorKind::Unsupported), ("mode=session&shedlock=x", ErrorKind::Invalid)]
    {
        assert_eq!(connect(&with(query)).await.unwrap_err().kind(), kind, "{query}");
    }
    let galera = MariaDbServer::start_with(&["--wsrep-on=ON", "--wsrep-cluster-address=gcomm://"]);
    let error = connect(&format!("{}?mode=session", galera.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("Galera"), "{error}");
}

/// 251. Many clients come at once to a database without tables: all of them find the same.
#[tokio::test]
async fn many_make_the_tables_at_once() {
    let server = MariaDbServer::start();
    let clients = join_all((0..8).map(|_| client(&server))).await;
    let tried =
        join_all(clients.iter().enumerate().map(|(number, lock)| async move {
            lock.try_lock(&claim("x", &number.to_string())).await.unwrap().is_some()
        }));
    assert_eq!(tried.await.into_iter().filter(|granted| *granted).count(), 1);
}

/// 252. The server starts anew, and gives the numbers of its sessions again: a session that has one of an earlier one
/// is not ended in its place. Holds are forgotten, which holders are told, and tokens are above all that were given,
/// also where they are ahead of the clock.
#[tokio::test]
async fn a_restart_gives_numbers_again_and_no_tokens() {
    let mut server = MariaDbServer::start();
    let one = client(&server).await;
    let ahead = one.try_lock(&claim("y", "clock")).await.unwrap().unwrap().token.get() + (1 << 42);
    one.raise_tokens(&LockName::new("x").unwrap(), StoreToken::new(ahead).unwrap()).await.unwrap();
    // Later than what a client takes to connect.
    for number in 0..30 {
        one.try_lock(&claim(&format!("before {number}"), &number.to_string())).await.unwrap().unwrap();
    }
    let held = claim("x", "holder");
    let first = one.try_lock(&held).await.unwrap().unwrap().token;
    assert_eq!(first.get(), ahead + 31);
    let before = session_of(&server, "x").await;
    server.restart();
    let two = client(&server).await;
    let next = claim("x", "next");
    let token = two.try_lock(&next).await.unwrap().expect("nobody holds it any more").token;
    assert!(token.get() > first.get() + 1000);
    // One of these has the number that the first had, which it was told to end by.
    let more: Vec<_> = (0..60).map(|number| claim(&format!("n{number}"), &format!("owner {number}"))).collect();
    for claim in &more {
        two.try_lock(claim).await.unwrap().unwrap();
    }
    let again = format!("SELECT COUNT(*) FROM oarlock_hold WHERE session = {before}");
    assert_eq!(number(&server, &again).await, 1);
    // What ended first, its session or its hold, it cannot know.
    assert_eq!(one.unlock(&held).await.unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(number(&server, LOCKED).await, 61, "one was ended");
}

/// 255. A replica takes over that lacks the last holds, and clients go on over the address that they know: tokens are
/// above all that were given, and a session of the replica is not taken for one of the primary's. Back at the primary,
/// which did not end meanwhile, the same.
#[tokio::test]
async fn tokens_rise_over_a_failover() {
    let primary = MariaDbServer::start_with(&["--log-bin", "--server-id=1", "--binlog-format=ROW"]);
    let replica = MariaDbServer::start_with(&["--log-bin", "--server-id=2", "--binlog-format=ROW"]);
    let follow = async |server: &MariaDbServer, from: &Proxy| {
        let (host, port) = (from.address().ip(), from.address().port());
        // As the manual says: the primary that comes back has rows that the other never saw.
        let from = format!("MASTER_HOST='{host}', MASTER_PORT={port}, MASTER_USER='root'");
        run(server, &format!("SET GLOBAL slave_exec_mode = 'IDEMPOTENT'; CHANGE MASTER TO {from}; START SLAVE")).await;
    };
    let clients = Address::of(primary.address()).await;
    let lock = client_of(&format!("mysql://root@{}/mysql", clients.own)).await;
    let mut last = StoreToken::new(1).unwrap();
    for (from, to) in [(&primary, &replica), (&replica, &primary)] {
        let replication = Proxy::new(from.address());
        follow(to, &replication).await;
        let kept = claim("kept", &format!("holder at {}", from.address()));
        last = lock.try_lock(&kept).await.unwrap().unwrap().token.max(last);
        let noted = format!("SELECT COUNT(*) FROM oarlock_hold WHERE owner = '{}'", kept.owner.as_str());
        until("the hold at the replica", async || {
            let tables = "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME = 'oarlock_hold'";
            number(to, tables).await == 1 && number(to, &noted).await == 1
        })
        .await;
        // These are lost.
        replication.hold();
        let lost = |number| format!("lost {number} at {}", from.address());
        for number in 0..30 {
            let lost = claim(&lost(number), &format!("{number} at {}", from.address()));
            last = lock.try_lock(&lost).await.unwrap().unwrap().token.max(last);
        }
        run(to, "STOP SLAVE; RESET SLAVE ALL").await;
        clients.lead_to(to.address());
        assert!(lock.try_lock(&claim("kept", "early")).await.unwrap().is_none(), "its hold came over");
        let next = lock.try_lock(&claim(&lost(0), &format!("next at {}", to.address()))).await.unwrap();
        let next = next.expect("what the replica lacks is documented").token;
        assert!(next > last, "{next:?} is not above {last:?}");
        last = next;
        // The number that it names is that of another session here.
        lock.evict(&kept.name).await.unwrap().unwrap();
        assert_eq!(number(to, LOCKED).await, 1);
    }
}

/// 83. The server's clock is set forward by an hour: who holds goes on to hold, as long as its session lives.
#[tokio::test]
async fn server_wall_plus_1h() {
    let (server, clock) = MariaDbServer::start_with_clock();
    // Nor does its note go, which is over.
    let sweeps = async { drop(client(&server).await) };
    by_sessions::holds_on_ahead(&*client(&server).await, &clock, sweeps).await;
}

/// 83. It is set back by an hour: who holds goes on to hold, a hold whose session is gone lasts a lease longer at most,
/// and tokens rise.
#[tokio::test]
async fn server_wall_minus_1h() {
    let (server, clock) = MariaDbServer::start_with_clock();
    by_sessions::ends_behind(&client(&server).await, client(&server).await, &clock, 4).await;
}

/// 99. What the manual names is enough to lock, to wait and to give up.
#[tokio::test]
async fn rights() {
    let server = MariaDbServer::start();
    run(&server, "CREATE DATABASE app; CREATE USER app IDENTIFIED BY 'hunter2'; GRANT SELECT ON app.* TO app").await;
    let url = format!("mysql://app:hunter2@{}/app?table=own&mode=session&timeout=6s", server.address());
    let error = connect(&url).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("oarlock schema"), "{error}");
    let mut registry = Registry::new();
    registry.register(MySqlFactory);
    run(&server, &format!("USE app; {}", registry.schema(Config::from_url(&url).unwrap()).unwrap())).await;
    run(&server, "GRANT INSERT, UPDATE, DELETE ON app.* TO app").await;
    by_sessions::rights_are_enough(connect(&url).await.unwrap(), connect(&url).await.unwrap()).await;
    run(&server, "ALTER TABLE app.own_hold CHANGE lease_us l BIGINT NOT NULL").await;
    let error = connect(&url).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("shape"), "{error}");
}

/// 253. What is held by sessions and by rows in one server are different locks, and so are those of different tables
/// and databases, and names that the server's own locks take for one.
#[tokio::test]
async fn other_tables_and_cases_are_other_locks() {
    let server = MariaDbServer::start();
    run(&server, "CREATE DATABASE app").await;
    let rows = MySqlLock::connect(&server.url(), "oarlock").await.unwrap();
    rows.try_lock(&claim("x", "row")).await.unwrap().unwrap();
    for table in ["sessions", "others", "app.sessions"] {
        let options = |table: &str| ServerOptions::new(&server.url()).unwrap().table(table).unwrap();
        let lock = MySqlSessionLock::with(options(table)).await.unwrap();
        lock.try_lock(&claim("x", table)).await.unwrap().expect("another lock");
        lock.try_lock(&claim("X", &format!("{table} X"))).await.unwrap().expect("another name");
        lock.try_lock(&claim(&"x".repeat(200), &format!("{table} long"))).await.unwrap().expect("a long name");
        let same = if table.contains('.') { table.to_owned() } else { format!("mysql.{table}") };
        let other = MySqlSessionLock::with(options(&same)).await.unwrap();
        assert!(other.try_lock(&claim("x", "other")).await.unwrap().is_none(), "the same tables by another name");
        let began = Instant::now();
        let waits = claim("x", "waits");
        let waiting = tokio::time::timeout(Duration::from_millis(100), other.lock(&waits));
        assert!(waiting.await.is_err() && began.elapsed() >= Duration::from_millis(100));
    }
}

/// No request has the server make a temporary file: on one that cannot, MariaDB crashes.
#[tokio::test]
async fn the_servers_disk_is_left_alone() {
    let server = MariaDbServer::start();
    let lock = client(&server).await;
    lock.try_lock(&claim("x", "holder")).await.unwrap().unwrap();
    let waits = claim("x", "in line");
    let waiting = in_background(&lock, &waits);
    until("it is in line", async || in_line(&*lock, "x").await == 1).await;
    let shows = showing(claim("z", "shows"), &"x".repeat(4096));
    lock.try_lock(&shows).await.unwrap().unwrap();
    lock.proclaim(&shows, &LockValue::new("y".repeat(4096)).unwrap()).await.unwrap();
    let listed = lock.list(&ListQuery::default()).await.unwrap();
    assert!(listed.locks.len() == 2 && listed.locks.iter().all(|status| status.holder().is_some()), "{listed:?}");
    assert_eq!(lock.keep(&shows, LONG).await.unwrap(), Kept::Kept);
    assert!(lock.holder(&shows.name).await.unwrap().is_some_and(|holder| holder.kept));
    lock.doctor().await.unwrap();
    waiting.abort();
    soon("the end of the wait", lock.unlock(&waits)).await.unwrap();
    lock.evict(&LockName::new("x").unwrap()).await.unwrap().unwrap();
    let made =
        "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Created_tmp_disk_tables'";
    assert_eq!(number(&server, made).await, 0);
}

/// 254. What is of no use any more goes, and what is goes not: notes of the dead, values whose owners are gone, and who
/// does not wait.
#[tokio::test]
async fn what_the_dead_leave_goes() {
    let server = MariaDbServer::start();
    let lock = client(&server).await;
    let (held, kept) = (showing(claim("held", "holder"), "1"), showing(claim("kept", "keeper"), "2"));
    lock.try_lock(&held).await.unwrap().unwrap();
    lock.try_lock(&kept).await.unwrap().unwrap();
    assert_eq!(lock.keep(&kept, HOUR).await.unwrap(), Kept::Kept);
    // The holder's session has the server's lock, although its note is long over.
    run(
        &server,
        "INSERT INTO oarlock_hold (k, name, owner, session, lease_us, since_us, expires_us)
            SELECT CONCAT('dead ', seq), CONCAT('oarlock/', seq), 'dead', 0, 0, 0, 1 FROM mysql.seq_1_to_2000;
        UPDATE oarlock_hold SET expires_us = 1 WHERE owner = 'holder';
        INSERT INTO oarlock_shown VALUES ('gone', 'dead 1', '3', 0, 0);
        UPDATE oarlock_shown SET at_us = 0;
        INSERT INTO oarlock_wait VALUES (4000000000, 'dead 1', 'oarlock/1', 'dead', 0)",
    )
    .await;
    until("the sweep", async || {
        let sweeper = client(&server).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        sweeper.close().await.unwrap();
        let left =
            "SELECT (SELECT COUNT(*) FROM oarlock_hold WHERE owner = 'dead') + (SELECT COUNT(*) FROM oarlock_wait)
            + (SELECT COUNT(*) FROM oarlock_shown WHERE owner = 'gone')";
        number(&server, left).await == 0
    })
    .await;
    assert_eq!(number(&server, "SELECT COUNT(*) FROM oarlock_shown").await, 2);
    assert!(lock.holder(&kept.name).await.unwrap().is_some_and(|holder| holder.kept));
    assert!(matches!(renewed(&*lock, &held).await, Renewal::Held { .. }));
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    assert_eq!(number(&server, "SELECT COUNT(*) FROM oarlock_shown").await, 1);
}
