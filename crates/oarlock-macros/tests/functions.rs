//! What becomes of functions of every kind.

use std::time::Duration;

use oarlock::{Error, ErrorKind, Locks, OnceRun, Result, blocking};

struct Service {
    locks: Locks,
    name: &'static str,
}

#[derive(Debug, PartialEq)]
enum Failure {
    Lock(ErrorKind),
    Other(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lock(error.kind())
    }
}

impl Service {
    #[oarlock::locked(name = "{kind}/{id:03}", locks = self.locks, wait = Duration::from_secs(5), fair = true, with = hold)]
    async fn ship(&self, kind: &str, id: u64, notes: Vec<String>) -> std::result::Result<String, Failure> {
        if notes.is_empty() {
            return Err(Failure::Other("nothing to ship".to_owned()));
        }
        hold.check()?;
        let holder = self.locks.inspect(hold.name().as_str()).await?.into_holder();
        assert_eq!(holder.unwrap().owner, *hold.owner());
        Ok(format!("{} {} {}", self.name, hold.name(), notes.join(",")))
    }
}

#[tokio::test]
async fn a_method_runs_under_its_lock() {
    let service = Service { locks: oarlock::connect("memory:").await.unwrap(), name: "a" };
    assert_eq!(service.ship("orders", 7, vec!["x".to_owned()]).await.unwrap(), "a orders/007 x");
    let failed = service.ship("orders", 7, Vec::new()).await.unwrap_err();
    assert_eq!(failed, Failure::Other("nothing to ship".to_owned()));
}

struct Order {
    id: (u64, &'static str),
}

impl Order {
    #[oarlock::locked(name = "{{{area}}}/{self.id.0:03}-{self.id.1}", with = hold)]
    async fn ship(&self, locks: &Locks, area: &str) -> Result<String> {
        Ok(hold.name().to_string())
    }
}

#[tokio::test]
async fn fields_name_a_lock() {
    let locks = oarlock::connect("memory:").await.unwrap();
    assert_eq!(Order { id: (7, "b") }.ship(&locks, "north").await.unwrap(), "{north}/007-b");
}

#[oarlock::locked(name = "x", wait = "20ms")]
async fn busy(locks: &Locks) -> std::result::Result<(), Failure> {
    Ok(())
}

#[tokio::test]
async fn what_the_lock_says_is_an_error_of_the_function() {
    let locks = oarlock::connect("memory:").await.unwrap();
    let _guard = locks.mutex("x").lock().await.unwrap();
    assert_eq!(busy(&locks).await.unwrap_err(), Failure::Lock(ErrorKind::Timeout));
    // As a task of its own.
    assert!(tokio::spawn(async move { busy(&locks).await }).await.unwrap().is_err());
}

#[oarlock::locked(name = "plain/{id}", max_hold = "1m", lease = "10s", with = lease)]
fn plain<'a>(locks: &blocking::Locks, id: &'a str) -> Result<(&'a str, bool)> {
    Ok((id, lease.is_held()))
}

#[oarlock::once(name = "job", at_least = "1h", keep_on_failure = false)]
fn plain_once(locks: &blocking::Locks, fail: bool) -> Result<u8> {
    if fail { Err(Error::new(ErrorKind::Refused, "not now")) } else { Ok(1) }
}

#[test]
fn plain_functions_block() {
    let locks = blocking::connect("memory:").unwrap();
    assert_eq!(plain(&locks, "7").unwrap(), ("7", true));
    assert_eq!(plain_once(&locks, true).unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(plain_once(&locks, false).unwrap(), OnceRun::Ran(1));
    assert!(matches!(plain_once(&locks, false).unwrap(), OnceRun::Skipped(skipped) if skipped.done));
}

#[oarlock::locked(name = "{handle}{locks}", locks = all)]
async fn names_of_ours(all: &Locks, handle: &str, locks: u8, job: u8, locked: u8) -> Result<(usize, u8)> {
    Ok((handle.len(), locks + job + locked))
}

#[tokio::test]
async fn an_argument_may_be_called_as_anything() {
    let locks = oarlock::connect("memory:").await.unwrap();
    assert_eq!(names_of_ours(&locks, "abc", 1, 2, 3).await.unwrap(), (3, 6));
}

#[oarlock::once(name = "of {who}", slot = "{day}", at_most = "1h", with = lease)]
async fn daily<T: std::fmt::Display>(locks: &Locks, who: T, day: u32) -> std::result::Result<String, Failure> {
    Ok(lease.name().to_string())
}

#[tokio::test]
async fn a_slot_is_made_of_arguments() {
    let locks = oarlock::connect("memory:").await.unwrap();
    assert_eq!(daily(&locks, "me", 1).await.unwrap(), OnceRun::Ran("of me@1".to_owned()));
    assert!(matches!(daily(&locks, "me", 1).await.unwrap(), OnceRun::Skipped(_)));
    assert_eq!(daily(&locks, "me", 2).await.unwrap(), OnceRun::Ran("of me@2".to_owned()));
}
