//! The suite that every Oarlock backend passes.
//!
//! A backend's promise is the contract on [`DistributedLock`](lock_core::DistributedLock). This crate holds a backend
//! to it, from inside the workspace or from outside.
//!
//! # Proving a backend
//!
//! 1. Implement [`Harness`] and [`Store`]: how to make a fresh store, how to connect to it, how another process does,
//!    and as many of the [`Fault`]s as the store allows.
//! 2. Add a test target without the usual harness, `tests/conformance.rs`:
//!
//!    ```toml
//!    [[test]]
//!    name = "conformance"
//!    harness = false
//!    ```
//!
//!    with one line beside the harness, `conformance_tests::suite!(MyHarness);`.
//! 3. `cargo test --test conformance`. Each case is a test of its own, `mine::unlock_foreign`; it has a store of its
//!    own and a deadline. `cargo test --test conformance -- unlock` runs those whose name has that in it.
//!    Where starting a server takes long, stores can share one, if each is reached through a [`Proxy`] of its own and
//!    keeps its locks apart. [`Harness::store_alone`] then makes one for the cases that harm the server itself.
//! 4. What the backend cannot pass is declared in [`Harness::declared`] with the reason. It is listed as ignored, with
//!    that reason. A case that needs a [`Fault`] that the harness does not offer fails until it is declared. What the
//!    backend's [`Capabilities`](lock_core::Capabilities) say that it cannot do needs no declaration.
//! 5. Give requests two seconds in the suite: some cases hold them back for one.
//!
//! An application uses the backend by [`Registry::register`](lock_core::Registry::register) with its
//! [`BackendFactory`](lock_core::BackendFactory), and then connects by URL, as in the example at the head of
//! `lock-redis`. The program `oarlock` knows only the backends that it was built with.
//!
//! A whole backend with its harness, as an outsider writes it and in less than 300 lines each, is `examples/file-lock` in
//! Oarlock's repository. This one is the in-memory backend's, cut short:
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use conformance_tests::{Fault, Harness, NotOffered, Store, run_one};
//! use lock_core::{DistributedLock, LockName, memory::MemoryLock, ErrorKind};
//!
//! struct MyHarness;
//!
//! #[async_trait]
//! impl Harness for MyHarness {
//!     fn name(&self) -> &'static str {
//!         "mine"
//!     }
//!
//!     fn declared(&self) -> &'static [(&'static str, &'static str)] {
//!         &[("holder_killed", "its locks are those of one process")]
//!     }
//!
//!     async fn store(&self) -> Box<dyn Store> {
//!         Box::new(MyStore(MemoryLock::new()))
//!     }
//! }
//!
//! struct MyStore(MemoryLock);
//!
//! #[async_trait]
//! impl Store for MyStore {
//!     async fn connect(&self) -> Arc<dyn DistributedLock> {
//!         Arc::new(self.0.client())
//!     }
//!
//!     fn url(&self) -> Option<String> {
//!         None
//!     }
//!
//!     async fn raw_holder(&self, name: &LockName) -> Option<String> {
//!         // A real one looks into the store by other means than the code under test.
//!         Some(self.0.inspect(name).await.unwrap().into_holder()?.owner.as_str().to_owned())
//!     }
//!
//!     async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
//!         match fault {
//!             Fault::DeleteHold(name) => drop(self.0.script().lose(name.as_str())),
//!             _ => return Err(NotOffered),
//!         }
//!         Ok(())
//!     }
//! }
//!
//! // In a target of its own: conformance_tests::suite!(MyHarness);
//! run_one(&MyHarness, "unlock_foreign").unwrap();
//! run_one(&MyHarness, "lost_wakeup").unwrap();
//! ```
//!
//! # When a case fails
//!
//! The case's comment in `src/cases` says what it looks for, and its number stands for it in `docs/cases.md`. Most
//! failures are one of these, by the rule of the contract on [`DistributedLock`](lock_core::DistributedLock):
//!
//! | what fails | what is wrong |
//! | --- | --- |
//! | `drop_every_verb…`, `late_acquire_lands`, `cancel_try_lock` | rule 2: a request whose future was dropped lands after the `unlock` that came behind it. Send all requests of a client in one order, or put into each until when it may be done |
//! | `promise_covered`, `request_held_back`, `answer_held_back`, `answer_read_late` | rule 5: `valid_until` counts from the answer. Read the clock before the request leaves |
//! | `tokens_rise`, `token_survives_idle`, `token_from_store` | rule 6: tokens come from a counter that is deleted with the lock, or is the client's own |
//! | `unlock_foreign`, `unlock_after_expiry`, `unlock_retry` | rule 1: a release does not compare the owner in the same step in which it deletes |
//! | `writer_stopped`, `store_down_at_start` | rule 8: a request has no bound in time |
//! | `lost_wakeup`, `waiter_killed` | a wait relies on a message: it has to look by itself as well |
//!
//! Cases in which processes die need [`Store::url`] and [`Harness::registry`]: the suite starts this same test program
//! again, as a worker, which connects like any application. In those, answers of the kind
//! [`Unavailable`](lock_core::ErrorKind::Unavailable) and [`Unknown`](lock_core::ErrorKind::Unknown) are allowed while
//! a fault lasts, and no others.
//!
//! # What else is here
//!
//! - [`Recorder`] logs acquisitions into a [`history`], and the [`oracle`] judges it.
//! - [`torture`] runs processes against a store, and strikes them, their networks and the servers, for as long as one
//!   likes.
//! - [`resource`] is what such processes protect: a counter that refuses old fencing tokens; or it is
//!   [somewhere else](protected), where the checks of applications are tortured.
//! - [`Proxy`] stands between a client and a server, and holds, delays, resets and refuses.
//! - [`hostile`] is a server that says what no server says.
//! - [`Faulty`](lock_core::testing::Faulty), in `lock-core`, is a backend around another that loses replies, delays them,
//!   fails and panics to order.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acquisition;
mod cases;
mod ctx;
pub mod family;
mod footprint;
mod foreign;
mod ghosts;
mod harness;
pub mod history;
mod host;
pub mod hostile;
mod liveness;
pub mod oracle;
mod ordeal;
mod peer;
mod plan;
mod polls;
pub mod protected;
mod proxy;
mod recorder;
mod report;
pub mod resource;
mod rivals;
mod suite;
pub mod torture;
pub mod uses;
mod victim;
mod violation;
mod worker;
mod workload;

pub use harness::{Fault, Harness, NotOffered, Store};
pub use ordeal::Ordeal;
pub use proxy::Proxy;
pub use recorder::{Recorded, Recorder};
pub use suite::{cases, run, run_one};
pub use worker::{worker_main, worker_main_with};
