//! The suite that every Oarlock backend passes.
//!
//! A backend's promise is the contract on [`DistributedLock`](lock_core::DistributedLock). This crate holds a backend to
//! it, from inside the workspace or from outside.
//!
//! # Proving a backend
//!
//! 1. Implement [`Harness`] and [`Store`]: how to make a fresh store, how to connect to it, how another process does, and
//!    as many of the [`Fault`]s as the store allows.
//! 2. Add a test target without the usual harness, `tests/conformance.rs`:
//!
//!    ```toml
//!    [[test]]
//!    name = "conformance"
//!    harness = false
//!    ```
//!
//!    with one line beside the harness, `conformance_tests::suite!(MyHarness);`.
//! 3. `cargo test --test conformance`. Each case is a test of its own, `mine::unlock_foreign`; it has a store of its own
//!    and a deadline.
//! 4. What the backend cannot pass is declared in [`Harness::declared`] with the reason. It is listed as ignored, with
//!    that reason. A case that needs a [`Fault`] that the harness does not offer fails until it is declared.
//!
//! Cases in which processes die need [`Store::url`] and [`Harness::registry`]: the suite starts this same test program
//! again, as a worker, which connects like any application.
//!
//! # What else is here
//!
//! - [`Recorder`] logs acquisitions into a [`history`], and the [`oracle`] judges it.
//! - [`torture`] runs processes against a store, and strikes them, their networks and the servers, for as long as one
//!   likes.
//! - [`resource`] is what such processes protect: a counter that refuses old fencing tokens.
//! - [`Proxy`] stands between a client and a server, and holds, delays, resets and refuses.
//! - [`Faulty`] is a backend around another that loses replies, delays them, fails and panics to order.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acquisition;
mod cases;
mod ctx;
mod faulty;
mod harness;
pub mod history;
pub mod oracle;
mod ordeal;
mod plan;
mod polls;
mod proxy;
mod recorder;
mod report;
pub mod resource;
mod suite;
pub mod torture;
mod victim;
mod violation;
mod worker;
mod workload;

pub use faulty::{Effect, Faulty, Verb};
pub use harness::{Fault, Harness, NotOffered, Store};
pub use ordeal::Ordeal;
pub use proxy::Proxy;
pub use recorder::{Recorded, Recorder};
pub use suite::{cases, run, run_one};
pub use worker::worker_main;
