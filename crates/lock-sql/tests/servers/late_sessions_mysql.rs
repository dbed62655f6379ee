//! MySQL's locks by sessions: what undoes or keeps a claim, and lands between two steps of another request.

use std::time::Duration;

use crate::common::{LONG, claim, showing, until};
use crate::sessions_mysql::{client, number, raw, run, session_of};
use lock_core::{DistributedLock, Kept, Unlocked};
use lock_sql::{MySqlSessionLock, ServerOptions};
use sqlx::{AssertSqlSafe, Executor, MySqlConnection};
use test_servers::{MariaDbServer, Proxy};

/// Longer than any step takes.
const PATIENTLY: Duration = Duration::from_secs(10);

/// From now on the server writes down what it is asked.
async fn write_down(server: &MariaDbServer) {
    run(server, "SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = 1").await;
}

/// What the server was asked like this, and not by the tests.
fn asked(what: &str, like: &str) -> String {
    format!("SELECT {what} FROM mysql.general_log WHERE argument LIKE '{like}' AND argument NOT LIKE '%general_log%'")
}

/// The last script like this that the server was asked to run: its statements.
async fn script(server: &MariaDbServer, like: &str) -> Vec<String> {
    let query = asked("argument", like) + " ORDER BY event_time DESC LIMIT 1";
    let text: String = sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut raw(server).await).await.unwrap();
    text.split(';').map(|statement| statement.trim().to_owned()).collect()
}

async fn execute(connection: &mut MySqlConnection, statement: &str) {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await.unwrap();
}

/// 277. A claim that shows a value is undone because its session broke, and made anew in another session. What undoes it
/// lands once more, between the statement that shows the value and the one that writes the note: the value is there.
#[tokio::test]
async fn an_undoing_that_lands_late_takes_no_value() {
    let server = MariaDbServer::start();
    let lock = client(&server).await;
    let held = showing(claim("x", "holder"), "shown");
    write_down(&server).await;
    lock.try_lock(&held).await.unwrap().unwrap();
    let before = session_of(&server, "x").await;
    run(&server, &format!("KILL {before}")).await;
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    assert_eq!(number(&server, "SELECT COUNT(*) FROM oarlock_shown").await, 0);

    let grants = script(&server, "%GET_LOCK(%INSERT IGNORE INTO oarlock_hold%").await;
    let undoes = script(&server, "DELETE FROM oarlock_hold%DELETE FROM oarlock_shown%").await;
    let [.., takes, shows, notes] = &grants[..] else { panic!("{grants:?}") };
    let of_session = format!("session = {before}");
    assert!(shows.starts_with("INSERT INTO oarlock_shown") && undoes[0].contains(&of_session), "{grants:?} {undoes:?}");
    let (mut session, mut other) = (raw(&server).await, raw(&server).await);
    let own: u64 = sqlx::query_scalar("SELECT CONNECTION_ID()").fetch_one(&mut session).await.unwrap();
    execute(&mut session, takes).await;
    execute(&mut session, shows).await;
    for statement in undoes {
        execute(&mut other, &statement).await;
    }
    let id = |number: u64| (format!(", {number}, "), format!("CONNECTION_ID() = {number}"));
    let ((old, old_condition), (new, new_condition)) = (id(before.unsigned_abs()), id(own));
    execute(&mut session, &notes.replace(&old, &new).replace(&old_condition, &new_condition)).await;
    let holder = lock.holder(&held.name).await.unwrap().expect("it is granted");
    assert_eq!(holder.value.expect("its value").as_str(), "shown");
}

/// 278. A hold that seems to be over is kept by two requests. One goes over another connection, finds that it is over,
/// and ends its session. Before that, the other lands there, which keeps it as long as the session lives: both answer
/// that it is kept.
#[tokio::test]
async fn what_a_session_keeps_before_its_end_counts() {
    let server = MariaDbServer::start();
    let proxy = Proxy::new(server.address());
    let lock = client(&server).await;
    let options = ServerOptions::new(&format!("mysql://root@{}/mysql", proxy.address())).unwrap();
    let slow = MySqlSessionLock::with(options.timeout(PATIENTLY)).await.unwrap();
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    run(&server, "UPDATE oarlock_hold SET expires_us = 1 WHERE owner = 'holder'").await;
    write_down(&server).await;
    proxy.hold_answers_to(["UPDATE oarlock_hold SET owner".to_owned()]);
    let keeping = tokio::spawn({
        let held = held.clone();
        async move { slow.keep(&held, LONG).await }
    });
    let was_asked = asked("COUNT(*)", "UPDATE oarlock_hold SET owner%");
    until("it found none to keep", async || number(&server, &was_asked).await == 1).await;
    assert_eq!(lock.keep(&held, LONG).await.unwrap(), Kept::Kept);
    proxy.forward();
    assert_eq!(keeping.await.unwrap().unwrap(), Kept::Kept);
    assert!(lock.holder(&held.name).await.unwrap().is_some_and(|holder| holder.kept));
}
