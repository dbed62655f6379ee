//! What there is in a store, counted by other means than ours.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::{Column, ConnectOptions, Connection, Row};

/// In milliseconds.
const A_DAY: i64 = 86_400_000;

/// What Redis itself deletes by then.
pub(super) const FOR_A_DAY: &str = "keys that go within a day";

pub(super) type Count = BTreeMap<String, u64>;

/// How a store is asked, by the first word of its URL.
pub(super) fn of(url: &str) -> BoxFuture<'static, Result<Count, String>> {
    let url = url.to_owned();
    async move {
        let (scheme, rest) = url.split_once(':').ok_or("no URL")?;
        let hosts = rest.trim_start_matches("//").split(['/', '?']).next().unwrap_or_default().to_owned();
        match scheme {
            "sqlite" => sqlite(Path::new(rest)),
            "postgres" => postgres(&url).await,
            "mysql" => mysql(&url).await,
            "redis" => redis(&url).await,
            "memcached" => memcached(&hosts),
            "zookeeper" => zookeeper(&hosts),
            "etcd" => etcd(&hosts),
            other => Err(format!("nobody can count in {other}")),
        }
    }
    .boxed()
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn sqlite(file: &Path) -> Result<Count, String> {
    let connection = rusqlite::Connection::open(file).map_err(text)?;
    let mut tables = connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").map_err(text)?;
    let names = tables.query_map([], |row| row.get::<_, String>(0)).map_err(text)?;
    let names = names.collect::<rusqlite::Result<Vec<_>>>().map_err(text)?;
    let count = |name: String| {
        let rows: i64 = connection.query_row(&format!("SELECT count(*) FROM \"{name}\""), [], |row| row.get(0))?;
        Ok((format!("rows of {name}"), rows.unsigned_abs()))
    };
    names
        .into_iter()
        .filter(|name| name.starts_with("oarlock"))
        .map(count)
        .collect::<rusqlite::Result<_>>()
        .map_err(text)
}

/// The rows of our tables, each counted by a question of its own; and how many sessions and locks of sessions there are.
const POSTGRES: &str = "SELECT 'rows of ' || table_name, \
    (xpath('/row/c/text()', query_to_xml(format('SELECT count(*) AS c FROM %I.%I', table_schema, table_name), false, true, '')))[1]::text::bigint \
    FROM information_schema.tables WHERE table_name LIKE 'oarlock%' \
    UNION ALL SELECT 'sessions', count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() \
    UNION ALL SELECT 'advisory locks', count(*) FROM pg_locks WHERE locktype = 'advisory'";

async fn postgres(url: &str) -> Result<Count, String> {
    let url = url.split('?').next().unwrap_or(url);
    let options: sqlx::postgres::PgConnectOptions = url.parse().map_err(text)?;
    let mut connection = options.disable_statement_logging().connect().await.map_err(text)?;
    let rows = sqlx::query(POSTGRES).fetch_all(&mut connection).await.map_err(text)?;
    connection.close().await.map_err(text)?;
    Ok(rows.iter().map(|row| (row.get(0), row.get::<i64, _>(1).unsigned_abs())).collect())
}

async fn mysql(url: &str) -> Result<Count, String> {
    let url = url.split('?').next().unwrap_or(url);
    let options: sqlx::mysql::MySqlConnectOptions = url.parse().map_err(text)?;
    let mut connection = options.disable_statement_logging().connect().await.map_err(text)?;
    let mut count = Count::new();
    for row in sqlx::query("SHOW TABLES LIKE 'oarlock%'").fetch_all(&mut connection).await.map_err(text)? {
        let name: String = row.try_get(row.columns()[0].ordinal()).map_err(text)?;
        let question = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM `{name}`"));
        let rows: i64 = sqlx::query_scalar(question).fetch_one(&mut connection).await.map_err(text)?;
        count.insert(format!("rows of {name}"), rows.unsigned_abs());
    }
    let sessions = "SELECT count(*) FROM information_schema.processlist WHERE user = 'root' AND id <> connection_id()";
    let sessions: i64 = sqlx::query_scalar(sessions).fetch_one(&mut connection).await.map_err(text)?;
    count.insert("sessions".to_owned(), sessions.unsigned_abs());
    connection.close().await.map_err(text)?;
    Ok(count)
}

async fn redis(url: &str) -> Result<Count, String> {
    let client = redis::Client::open(url).map_err(text)?;
    let mut connection = client.get_multiplexed_async_connection().await.map_err(text)?;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.map_err(text)?;
    let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await.map_err(text)?;
    let (mut stay, mut go, mut known) = (0, 0, 0);
    for key in keys {
        let left: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut connection).await.map_err(text)?;
        match left {
            _ if key.starts_with("oarlock-client:") => known += 1,
            0..=A_DAY => go += 1,
            _ => stay += 1,
        }
    }
    // One of them is this.
    let others = clients.lines().count() as u64 - 1;
    let counted = [("keys that stay", stay), (FOR_A_DAY, go), ("keys of clients", known), ("connections", others)];
    Ok(counted.map(|(what, number)| (what.to_owned(), number)).into())
}

fn memcached(host: &str) -> Result<Count, String> {
    let answer = ask(host, b"stats\r\nquit\r\n").map_err(text)?;
    let number = |key: &str| {
        let line = answer.lines().find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(key));
        line.and_then(|number| number.trim().parse::<u64>().ok())
            .ok_or_else(|| format!("memcached does not tell {key}"))
    };
    Ok([("items".to_owned(), number("curr_items ")?)].into())
}

/// Of all servers: who is connected. Of each the same: what there is.
fn zookeeper(hosts: &str) -> Result<Count, String> {
    let mut count = Count::new();
    for host in hosts.split(',') {
        let answer = ask(host, b"mntr").map_err(|error| format!("{host}: {error}"))?;
        for line in answer.lines() {
            let Some((key, Ok(number))) =
                line.split_once('\t').map(|(key, number)| (key, number.trim().parse::<u64>()))
            else {
                continue;
            };
            match key {
                "zk_znode_count" => drop(count.insert("nodes".to_owned(), number)),
                "zk_ephemerals_count" => drop(count.insert("ephemeral nodes".to_owned(), number)),
                "zk_watch_count" => *count.entry("watches".to_owned()).or_default() += number,
                // One of them asks this.
                "zk_num_alive_connections" => {
                    *count.entry("connections".to_owned()).or_default() += number.saturating_sub(1);
                }
                _ => {}
            }
        }
    }
    Ok(count)
}

fn ask(host: &str, question: &[u8]) -> io::Result<String> {
    let mut stream = TcpStream::connect(host)?;
    stream.write_all(question)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map(|_| answer)
}

fn etcd(hosts: &str) -> Result<Count, String> {
    let ask = |words: &[&str]| {
        let mut command = Command::new("etcdctl");
        let asked = command.env("ETCDCTL_API", "3").args(["--endpoints", hosts]).args(words).output().map_err(text)?;
        match asked.status.success() {
            true => Ok(String::from_utf8_lossy(&asked.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&asked.stderr).into_owned()),
        }
    };
    let keys = ask(&["get", "", "--prefix", "--keys-only"])?.lines().filter(|line| !line.is_empty()).count() as u64;
    // The first line is a title.
    let leases = ask(&["lease", "list"])?.lines().count().saturating_sub(1) as u64;
    Ok([("keys".to_owned(), keys), ("leases".to_owned(), leases)].into())
}
