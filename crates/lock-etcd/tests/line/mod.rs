//! What stands in a line, past our own code.

use etcd_client::{Client, GetOptions, KeyValue};

/// The key that this owner has in the line of this lock, if it has one. No owner has two.
pub(crate) async fn key_of(raw: &Client, name: &str, owner: &str) -> Option<KeyValue> {
    let found = raw.clone().get(format!("oarlock/{name}/"), Some(GetOptions::new().with_prefix())).await.unwrap();
    let mut own = found.kvs().iter().filter(|key| key.value() == owner.as_bytes());
    let key = own.next().cloned();
    assert!(own.next().is_none(), "{owner} stands twice in the line of {name}: {:?}", found.kvs());
    key
}
