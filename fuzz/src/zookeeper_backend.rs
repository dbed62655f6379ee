//! What of `lock-zookeeper` reads text.

#[path = "../../crates/lock-zookeeper/src/keys.rs"]
pub(crate) mod keys;
#[path = "../../crates/lock-zookeeper/src/properties.rs"]
pub(crate) mod properties;
