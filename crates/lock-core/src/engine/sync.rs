//! The primitives of the queue, the holds and the janitor: in the unit tests the model checker's.

#[cfg(test)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, PoisonError};
#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
