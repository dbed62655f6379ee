//! The distributed-lock trait, and everything that is the same for every backend.
//!
//! An application uses the crate `oarlock`, which re-exports all of this and brings the backends; its page is the
//! manual. This page is for those who write a backend.
//!
//! # What a backend is
//!
//! A backend implements one trait, [`DistributedLock`]: how its store grants a lock, queues for it, renews and releases
//! it. It has no guard, no renewal timer and no retry of an acquisition: those are here, once for all. What the core
//! relies on is [the contract](DistributedLock#the-contract) on the trait, eleven rules; the suite in
//! `conformance-tests` holds a backend to them.
//!
//! # What the core does with it
//!
//! - Each acquisition has an owner of its own ([`OwnerId`], 128 random bits), drawn before the first byte leaves. So a
//!   request that is repeated or comes late can neither release nor renew what a later acquisition holds.
//! - A [`Mutex`] bounds the whole acquisition by its wait. Whatever ends it early, a dropped future, a deadline, an
//!   error of kind [`Unknown`](ErrorKind::Unknown), is followed by an `unlock` of the same [`Claim`]: at once if the
//!   store answers soon, else by the *janitor*, a task that repeats it until the store answers.
//! - The *keeper*, another task, renews all leases in batches at a third of their time. A renewal that fails is
//!   repeated while the lease runs. [`Renewal::NotHeld`] is a loss at once.
//! - A [`LockGuard`] is held until [`Grant::valid_until`] less a margin, a tenth of the lease but at most a second, for
//!   clocks of different rate and for the time it takes to tell the holder. That is asked of the [`Clock`] at each
//!   question, not told by a timer.
//! - [`Error`]s get the operation, the backend and the lock's name here. A backend gives the [`ErrorKind`], a message
//!   with the way out, and the source.
//!
//! # How to write one
//!
//! 1. Implement [`DistributedLock`]. [`memory`] is the smallest example.
//! 2. Sort errors by what is sure: [`ErrorKind::Refused`] and [`ErrorKind::Unavailable`] say that nothing was done,
//!    and the core does not clean up after them. In doubt it is [`ErrorKind::Unknown`].
//! 3. Read [`Clock::now`] *before* a request is sent; [`Grant::valid_until`] is that instant plus the lease that the
//!    store granted.
//! 4. Implement [`BackendFactory`] for its URL schemes, and [`register`](Registry::register) it. Take the settings you
//!    know out of [`Target::params`] and call [`Params::finish`], so that a misspelt one is refused.
//! 5. Write a harness for `conformance-tests` and run the suite.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod api;
mod authors;
mod both;
mod connect;
mod contract;
mod engine;
pub mod memory;
pub mod testing;

pub use api::{
    All, AllGuard, Arrival, Election, Latch, Leadership, Leases, Locks, LocksBuilder, Mutex, Once, OnceGuard, OnceRun,
    RateLimiter, RwLock, Semaphore, ShutdownReport, Skipped,
};
pub use authors::{
    Background, Failures, InLine, News, TlsFiles, TokenBase, Waiters, Waiting, Watched, read_file, warn_of,
};
pub use both::{Both, TokensOf};
pub use connect::{
    BackendFactory, BackendUrl, Config, HostPort, OneServer, Params, Registry, Requirement, Servers, Target,
    check_prefix, check_timeout, invalid_url,
};
pub use contract::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Evidence, Fence, FencingToken, Finding, Grant,
    Holder, Instant, Kept, ListQuery, LockName, LockStatus, LockValue, ManualClock, Mode, Modes, Notice, OwnerId, Page,
    Proclaimed, Renewal, Reservation, Reserved, Result, Scope, Slots, StaleToken, StoreToken, SystemClock, Unlocked,
    Waiter,
};
pub use engine::{Lease, LeaseState, LockGuard, Observed, Observer, Owner};
