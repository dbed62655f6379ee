//! What is done once for all stores: acquisitions, the queue in the process, renewal, loss and clean-up.

pub(crate) mod acquisition;
pub(crate) mod core;
mod guard;
mod hold;
mod janitor;
mod keeper;
mod lease;
#[cfg(test)]
mod models;
pub(crate) mod observer;
pub(crate) mod outage;
mod owner;
mod queue;
mod request;
mod sync;
mod telemetry;
pub(crate) mod timing;
pub(crate) mod together;
mod who_holds;
mod worker;

pub use guard::LockGuard;
pub use lease::{Lease, LeaseState};
pub use observer::{Observed, Observer};
pub use owner::Owner;
