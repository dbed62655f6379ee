//! MariaDB: ShedLock's table, with the types of its documentation and with the one that no time zone touches, on a
//! server that is not at UTC.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{claim, connect, granted, in_background, in_line, lasting, renewed, until};
use crate::shedlock::{self, Java, Site, is_found, refused};
use lock_core::{DistributedLock, Renewal, Unlocked};
use lock_sql::{MySqlLock, ServerOptions};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, MySqlConnection};
use test_servers::MariaDbServer;

/// As in ShedLock's documentation, where the type is `TIMESTAMP(3)`.
const TABLE: &str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until :type NOT NULL,
    locked_at :type NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";

struct MariaDb(MariaDbServer);

async fn run(server: &MariaDbServer, statement: &str) {
    let mut raw = MySqlConnection::connect(&server.url()).await.unwrap();
    sqlx::query(AssertSqlSafe(statement)).execute(&mut raw).await.unwrap();
}

/// A server in the zone of Berlin's summer, with a table whose times have this type.
async fn site(kind: &str) -> MariaDb {
    let server = MariaDbServer::start();
    run(&server, "SET GLOBAL time_zone = '+02:00'").await;
    run(&server, &TABLE.replace(":type", kind)).await;
    MariaDb(server)
}

impl Site for MariaDb {
    type Java = Program;

    fn address(&self) -> SocketAddr {
        self.0.address()
    }

    fn url_at(&self, address: SocketAddr) -> String {
        format!("mysql://root@{address}/mysql")
    }

    async fn connect(&self, options: ServerOptions) -> Arc<dyn DistributedLock> {
        MySqlLock::with_shedlock(options).await.unwrap()
    }

    async fn java(&self, by: &'static str) -> Program {
        // Its sessions are in the server's zone.
        let options = MySqlConnectOptions::from_str(&self.0.url()).unwrap().timezone(None::<String>);
        Program { connection: options.connect().await.unwrap(), by }
    }

    async fn run(&self, statement: &str) {
        run(&self.0, statement).await;
    }

    async fn keep_table(&self) -> impl Sized {
        let mut connection = MySqlConnection::connect(&self.0.url()).await.unwrap();
        connection.execute(sqlx::raw_sql("LOCK TABLES shedlock WRITE")).await.unwrap();
        connection
    }

    async fn table_is_waited_for(&self) -> bool {
        let mut raw = MySqlConnection::connect(&self.0.url()).await.unwrap();
        let waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST
            WHERE STATE LIKE 'Waiting for table%' AND INFO LIKE '%shedlock%'";
        sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut raw).await.unwrap() > 0
    }
}

struct Program {
    connection: MySqlConnection,
    by: &'static str,
}

/// What a statement is given.
#[derive(Clone, Copy)]
enum Is {
    Time,
    Job,
    By,
}

impl Program {
    async fn changes(&mut self, statement: &str, values: &[Is], job: &str, time: Duration) -> bool {
        let statement = AssertSqlSafe(statement.replace(":now", "UTC_TIMESTAMP(3)"));
        let query = values.iter().fold(sqlx::query(statement), |query, value| match value {
            Is::Time => query.bind(time.as_micros() as i64),
            Is::Job => query.bind(job),
            Is::By => query.bind(self.by),
        });
        query.execute(&mut self.connection).await.unwrap().rows_affected() > 0
    }
}

impl Java for Program {
    async fn locks(&mut self, job: &str, at_most: Duration) -> bool {
        let insert = "INSERT IGNORE INTO shedlock(name, lock_until, locked_at, locked_by)
            VALUES(?, TIMESTAMPADD(MICROSECOND, ?, :now), :now, ?)";
        let update =
            "UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, ?, :now), locked_at = :now, locked_by = ?
            WHERE name = ? AND lock_until <= :now";
        self.changes(insert, &[Is::Job, Is::Time, Is::By], job, at_most).await
            || self.changes(update, &[Is::Time, Is::By, Is::Job], job, at_most).await
    }

    async fn unlocks(&mut self, job: &str, at_least: Duration) -> bool {
        let unlock = "UPDATE shedlock SET lock_until = IF (TIMESTAMPADD(MICROSECOND, ?, locked_at) > :now ,
            TIMESTAMPADD(MICROSECOND, ?, locked_at), :now) WHERE name = ? AND locked_by = ?";
        self.changes(unlock, &[Is::Time, Is::Time, Is::Job, Is::By], job, at_least).await
    }

    async fn extends(&mut self, job: &str, at_most: Duration) -> bool {
        let extend = "UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, ?, :now)
            WHERE name = ? AND locked_by = ? AND lock_until > :now";
        self.changes(extend, &[Is::Time, Is::Job, Is::By], job, at_most).await
    }
}

macro_rules! scenarios {
    ($($kind:ident $type:literal: $($scenario:ident)*;)*) => {
        $(mod $kind {
            $(#[tokio::test]
            async fn $scenario() {
                super::shedlock::$scenario(super::site($type).await).await;
            })*
        })*
    };
}

scenarios! {
    timestamp "TIMESTAMP(3)": what_they_hold what_we_hold until_when_they_hold what_is_kept a_row_that_is_gone a_late_request
        a_late_release_of_the_same_owner a_late_eviction_of_the_same_host seen_and_evicted a_name_that_is_too_long
        all_of_them_exclude_each_other;
    datetime "DATETIME(3)": what_they_hold what_we_hold until_when_they_hold what_is_kept a_late_eviction_of_the_same_host
        seen_and_evicted all_of_them_exclude_each_other;
}

/// What a table keeps of a time does not make ours end early; that the server's zone is not that of UTC is found where
/// it matters.
#[tokio::test]
async fn times_of_every_kind() {
    const SECOND: Duration = Duration::from_secs(1);
    const LEASE: Duration = Duration::from_millis(1100);
    let site = MariaDb(MariaDbServer::start());
    for (kind, zone, matters) in [
        ("TIMESTAMP", "+02:00", true),
        ("TIMESTAMP(6)", "-11:30", true),
        ("TIMESTAMP(3)", "+00:00", false),
        ("DATETIME", "+02:00", false),
    ] {
        site.run(&format!("SET GLOBAL time_zone = '{zone}'")).await;
        site.run("DROP TABLE IF EXISTS shedlock").await;
        site.run(&TABLE.replace("CURRENT_TIMESTAMP(3)", "'2000-01-01 00:00:00'").replace(":type", kind)).await;
        let (lock, mut java) = (site.client().await, site.java("worker-7").await);
        assert_eq!(is_found(&lock.doctor().await.unwrap()), matters, "{kind} {zone}");
        let held = lasting("x", "ours", LEASE);
        let began = Instant::now();
        lock.try_lock(&held).await.unwrap().unwrap();
        until("its end", async || java.locks("x", LEASE).await).await;
        assert!(began.elapsed() >= LEASE, "{kind} {zone}: after {:?}", began.elapsed());
        // Theirs ends as much early as their column cuts off.
        let next = claim("x", "next");
        granted(in_background(&lock, &next)).await;
        assert!(began.elapsed() >= LEASE * 2 - SECOND, "{kind} {zone}: after {:?}", began.elapsed());
        assert_eq!(lock.unlock(&next).await.unwrap(), Unlocked::Released);
        assert!(java.locks("x", LEASE).await, "{kind} {zone}");
    }
}

/// Two zones whose clocks are changed about now: one leaves out the present hour, by the time of UTC, and to the other
/// it comes twice.
const ZONES: [&str; 4] = [
    "INSERT INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (901, 'N'), (902, 'N')",
    "INSERT INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('Test/Spring', 901), ('Test/Autumn', 902)",
    "INSERT INTO mysql.time_zone_transition_type (Time_zone_id, Transition_type_id, `Offset`, Is_DST, Abbreviation)
        VALUES (901, 0, 0, 0, 'A'), (901, 1, 3600, 1, 'B'), (902, 0, 0, 1, 'A'), (902, 1, -3600, 0, 'B')",
    "INSERT INTO mysql.time_zone_transition (Time_zone_id, Transition_time, Transition_type_id) VALUES
        (901, 0, 0), (901, UNIX_TIMESTAMP() - 1800, 1), (902, 0, 0), (902, UNIX_TIMESTAMP() + 1800, 1)",
];

/// In the hour that is left out, in which theirs fails to write, ours goes on; in the one that comes twice they exclude
/// each other.
#[tokio::test]
async fn while_clocks_are_changed() {
    let site = MariaDb(MariaDbServer::start());
    for statement in ZONES {
        site.run(statement).await;
    }
    site.run("SET GLOBAL time_zone = 'Test/Spring'").await;
    site.run(&TABLE.replace(":type", "TIMESTAMP(3)")).await;
    let (lock, held) = (site.client().await, claim("x", "ours"));
    lock.try_lock(&held).await.unwrap().unwrap();
    assert!(matches!(renewed(&*lock, &held).await, Renewal::Held { .. }));
    let waiting = in_background(&lock, &claim("x", "next"));
    until("it is in line", async || in_line(&*lock, "x").await == 1).await;
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    granted(waiting).await;
    assert_eq!(lock.unlock(&claim("x", "next")).await.unwrap(), Unlocked::Released);
    site.run("DROP TABLE shedlock").await;
    site.run("SET GLOBAL time_zone = 'Test/Autumn'").await;
    site.run(&TABLE.replace(":type", "TIMESTAMP(3)")).await;
    shedlock::what_we_hold(site).await;
}

/// What cannot be right is refused on connecting.
#[tokio::test]
async fn what_is_no_table_of_shedlock() {
    let server = MariaDbServer::start();
    let with = async |parameters: &str| connect(&format!("{}?{parameters}", server.url())).await;
    refused(with("shedlock=shedlock").await, "no table shedlock");
    run(&server, &TABLE.replacen(":type", "VARCHAR(30)", 1).replace(":type", "TIMESTAMP(3)")).await;
    refused(with("shedlock=shedlock").await, "lock_until of the table shedlock is varchar");
    run(&server, "DROP TABLE shedlock").await;
    run(&server, &TABLE.replace(":type", "TIMESTAMP(3)").replace("(name)", "(name, locked_by)")).await;
    refused(with("shedlock=mysql.shedlock").await, "primary key");
    run(&server, "DROP TABLE shedlock").await;
    run(&server, &TABLE.replace(":type", "TIMESTAMP(3)")).await;
    with("shedlock=mysql.shedlock").await.unwrap();
    let named = ServerOptions::new(&server.url()).unwrap().shedlock("shedlock").unwrap();
    refused(MySqlLock::with(named).await, "with_shedlock");
}
