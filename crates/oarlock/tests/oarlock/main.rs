//! The façade, as far as it needs no server.

#[cfg(feature = "sqlite")]
#[path = "../application/mod.rs"]
mod application;
#[cfg(all(feature = "blocking", feature = "sqlite"))]
mod blocking;
mod dashboard;
mod documents;
#[cfg(feature = "sqlite")]
mod examples;
#[cfg(feature = "sqlite")]
mod stores;
// The example has a `main`, which is not what is called here.
#[allow(dead_code)]
#[cfg(feature = "sqlite")]
#[path = "../../examples/scheduled_job.rs"]
mod scheduled_job;
