//! Very many names, each used once.

use super::*;

fn middle(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

/// How long a lock and its release take, in the middle of a thousand, and two bare statements at the same time: whatever else
/// the machine has to do slows both.
async fn latency(lock: &SqliteLock, bare: &mut SqliteConnection) -> (Duration, Duration) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        let began = Real::now();
        let claim = claim("busy", &format!("{began:?}"), LEASE);
        taken(lock, &claim).await;
        lock.unlock(&claim).await.unwrap();
        ours.push(began.elapsed());
        let began = Real::now();
        for _ in 0..2 {
            sqlx::raw_sql("UPDATE bare SET number = number + 1").execute(&mut *bare).await.unwrap();
        }
        theirs.push(began.elapsed());
    }
    (middle(ours), middle(theirs))
}

/// Their rows go while a client runs, and no lock waits for that.
#[tokio::test]
async fn fifty_thousand_names_go_while_a_lock_is_used() {
    const NAMES: i64 = 50_000;
    let file = File::new();
    let lock = file.made().await;
    let mut raw = file.raw().await;
    // In a file of its own, in which nothing is deleted.
    let other = File::new();
    drop(other.made().await);
    let mut bare = other.raw().await;
    sqlx::raw_sql("CREATE TABLE bare (number integer); INSERT INTO bare VALUES (0)").execute(&mut bare).await.unwrap();
    let fill = "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 50000)
        INSERT INTO oarlock_lock SELECT 't/used ' || n, NULL, 0, 0, 0, 0, 0, n FROM number;
        INSERT INTO oarlock_lock VALUES ('t/', NULL, -1, -1, -1, -1, 1, 9223372036854775807)";
    sqlx::raw_sql(fill).execute(&mut raw).await.unwrap();
    let left = "SELECT count(*) FROM oarlock_lock WHERE boot = 0";
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let sweeping = async {
        loop {
            let left: i64 = sqlx::query_scalar(left).fetch_one(&mut raw).await.unwrap();
            let (our, their) = latency(&lock, &mut bare).await;
            if left < NAMES {
                ours.push(our);
                theirs.push(their);
            }
            if left == 0 {
                break;
            }
        }
    };
    timeout(Duration::from_secs(500), sweeping).await.expect("they go");
    let (ours, theirs) = (middle(ours), middle(theirs));
    println!("a lock took {ours:?} meanwhile, bare statements {theirs:?}");
    assert!(ours < theirs * 20, "a lock took {ours:?}, bare statements {theirs:?}");
    let floor = "SELECT value FROM oarlock_meta WHERE key = 'floor'";
    assert_eq!(sqlx::query_scalar::<_, i64>(floor).fetch_one(&mut raw).await.unwrap(), NAMES);
    // What is no token is none to go on from.
    let nonsense = "DELETE FROM oarlock_lock WHERE name = 't/' RETURNING 1";
    assert_eq!(sqlx::query_scalar::<_, i64>(nonsense).fetch_one(&mut raw).await.unwrap(), 1);
    assert_eq!(sqlx::query_scalar::<_, i64>(floor).fetch_one(&mut raw).await.unwrap(), NAMES);
}
