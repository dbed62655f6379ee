//! What the tests with servers share: a way to look at a server that knows nothing of the backend's code.
#![allow(dead_code, reason = "each test target uses some of it")]

pub(crate) mod withholding;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{Claim, LockName, OwnerId};
use serde_json::Value;
use test_servers::MemcachedServer;

/// Never over while a test runs.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// For what needs no lease's end.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

pub(crate) fn claim(name: &str, owner: &str) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store(owner), LONG)
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, future).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

/// By the server's own commands.
pub(crate) trait Raw {
    /// What stands at the locks' keys: each key, and the hold.
    fn holds(&self, prefix: &str) -> Vec<(String, Value)>;

    /// The key of a lock that is held.
    fn key(&self, prefix: &str, name: &LockName) -> Option<String>;

    /// The owner of a lock.
    fn holder(&self, prefix: &str, name: &LockName) -> Option<String>;

    /// The next tokens are above this one.
    fn tokens_above(&self, prefix: &str, above: u64);
}

impl Raw for MemcachedServer {
    fn holds(&self, prefix: &str) -> Vec<(String, Value)> {
        let keys = self.keys().into_iter().map(|key| key.replace("%3A", ":").replace("%25", "%"));
        let keys = keys.filter(|key| key.starts_with(&format!("{prefix}:")));
        let value = |key: &String| {
            let answer = self.ask(&format!("get {key}"));
            let value = answer.split_once("\r\n")?.1.strip_suffix("\r\nEND")?;
            serde_json::from_str::<Value>(value).ok().filter(|value| value.is_object())
        };
        keys.filter_map(|key| Some((key.clone(), value(&key)?))).collect()
    }

    fn key(&self, prefix: &str, name: &LockName) -> Option<String> {
        let mut holds = self.holds(prefix).into_iter();
        holds.find(|(_, hold)| hold["name"] == name.as_str()).map(|(key, _)| key)
    }

    fn holder(&self, prefix: &str, name: &LockName) -> Option<String> {
        let mut holds = self.holds(prefix).into_iter();
        let (_, hold) = holds.find(|(_, hold)| hold["name"] == name.as_str())?;
        Some(hold["owner"].as_str()?.to_owned())
    }

    fn tokens_above(&self, prefix: &str, above: u64) {
        let key = format!("{prefix}::tokens");
        // They never fall.
        let present = self.ask(&format!("get {key}"));
        let present = present.lines().nth(1).and_then(|text| text.split(' ').next()?.parse::<i128>().ok());
        // The last second that memcached knows.
        let put = |number: i128| {
            let text = format!("{number} 0");
            let answer = self.ask(&format!("ms {key} {} T{} c\r\n{text}", text.len(), i32::MAX));
            answer.strip_prefix("HD c").expect("a CAS number").parse::<i128>().unwrap()
        };
        // The one after next is this one's.
        let drawn = put(0);
        put((i128::from(above) - drawn).max(present.unwrap_or(i128::MIN)));
    }
}

/// The server as it is when locks have been in use on it for a while, so that nobody waits for its clock.
pub(crate) fn used(server: MemcachedServer, prefix: &str) -> MemcachedServer {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    server.tokens_above(prefix, now.as_secs().saturating_sub(1) * 1_000_000);
    server
}
