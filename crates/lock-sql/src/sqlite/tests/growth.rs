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
async fn a_million_names_go_while_a_lock_is_used() {
    const NAMES: i64 = 1_000_000;
    let file = File::new();
    let lock = file.made().await;
    let calm = latency(&lock).await;
    let mut raw = file.raw().await;
    let fill = "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1000000)
        INSERT INTO oarlock_lock SELECT 't/used ' || n, NULL, 0, 0, 0, 0, 0, n FROM number";
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
    assert!(meanwhile < calm * 5, "a lock took {calm:?}, and {meanwhile:?} meanwhile");
    let floor = "SELECT value FROM oarlock_meta WHERE key = 'floor'";
    assert!(sqlx::query_scalar::<_, i64>(floor).fetch_one(&mut raw).await.unwrap() >= NAMES);
}
