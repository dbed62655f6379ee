//! What an application has in its hands: thin faces of the engine.

mod locks;
mod mutex;

pub use locks::{Locks, LocksBuilder, ShutdownReport};
pub use mutex::Mutex;
