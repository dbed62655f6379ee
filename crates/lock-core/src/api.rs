//! What an application has in its hands: thin faces of the engine.

mod all;
mod election;
mod locks;
mod mutex;
mod once;
mod rw_lock;
mod semaphore;

pub use all::{All, AllGuard, Leases};
pub use election::{Election, Leadership};
pub use locks::{Locks, LocksBuilder, ShutdownReport};
pub use mutex::Mutex;
pub use once::{Once, OnceGuard, OnceRun, Skipped};
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
