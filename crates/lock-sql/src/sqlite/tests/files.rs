//! What can be wrong with a file, and what can happen to it.

use super::super::checkpoint::{LONG, length_of_log};
use super::*;

#[tokio::test]
async fn a_file_that_is_replaced_is_a_loss() {
    for replace in [true, false] {
        let file = File::new();
        let (lock, waiting) = (file.open().await, file.open().await);
        let (a, b) = (claim("job", "a", LEASE), claim("job", "b", LEASE));
        let first = taken(&lock, &a).await;
        let waiter = tokio::spawn(async move { waiting.lock(&claim("job", "w", SHORT)).await });
        in_line(&lock, &a.name, 1).await;
        let away = file.folder.path().join("away.db");
        std::fs::rename(file.path(), &away).unwrap();
        if replace {
            taken(&file.open().await, &claim("other", "o", LEASE)).await;
        }
        assert!(matches!(lock.renew(std::slice::from_ref(&a)).await[..], [Ok(Renewal::NotHeld)]), "replace: {replace}");
        // The waiter notices too, and gets the lock in the new file.
        timeout(Duration::from_secs(5), waiter).await.unwrap().unwrap().unwrap();
        let next = timeout(Duration::from_secs(5), lock.lock(&b)).await.unwrap().unwrap();
        assert!(next.token > first.token);
        assert_eq!(lock.unlock(&a).await.unwrap(), Unlocked::NotHeld);
        assert_eq!(lock.unlock(&b).await.unwrap(), Unlocked::Released);
        let sound: String =
            sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut file.raw().await).await.unwrap();
        assert_eq!(sound, "ok");
    }
}

#[tokio::test]
async fn a_grant_and_an_unlock_notice_a_replaced_file() {
    let file = File::new();
    let lock = file.open().await;
    let a = claim("job", "a", LEASE);
    taken(&lock, &a).await;
    std::fs::remove_file(file.path()).unwrap();
    assert_eq!(lock.unlock(&a).await.unwrap(), Unlocked::NotHeld);
    taken(&lock, &a).await;
    std::fs::rename(file.path(), file.folder.path().join("away.db")).unwrap();
    taken(&lock, &claim("job", "b", LEASE)).await;
    assert_eq!(file.open().await.try_lock(&a).await.unwrap(), None, "the grant is in the file that others see");
}

#[tokio::test]
async fn what_cannot_be_opened_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("text"), "this is not a database, and long enough to be looked at: ".repeat(20)).unwrap();
    std::fs::create_dir(at("folder.db")).unwrap();
    sqlx::raw_sql("CREATE TABLE oarlock_lock (x)").execute(&mut raw(&at("shape")).await).await.unwrap();
    sqlx::raw_sql("CREATE TABLE oarlock_meta (x)").execute(&mut raw(&at("meta")).await).await.unwrap();
    sqlx::raw_sql(SCHEMA).execute(&mut raw(&at("newer")).await).await.unwrap();
    sqlx::raw_sql("UPDATE oarlock_meta SET value = 3 WHERE key = 'version'")
        .execute(&mut raw(&at("newer")).await)
        .await
        .unwrap();
    for (path, says) in [
        (at("text"), "not an SQLite database"),
        (at("folder.db"), "is a folder"),
        (at("shape"), "another shape"),
        (at("meta"), "another shape"),
        (at("newer"), "version 3"),
        (at("missing/locks.db"), "mkdir"),
        (at("text/locks.db"), "not a folder"),
        // Not even root can make a file there.
        (PathBuf::from("/proc/self/locks.db"), "writable"),
    ] {
        // Some shows only when the file or its tables are to be made.
        let error = match SqliteLock::open(&path, "t").await {
            Ok(lock) => lock.try_lock(&claim("job", "a", LEASE)).await.unwrap_err(),
            Err(error) => error,
        };
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Refused, "{text}");
        assert!(text.contains(says), "{text}");
        assert!(
            text.contains(path.to_str().unwrap()) || text.contains(path.parent().unwrap().to_str().unwrap()),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_loses_nothing() {
    let file = File::new();
    let lock = file.open().await;
    let held = claim("held", "h", LEASE);
    taken(&lock, &held).await;
    lock.store.run(Ask { statement: "PRAGMA max_page_count = 1", ..Ask::default() }).await.unwrap();
    let mut refused = None;
    for number in 0..500 {
        let claim = claim(&format!("{number}{}", "x".repeat(400)), "filler", LEASE);
        if let Err(error) = lock.try_lock(&claim).await {
            refused = Some((claim, error));
            break;
        }
    }
    let (claim, error) = refused.expect("the file cannot grow for ever");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("full"), "{error}");
    assert_eq!(file.open().await.inspect(&claim.name).await.unwrap().into_holder(), None);
    assert!(matches!(lock.renew(std::slice::from_ref(&held)).await[..], [Ok(Renewal::Held { .. })]));
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
}

#[tokio::test]
async fn a_commit_that_fails_is_an_error() {
    let file = File::new();
    let lock = file.made().await;
    // A constraint that is looked at only by the commit, as a disk is that is full by then.
    sqlx::raw_sql(
        "CREATE TABLE parent (id INTEGER PRIMARY KEY);
         CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
         CREATE TRIGGER spoil AFTER INSERT ON oarlock_lock BEGIN INSERT INTO child VALUES (1); END",
    )
    .execute(&mut file.raw().await)
    .await
    .unwrap();
    let a = claim("job", "a", LEASE);
    let error = lock.try_lock(&a).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!(lock.unlock(&a).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(rows(&file, "lock").await, 0);
    sqlx::raw_sql("DROP TRIGGER spoil").execute(&mut file.raw().await).await.unwrap();
    taken(&lock, &a).await;
}

#[tokio::test]
async fn a_writer_that_does_not_end_is_an_error() {
    let file = File::new();
    let busy = Duration::from_millis(200);
    file.made().await;
    let lock = SqliteOptions::new(file.path()).busy(busy).open().await.unwrap();
    let mut writer = file.raw().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut writer).await.unwrap();
    let a = claim("job", "a", LEASE);
    for error in [
        lock.try_lock(&a).await.unwrap_err(),
        lock.lock(&a).await.unwrap_err(),
        lock.unlock(&a).await.unwrap_err(),
        lock.renew(std::slice::from_ref(&a)).await.pop().unwrap().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("another process"), "{error}");
    }
    // To read, nobody has to wait for a writer.
    assert_eq!(lock.inspect(&a.name).await.unwrap().into_holder(), None);
    writer.close().await.unwrap();
    taken(&lock, &a).await;
}

/// Its place in line stays, and has to be undone.
#[tokio::test]
async fn a_writer_that_does_not_end_is_no_refusal_to_who_stands_in_line() {
    let file = File::new();
    let held = claim("job", "holder", LEASE);
    let holder = file.open().await;
    taken(&holder, &held).await;
    let lock = SqliteOptions::new(file.path()).prefix("t").busy(Duration::from_millis(200)).open().await.unwrap();
    let waiting = tokio::spawn(async move { lock.lock(&claim("job", "waiter", LEASE)).await });
    in_line(&holder, &held.name, 1).await;
    let mut writer = file.raw().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut writer).await.unwrap();
    let error = timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
}

#[tokio::test]
async fn an_attempt_given_up_behind_a_writer_leaves_nothing() {
    let file = File::new();
    let lock = file.made().await;
    let mut writer = file.raw().await;
    for attempt in 0..3 {
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut writer).await.unwrap();
        let a = claim("job", &format!("a{attempt}"), LEASE);
        assert!(timeout(Duration::from_millis(30), lock.try_lock(&a)).await.is_err(), "the writer is in the way");
        let unlocking = lock.unlock(&a);
        let writing = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            sqlx::raw_sql("ROLLBACK").execute(&mut writer).await.unwrap();
        };
        let (unlocked, ()) = tokio::join!(unlocking, writing);
        unlocked.unwrap();
        assert_eq!((rows(&file, "lock").await, rows(&file, "waiter").await), (0, 0));
    }
}

#[tokio::test]
async fn the_log_does_not_grow_for_ever() {
    let file = File::new();
    let lock = file.open().await;
    let a = claim("job", "a", LEASE);
    let emptied = async {
        let mut longest = 0;
        loop {
            taken(&lock, &a).await;
            assert_eq!(lock.unlock(&a).await.unwrap(), Unlocked::Released);
            let length = length_of_log(&file.path());
            if length < longest {
                return longest;
            }
            longest = length;
        }
    };
    assert!(timeout(Duration::from_secs(60), emptied).await.expect("it becomes shorter") >= LONG);
}

/// Every verb that only looks, and those that find nothing to end.
async fn nothing_is_there(lock: &SqliteLock, says: &str) {
    let a = claim("job", "a", LEASE);
    for error in [
        lock.inspect(&a.name).await.unwrap_err(),
        lock.list(&ListQuery::default()).await.unwrap_err(),
        lock.evict(&a.name).await.unwrap_err(),
        lock.doctor().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(lock.unlock(&a).await.unwrap(), Unlocked::NotHeld);
    assert!(matches!(lock.renew(std::slice::from_ref(&a)).await[..], [Ok(Renewal::NotHeld)]));
}

#[tokio::test]
async fn who_only_looks_makes_no_file() {
    let file = File::new();
    let (lock, other) = (file.open().await, file.open().await);
    nothing_is_there(&lock, "does not exist").await;
    assert_eq!(std::fs::read_dir(file.folder.path()).unwrap().count(), 0);
    let a = claim("job", "a", LEASE);
    taken(&other, &a).await;
    assert_eq!(
        lock.inspect(&a.name).await.unwrap().into_holder().unwrap().owner,
        a.owner,
        "once it is there, it is seen"
    );
    for entry in std::fs::read_dir(file.folder.path()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert!(lock.inspect(&a.name).await.is_err(), "nor after it was removed");
    assert!(!file.path().exists());
}

#[tokio::test]
async fn who_only_looks_adds_nothing_to_the_database_of_another_application() {
    let file = File::new();
    let mut raw = file.raw().await;
    sqlx::raw_sql("CREATE TABLE orders (id INTEGER)").execute(&mut raw).await.unwrap();
    let before = std::fs::read(file.path()).unwrap();
    let lock = file.open().await;
    nothing_is_there(&lock, "no locks of Oarlock").await;
    assert!(std::fs::read(file.path()).unwrap() == before, "not a byte was changed");
    assert_eq!(std::fs::read_dir(file.folder.path()).unwrap().count(), 1);
    taken(&lock, &claim("job", "a", LEASE)).await;
    assert_eq!(rows(&file, "lock").await, 1);
}

#[tokio::test]
async fn a_path_without_its_first_slash_is_suspected() {
    let error = SqliteLock::open("no-such-folder/locks.db", "t").await.unwrap_err();
    assert!(error.to_string().contains("sqlite:/"), "{error}");
    let error = SqliteLock::open("/no-such-folder/locks.db", "t").await.unwrap_err();
    assert!(!error.to_string().contains("sqlite:/"), "{error}");
}
