//! PostgreSQL: ShedLock's table.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::by_hand;
use crate::common::{LONG, claim, connect, granted, in_background, lasting, until};
use crate::shedlock::{self, Java, Site, refused};
use lock_core::{DistributedLock, ListQuery, Unlocked};
use lock_sql::{PostgresLock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use test_servers::{PgBouncer, PostgresServer};

/// As in ShedLock's documentation.
const TABLE: &str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL,
    locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";

const NOW: &str = "timezone('utc', CURRENT_TIMESTAMP)";

struct Postgres(PostgresServer);

async fn site() -> Postgres {
    let server = PostgresServer::start();
    by_hand::run(&server, TABLE).await;
    Postgres(server)
}

impl Site for Postgres {
    type Java = Program;

    fn address(&self) -> SocketAddr {
        self.0.address()
    }

    fn url_at(&self, address: SocketAddr) -> String {
        PostgresServer::url_at(address)
    }

    async fn connect(&self, options: ServerOptions) -> Arc<dyn DistributedLock> {
        PostgresLock::with_shedlock(options).await.unwrap()
    }

    async fn java(&self, by: &'static str) -> Program {
        let mut connection = by_hand::raw(&self.0).await;
        // A JVM's zone is that of its connections, and makes no difference.
        sqlx::query("SET TIME ZONE 'Asia/Tokyo'").execute(&mut connection).await.unwrap();
        Program { connection, by }
    }

    async fn run(&self, statement: &str) {
        by_hand::run(&self.0, statement).await;
    }

    async fn keep_table(&self) -> impl Sized {
        let mut connection = by_hand::raw(&self.0).await;
        connection.execute(sqlx::raw_sql("BEGIN; LOCK TABLE shedlock")).await.unwrap();
        connection
    }

    async fn table_is_waited_for(&self) -> bool {
        by_hand::number(&self.0, "SELECT count(*) FROM pg_locks WHERE relation = 'shedlock'::regclass AND NOT granted")
            .await
            > 0
    }
}

struct Program {
    connection: PgConnection,
    by: &'static str,
}

impl Program {
    async fn changes(&mut self, statement: &str, job: &str, time: Duration) -> bool {
        let statement = AssertSqlSafe(statement.replace(":now", NOW));
        let query = sqlx::query(statement).bind(job).bind(self.by).bind(time.as_secs_f64());
        query.execute(&mut self.connection).await.unwrap().rows_affected() > 0
    }
}

impl Java for Program {
    async fn locks(&mut self, job: &str, at_most: Duration) -> bool {
        let insert = "INSERT INTO shedlock(name, lock_until, locked_at, locked_by)
            VALUES($1, :now + make_interval(secs => $3), :now, $2) ON CONFLICT (name) DO UPDATE
            SET lock_until = :now + make_interval(secs => $3), locked_at = :now, locked_by = $2
            WHERE shedlock.name = $1 AND shedlock.lock_until <= :now";
        let update =
            "UPDATE shedlock SET lock_until = :now + make_interval(secs => $3), locked_at = :now, locked_by = $2
            WHERE shedlock.name = $1 AND shedlock.lock_until <= :now";
        self.changes(insert, job, at_most).await || self.changes(update, job, at_most).await
    }

    async fn unlocks(&mut self, job: &str, at_least: Duration) -> bool {
        let unlock = "UPDATE shedlock SET lock_until = CASE WHEN locked_at + make_interval(secs => $3) > :now
            THEN locked_at + make_interval(secs => $3) ELSE :now END WHERE name = $1 AND locked_by = $2";
        self.changes(unlock, job, at_least).await
    }

    async fn extends(&mut self, job: &str, at_most: Duration) -> bool {
        let extend = "UPDATE shedlock SET lock_until = :now + make_interval(secs => $3)
            WHERE name = $1 AND locked_by = $2 AND lock_until > :now";
        self.changes(extend, job, at_most).await
    }
}

macro_rules! scenarios {
    ($($scenario:ident)*) => {
        $(#[tokio::test]
        async fn $scenario() {
            shedlock::$scenario(site().await).await;
        })*
    };
}

scenarios! {
    what_they_hold what_we_hold until_when_they_hold what_is_kept a_row_that_is_gone a_late_request
    a_late_release_of_the_same_owner a_late_eviction_of_the_same_host seen_and_evicted
    a_name_that_is_too_long all_of_them_exclude_each_other
}

/// Over connections that a pooler lends, by the URL, under a prefix of its own, and in a schema that our tables are not
/// in.
#[tokio::test]
async fn in_other_places() {
    let server = PostgresServer::start();
    by_hand::run(&server, "CREATE SCHEMA locks").await;
    by_hand::run(&server, TABLE).await;
    let pooler = PgBouncer::start(&server);
    let options = ServerOptions::new(&pooler.url()).unwrap().pooler(true).prefix("app").table("locks.oarlock").unwrap();
    let lock = PostgresLock::with_shedlock(options.shedlock("shedlock").unwrap()).await.unwrap();
    let held = claim("x", "ours");
    lock.try_lock(&held).await.unwrap().unwrap();
    let mut java = Program { connection: PgConnection::connect(&server.url()).await.unwrap(), by: "worker-7" };
    assert!(!java.locks("app/x", LONG).await && java.locks("x", LONG).await);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    assert!(java.locks("app/x", LONG).await);
    assert_eq!(lock.try_lock(&claim("x", "other")).await.unwrap(), None);
    let listed = lock.list(&ListQuery::default()).await.unwrap().locks;
    assert_eq!(listed.iter().map(|lock| lock.name.as_str()).collect::<Vec<_>>(), ["x"]);
    let plain = connect(&format!("{}?shedlock=public.shedlock", server.url())).await.unwrap();
    assert!(plain.mutex("x").try_lock().await.unwrap().is_none());
    assert!(plain.mutex("app/x").try_lock().await.unwrap().is_none());
    assert!(plain.mutex("y").try_lock().await.unwrap().is_some());
}

/// What a table keeps of a time does not make ours end early.
#[tokio::test]
async fn times_of_every_kind() {
    const LEASE: Duration = Duration::from_millis(1300);
    let site = Postgres(PostgresServer::start());
    for kind in ["TIMESTAMP(0)", "TIMESTAMP(3)"] {
        site.run("DROP TABLE IF EXISTS shedlock").await;
        site.run(&TABLE.replace("TIMESTAMP", kind)).await;
        let (lock, mut java) = (site.client().await, site.java("worker-7").await);
        let held = lasting("x", "ours", LEASE);
        let began = Instant::now();
        lock.try_lock(&held).await.unwrap().unwrap();
        until("its end", async || java.locks("x", LEASE).await).await;
        assert!(began.elapsed() >= LEASE, "{kind}: after {:?}", began.elapsed());
        let next = claim("x", "next");
        granted(in_background(&lock, &next)).await;
        assert_eq!(lock.unlock(&next).await.unwrap(), Unlocked::Released);
        assert!(java.locks("x", LEASE).await, "{kind}");
    }
}

/// What cannot be right is refused on connecting.
#[tokio::test]
async fn what_is_no_table_of_shedlock() {
    let server = PostgresServer::start();
    let with = async |parameters: &str| connect(&format!("{}?{parameters}", server.url())).await;
    refused(with("shedlock=shedlock").await, "no table shedlock");
    refused(with("shedlock=shed-lock").await, "cannot be");
    by_hand::run(&server, &TABLE.replace("lock_until TIMESTAMP ", "lock_until TIMESTAMPTZ ")).await;
    refused(with("shedlock=shedlock").await, "lock_until of the table public.shedlock is timestamptz");
    by_hand::run(&server, &format!("DROP TABLE shedlock; {}", TABLE.replace(", PRIMARY KEY (name)", ""))).await;
    refused(with("shedlock=shedlock").await, "primary key");
    by_hand::run(&server, &format!("DROP TABLE shedlock; {TABLE}")).await;
    refused(with("shedlock=shedlock&mode=session&table=by_sessions").await, "mode=row");
    let named = ServerOptions::new(&server.url()).unwrap().shedlock("shedlock").unwrap();
    refused(PostgresLock::with(named.clone()).await, "with_shedlock");
    refused(PostgresLock::with_shedlock(ServerOptions::new(&server.url()).unwrap()).await, "named");
    // Who may not use it is told so.
    by_hand::run(&server, "CREATE ROLE app LOGIN PASSWORD 'x'; GRANT SELECT ON shedlock TO app").await;
    PostgresLock::with_shedlock(named).await.unwrap();
    by_hand::run(&server, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app").await;
    by_hand::run(&server, "REVOKE INSERT, UPDATE, DELETE ON shedlock FROM app").await;
    let app =
        connect(&format!("{}?shedlock=shedlock", server.url().replace("postgres:s3cr3t", "app:x"))).await.unwrap();
    let tried = app.mutex("x").try_lock().await;
    refused(tried, "INSERT and UPDATE");
    assert_eq!(app.inspect("x").await.unwrap().holders, []);
}

/// Their table has no index in our order. What must be read whole for it is costly by our settings, and PostgreSQL would
/// compile it, for tenths of a second each time.
#[tokio::test]
async fn nothing_is_compiled() {
    let site = site().await;
    let lock = site.client_at(site.address()).await;
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    assert_eq!(lock.list(&ListQuery::default()).await.unwrap().locks.len(), 1);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    let sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = 'oarlock'";
    let mut raw = by_hand::raw(&site.0).await;
    let sessions: Vec<i32> = sqlx::query_scalar(sessions).fetch_all(&mut raw).await.unwrap();
    assert!(!sessions.is_empty());
    for session in sessions {
        let libraries = std::fs::read_to_string(format!("/proc/{session}/maps")).unwrap();
        assert!(!libraries.contains("llvmjit"), "session {session} has loaded the compiler");
    }
}
