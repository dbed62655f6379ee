//! What both sides of the trait speak: claims, grants, tokens, instants, errors.

mod backend;
pub(crate) mod claim;
mod clock;
mod error;
mod name;
pub(crate) mod options;
mod token;

pub use backend::{
    Capabilities, DistributedLock, Finding, Grant, Holder, ListQuery, LockStatus, Mode, Notice, Page, Renewal, Scope,
    Unlocked, Waiter,
};
pub use claim::{Claim, OwnerId};
pub use clock::{Clock, Instant, ManualClock, SystemClock};
pub use error::{Error, ErrorKind, Result};
pub use name::LockName;
pub use token::{Fence, FencingToken, StaleToken, StoreToken};
