//! Throw-away.
use lock_core::*;
use lock_sql::*;
use sqlx::{ConnectOptions, Executor};
use std::fs::File;
use std::time::{Duration, Instant};
fn claim(name: &str, n: usize) -> Claim {
    Claim::new(
        LockName::new(name).unwrap(),
        OwnerId::from_store(&format!("bench@host:{}#{n:036}", std::process::id())),
        Duration::from_secs(30),
    )
}
fn rt() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = args[2].clone();
    let path = format!("{dir}/locks.db");
    match args[1].as_str() {
        "pair" => rt().block_on(async {
            let mut c = sqlx::sqlite::SqliteConnectOptions::new()
                .filename(format!("{dir}/bare.db"))
                .create_if_missing(true)
                .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
                .synchronous(sqlx::sqlite::SqliteSynchronous::Normal)
                .disable_statement_logging()
                .connect()
                .await
                .unwrap();
            c.execute(
                "CREATE TABLE IF NOT EXISTS l (name TEXT PRIMARY KEY, owner TEXT, expires INTEGER) WITHOUT ROWID",
            )
            .await
            .unwrap();
            let lock = SqliteLock::open(&path, "b").await.unwrap();
            for round in 0..6 {
                let n = 5000;
                let t = Instant::now();
                for i in 0..n {
                    let o = format!("o{i}");
                    sqlx::query("INSERT INTO l (name, owner, expires) VALUES (?,?,?)")
                        .bind("job")
                        .bind(&o)
                        .bind(5i64)
                        .execute(&mut c)
                        .await
                        .unwrap();
                    sqlx::query("DELETE FROM l WHERE name = ? AND owner = ?")
                        .bind("job")
                        .bind(&o)
                        .execute(&mut c)
                        .await
                        .unwrap();
                }
                let bare = t.elapsed();
                let t = Instant::now();
                for i in 0..n {
                    let cl = claim("job", i);
                    lock.try_lock(&cl).await.unwrap().unwrap();
                    lock.unlock(&cl).await.unwrap();
                }
                let ours = t.elapsed();
                let t = Instant::now();
                for i in 0..n {
                    let o = format!("o{i}");
                    sqlx::query("INSERT INTO l (name, owner, expires) VALUES (?,?,?) RETURNING expires")
                        .bind("job")
                        .bind(&o)
                        .bind(5i64)
                        .fetch_all(&mut c)
                        .await
                        .unwrap();
                    sqlx::query("DELETE FROM l WHERE name = ? AND owner = ? RETURNING expires")
                        .bind("job")
                        .bind(&o)
                        .fetch_all(&mut c)
                        .await
                        .unwrap();
                }
                println!("  bare returning {:?}", t.elapsed() / n as u32);
                let t = Instant::now();
                for i in 0..n {
                    let o = format!("o{i}");
                    sqlx::query("INSERT INTO l (name, owner, expires) VALUES (?,?,?) RETURNING expires")
                        .bind("job")
                        .bind(&o)
                        .bind(5i64)
                        .fetch_optional(&mut c)
                        .await
                        .unwrap();
                    sqlx::query("DELETE FROM l WHERE name = ? AND owner = ? RETURNING expires")
                        .bind("job")
                        .bind(&o)
                        .fetch_optional(&mut c)
                        .await
                        .unwrap();
                }
                println!("  bare returning optional {:?}", t.elapsed() / n as u32);
                println!(
                    "round {round}: bare {:?} ours {:?} ratio {:.3}",
                    bare / n as u32,
                    ours / n as u32,
                    bare.as_secs_f64() / ours.as_secs_f64()
                );
            }
        }),
        // contended child: scratch child dir kind until_ms
        "child" => {
            let kind = args[3].as_str();
            let start = std::time::UNIX_EPOCH + Duration::from_millis(args[4].parse().unwrap());
            let hold = Duration::from_millis(2);
            let secs = Duration::from_secs(5);
            if kind == "flock" {
                let f = File::options().create(true).write(true).open(format!("{dir}/flock")).unwrap();
                std::thread::sleep(start.duration_since(std::time::SystemTime::now()).unwrap());
                let t = Instant::now();
                let mut n = 0;
                while t.elapsed() < secs {
                    f.lock().unwrap();
                    std::thread::sleep(hold);
                    f.unlock().unwrap();
                    n += 1;
                    std::thread::sleep(hold);
                }
                println!("{n}");
            } else {
                let rt = if kind == "cur" {
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
                } else {
                    rt()
                };
                rt.block_on(async {
                    let lock = SqliteLock::open(&path, "b").await.unwrap();
                    std::thread::sleep(start.duration_since(std::time::SystemTime::now()).unwrap());
                    let t = Instant::now();
                    let mut n = 0;
                    let mut worst = Duration::ZERO;
                    let (mut unl, mut slept) = (Duration::ZERO, Duration::ZERO);
                    while t.elapsed() < secs {
                        let cl = claim("job", n);
                        let w = Instant::now();
                        lock.lock(&cl).await.unwrap();
                        worst = worst.max(w.elapsed());
                        let u = Instant::now();
                        std::thread::sleep(hold);
                        slept += u.elapsed();
                        let u = Instant::now();
                        lock.unlock(&cl).await.unwrap();
                        unl += u.elapsed();
                        n += 1;
                        std::thread::sleep(hold);
                    }
                    println!("{n} {worst:?} unlock {:?} slept {:?}", unl / n as u32, slept / n as u32);
                });
            }
        }
        "eight" => {
            for kind in args[3].split(',') {
                let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() + 500;
                let kids: Vec<_> = (0..8)
                    .map(|_| {
                        std::process::Command::new(std::env::current_exe().unwrap())
                            .args(["child", &dir, kind, &at.to_string()])
                            .stdout(std::process::Stdio::piped())
                            .spawn()
                            .unwrap()
                    })
                    .collect();
                let out: Vec<String> = kids
                    .into_iter()
                    .map(|k| String::from_utf8(k.wait_with_output().unwrap().stdout).unwrap().trim().to_owned())
                    .collect();
                let sum: u64 = out.iter().map(|o| o.split(' ').next().unwrap().parse::<u64>().unwrap()).sum();
                println!("{kind}: {:.0}/s {out:?}", sum as f64 / 5.0);
            }
        }
        "cold" => rt().block_on(async {
            let lock = SqliteLock::open(&path, "b").await.unwrap();
            let (mut l, mut u) = (Duration::ZERO, Duration::ZERO);
            for i in 0..500 {
                let cl = claim("job", i);
                let t = Instant::now();
                lock.try_lock(&cl).await.unwrap().unwrap();
                l += t.elapsed();
                std::thread::sleep(Duration::from_millis(2));
                let t = Instant::now();
                lock.unlock(&cl).await.unwrap();
                u += t.elapsed();
                std::thread::sleep(Duration::from_millis(2));
            }
            println!("cold lock {:?} unlock {:?}", l / 500, u / 500);
        }),
        _ => {}
    }
}
