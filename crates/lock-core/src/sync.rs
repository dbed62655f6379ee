//! The primitives that a model checker puts its own in place of.

pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
