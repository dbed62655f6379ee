//! What an application has in its hands: thin faces of the engine.

mod all;
mod election;
mod latch;
mod locks;
mod mutex;
mod once;
mod rate_limiter;
mod rw_lock;
mod semaphore;

pub use all::{All, AllGuard, Leases};
pub use election::{Election, Leadership};
pub use latch::{Arrival, Latch};
pub use locks::{Locks, LocksBuilder, ShutdownReport};
pub use mutex::Mutex;
pub use once::{Once, OnceGuard, OnceRun, Skipped};
pub use rate_limiter::RateLimiter;
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
