//! The resource's side of a lock: checks of fencing tokens that an application adds in one line.
//!
//! A holder that was paused may write after its lock went to another. Each acquisition has a
//! [fencing token](lock_core::FencingToken), and the tokens of a name rise. A check keeps the highest token that it has
//! seen of a name, its mark. It refuses an access with a lower one by an error of kind
//! [`Stale`](lock_core::ErrorKind::Stale), which [names both](Stale). An equal token passes: a holder may write often.
//!
//! - `sql`, by the features `sqlite`, `postgres` and `mysql`: in the application's own transaction, by sqlx.
//! - `redis`, by the feature `redis`: in one step with the write, on a server or in a cluster.
//! - `http`, by the feature of its name: layers of tower for servers and clients, with [`Marks`] in memory or shared.
//! - [`file`](mod@file): a file that carries the token of its last writer.
//! - `etcd` and `zookeeper`, by the features of these names: in the application's own transaction, by the lock's key
//!   or node, where the lock is in the same store.
//! - [`Access::check`]: the rule alone, for a resource of your own.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod file;
#[cfg(feature = "http")]
pub mod http;
mod marks;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub mod sql;
mod stale;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod standing;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use access::Access;
#[cfg(feature = "redis")]
pub use marks::RedisMarks;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub use marks::SqlMarks;
pub use marks::{Marks, MemoryMarks};
pub use stale::Stale;
