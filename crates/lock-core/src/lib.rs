//! PLACEHOLDER
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod backend;
mod claim;
mod clock;
pub mod config;
mod error;
mod guard;
mod janitor;
mod keeper;
mod lease;
mod locks;
pub mod memory;
mod mutex;
mod name;
mod options;
mod registry;
mod token;
mod url;
mod worker;

pub use backend::{
    Capabilities, DistributedLock, Finding, Grant, Holder, ListQuery, LockStatus, Page, Renewal, Scope, Unlocked,
};
pub use claim::{Claim, OwnerId};
pub use clock::{Clock, Instant, ManualClock, SystemClock};
pub use config::{Config, Requirement};
pub use error::{Error, ErrorKind, Result};
pub use guard::LockGuard;
pub use lease::{Lease, LeaseState};
pub use locks::{Locks, LocksBuilder, ShutdownReport};
pub use mutex::Mutex;
pub use name::LockName;
pub use registry::{BackendFactory, Registry, Target};
pub use token::{Fence, FencingToken, StaleToken, StoreToken};
pub use url::{BackendUrl, Params};
