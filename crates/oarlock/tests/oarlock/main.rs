//! The façade, as far as it needs no server.

#[cfg(feature = "sqlite")]
#[path = "../application/mod.rs"]
mod application;
mod documents;
#[cfg(feature = "sqlite")]
mod examples;
#[cfg(feature = "sqlite")]
mod stores;
