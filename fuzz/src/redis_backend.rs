//! What of `lock-redis` reads text.

#[path = "../../crates/lock-redis/src/address.rs"]
pub(crate) mod address;
#[path = "../../crates/lock-redis/src/answers.rs"]
pub(crate) mod answers;
#[path = "../../crates/lock-redis/src/bounded.rs"]
pub(crate) mod bounded;
#[path = "../../crates/lock-redis/src/keys.rs"]
pub(crate) mod keys;
#[path = "../../crates/lock-redis/src/properties.rs"]
pub(crate) mod properties;
#[path = "../../crates/lock-redis/src/slots.rs"]
pub(crate) mod slots;
