//! What of `lock-etcd` reads text.

#[path = "../../crates/lock-etcd/src/keys.rs"]
pub(crate) mod keys;
#[path = "../../crates/lock-etcd/src/properties.rs"]
pub(crate) mod properties;
