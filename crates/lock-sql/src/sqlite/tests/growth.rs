//! Very many names, each used once.

use super::*;

/// How long a lock and its release take, in the middle of a thousand.
async fn latency(lock: &SqliteLock) -> Duration {
    let mut took = Vec::new();
    for _ in 0..1000 {
        let began = Real::now();
        let claim = claim("busy", &format!("{began:?}"), LEASE);
        taken(lock, &claim).await;
        lock.unlock(&claim).await.unwrap();
        took.push(began.elapsed());
    }
    took.sort_unstable();
    took[took.len() / 2]
}

/// Their rows go while a client runs, and a lock takes as long meanwhile as before.
#[tokio::test]
async fn fifty_thousand_names_go_while_a_lock_is_used() {
    const NAMES: i64 = 50_000;
    let file = File::new();
    let lock = file.made().await;
    let calm = latency(&lock).await;
    let mut raw = file.raw().await;
    let fill = "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 50000)
        INSERT INTO oarlock_lock SELECT 't/used ' || n, NULL, 0, 0, 0, 0, 0, n FROM number;
        INSERT INTO oarlock_lock VALUES ('t/', NULL, -1, -1, -1, -1, 1, 9223372036854775807)";
    sqlx::raw_sql(fill).execute(&mut raw).await.unwrap();
    let left = "SELECT count(*) FROM oarlock_lock WHERE boot = 0";
    let mut latencies = Vec::new();
    let sweeping = async {
        loop {
            let left: i64 = sqlx::query_scalar(left).fetch_one(&mut raw).await.unwrap();
            let took = latency(&lock).await;
            if left < NAMES {
                latencies.push(took);
            }
            if left == 0 {
                break;
            }
        }
    };
    timeout(Duration::from_secs(500), sweeping).await.expect("they go");
    latencies.sort_unstable();
    let meanwhile = latencies[latencies.len() / 2];
    println!("a lock took {calm:?}, and {meanwhile:?} meanwhile");
    // Whatever else a machine has to do now and had not then.
    assert!(meanwhile < calm * 20, "a lock took {calm:?}, and {meanwhile:?} meanwhile");
    let floor = "SELECT value FROM oarlock_meta WHERE key = 'floor'";
    assert_eq!(sqlx::query_scalar::<_, i64>(floor).fetch_one(&mut raw).await.unwrap(), NAMES);
    // What is no token is none to go on from.
    let nonsense = "DELETE FROM oarlock_lock WHERE name = 't/' RETURNING 1";
    assert_eq!(sqlx::query_scalar::<_, i64>(nonsense).fetch_one(&mut raw).await.unwrap(), 1);
    assert_eq!(sqlx::query_scalar::<_, i64>(floor).fetch_one(&mut raw).await.unwrap(), NAMES);
}
