//! What is said of a store on connecting.

use std::fmt;

use crate::contract::Finding;

/// Logs a warning for each setting of this store that voids a promise, and for each state of it that does. A backend
/// calls it when it has connected, with what it then knows of its [`doctor`](crate::DistributedLock::doctor)'s
/// findings; that it knows none of them, because they could not be asked for, is no reason not to connect.
pub fn warn_of(findings: &[Finding], store: impl fmt::Display) {
    for Finding { setting, voids, advice } in findings {
        tracing::warn!(%store, %setting, %voids, %advice, "unsafe store");
    }
}
