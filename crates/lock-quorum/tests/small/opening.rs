//! Which stores can be a quorum, and which URLs name one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::memory::MemoryLock;
use lock_core::{BackendFactory, Config, DistributedLock, Error, ErrorKind, Registry, Result, Target};
use lock_quorum::{QuorumFactory, QuorumOptions};
use lock_sql::SqliteFactory;

fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.register(Late);
    let stores = registry.clone();
    registry.register(QuorumFactory::over(stores));
    registry
}

/// `late:…`, a store that is there a second after somebody asked for it first, and then is the one of `memory:late-…`;
/// `refusing:`, one that always refuses; and `memcached:`, one that is always away.
#[derive(Debug)]
struct Late;

static FIRST: std::sync::Mutex<Option<std::time::Instant>> = std::sync::Mutex::new(None);

#[async_trait]
impl BackendFactory for Late {
    fn schemes(&self) -> &'static [&'static str] {
        &["late", "refusing", "memcached"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        match target.url.scheme() {
            "refusing" => return Err(Error::new(ErrorKind::Refused, "wrong password")),
            "memcached" => return Err(Error::new(ErrorKind::Unavailable, "away")),
            _ => {}
        }
        let first = *FIRST.lock().unwrap().get_or_insert_with(std::time::Instant::now);
        if first.elapsed() < Duration::from_secs(1) {
            return Err(Error::new(ErrorKind::Unavailable, "not there yet"));
        }
        let memory = Registry::new();
        let url = format!("memory:late-{}", target.url.rest());
        memory.connect_to(memory.target(&url, &target.prefix)?).await
    }
}

async fn refused(url: &str) -> Error {
    registry().connect(Config::from_url(url).unwrap()).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn what_is_no_quorum_is_refused_with_the_reason() {
    for (url, kind, why) in [
        ("quorum:", ErrorKind::Invalid, "needs stores"),
        ("quorum:?store=memory:a", ErrorKind::Invalid, "one store"),
        ("quorum:?store=memory:a&store=memory:b", ErrorKind::Invalid, "name three"),
        ("quorum:?store=memory:a&store=memory:b&store=memory:c&store=memory:d", ErrorKind::Invalid, "odd number"),
        ("quorum:?store=memory:a&store=&store=memory:c", ErrorKind::Invalid, "store 2"),
        ("quorum:?store=memory:a&store=memory:b&store=redis+sentinel://c", ErrorKind::Invalid, "%2B"),
        ("quorum:?store=memory:a&store=memory:b&store=memcached://c", ErrorKind::Unsupported, "store 3: "),
        ("quorum:?store=memory:a&store=memory:b&store=memory:a", ErrorKind::Invalid, "stores 1 and 3 are the same"),
        ("quorum:?store=memory:a&store=memory:b&store=memory:%2562", ErrorKind::Invalid, "stores 2 and 3 are the same"),
        ("quorum:?store=memory:a&store=memory:b&store=memory:c?prefix%3Dp", ErrorKind::Invalid, "prefix"),
        ("quorum:?store=memory:a&store=memory:b&store=memory:c?lease%3D5s", ErrorKind::Invalid, "lease"),
        ("quorum:?store=memory:a&store=memory:b&store=quorum:", ErrorKind::Invalid, "cannot be quorum: itself"),
        ("quorum:?store=memory:a&store=memory:b&store=both:", ErrorKind::Invalid, "cannot be both: itself"),
        ("quorum:?store=memory:a&store=memory:b&store=x://y", ErrorKind::Unsupported, "store 3"),
        ("quorum:a?store=memory:a&store=memory:b&store=memory:c", ErrorKind::Invalid, "names no store"),
        ("quorum:?store=memory:a&store=memory:b&store=memory:c&rejoin=1s", ErrorKind::Invalid, "rejoin_after"),
    ] {
        let error = refused(url).await;
        assert!(error.kind() == kind && error.to_string().contains(why), "{url}: {error}");
    }
}

#[tokio::test]
async fn one_and_the_same_store_is_known_by_a_probe() {
    let (one, other) = (MemoryLock::new(), MemoryLock::new());
    let stores: [Arc<dyn DistributedLock>; 3] = [Arc::new(one.client()), Arc::new(other), Arc::new(one.client())];
    let error = QuorumOptions::default().over(stores).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("stores 1 and 3 are the same"), "{error}");
}

#[tokio::test]
async fn a_config_file_names_the_stores() {
    let config = Config::from_toml(
        r#"
        prefix = "named"
        [backend]
        timeout = "1s"
        [[stores]]
        url = "memory:a"
        [[stores]]
        url = "memory:b"
        [[stores]]
        url = "memory:c"
        "#,
    );
    let locks = registry().connect(config.unwrap()).await.unwrap();
    assert_eq!(locks.capabilities().backend, "quorum");
    let guard = locks.mutex("x").lock().await.unwrap();
    let same = Config::from_url("quorum:?store=memory:a&store=memory:b&store=memory:c&prefix=named").unwrap();
    assert!(registry().connect(same).await.unwrap().mutex("x").try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_store_that_is_away_at_first_joins_later() {
    let url = "quorum:?store=memory:j1&store=memory:j2&store=late:j3";
    let locks = registry().connect(Config::from_url(url).unwrap()).await.unwrap();
    let late = registry().connect(Config::from_url("memory:late-j3").unwrap()).await.unwrap();
    let joined = async {
        loop {
            let guard = locks.mutex("x").lock().await.unwrap();
            let seen = late.inspect("x").await.unwrap().into_holder();
            guard.unlock().await.unwrap();
            if seen.is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), joined).await.unwrap();
}

#[tokio::test]
async fn a_store_that_refuses_is_named_with_the_reason() {
    let url = "quorum:?store=memory:d1&store=memory:d2&store=refusing:";
    let locks = registry().connect(Config::from_url(url).unwrap()).await.unwrap();
    locks.mutex("x").lock().await.unwrap().unlock().await.unwrap();
    let told = locks.doctor().await.unwrap();
    assert!(told.iter().any(|found| found.setting.contains("store 3: ") && found.setting.contains("wrong password")));
}

#[tokio::test]
async fn who_only_looks_makes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = Registry::new();
    registry.register(SqliteFactory);
    registry.register(QuorumFactory::over(registry.clone()));
    let place = folder.path().display();
    let stores = ["a.db", "b.db", "./a.db"].map(|file| format!("store=sqlite:{place}/{file}&")).concat();
    let url = format!("quorum:?{stores}rejoin_after=9s");
    let locks = registry.connect(Config::from_url(&url).unwrap()).await.unwrap();
    locks.inspect("x").await.unwrap_err();
    locks.doctor().await.unwrap_err();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // The first lock makes them, and finds that two are one.
    let error = locks.mutex("x").lock().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("stores 1 and 3 are the same"), "{error}");
}
