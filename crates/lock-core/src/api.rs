//! What an application has in its hands: thin faces of the engine.

mod all;
mod election;
mod locks;
mod mutex;
mod once;

pub use all::{All, AllGuard, Leases};
pub use election::{Election, Leadership};
pub use locks::{Locks, LocksBuilder, ShutdownReport};
pub use mutex::Mutex;
pub use once::{Once, OnceGuard, OnceRun, Skipped};
