//! What of `lock-zookeeper` reads text.

#[path = "../../crates/lock-zookeeper/src/names.rs"]
pub(crate) mod names;
#[path = "../../crates/lock-zookeeper/src/properties.rs"]
pub(crate) mod properties;
