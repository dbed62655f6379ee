//! What both sides of the trait speak: claims, grants, tokens, instants, errors.

mod backend;
pub(crate) mod claim;
mod clock;
mod error;
mod evidence;
mod mode;
mod name;
pub(crate) mod options;
mod reservation;
mod status;
mod token;
mod value;

pub use backend::{Capabilities, DistributedLock, Grant, Kept, Notice, Proclaimed, Renewal, Scope, Unlocked};
pub(crate) use backend::{KEEP, LIMIT, SHOW, TAKE_ALL};
pub use claim::{Claim, OwnerId};
pub use clock::{Clock, Instant, ManualClock, SystemClock};
pub use error::{Error, ErrorKind, Result};
pub use evidence::Evidence;
pub use mode::{Mode, Modes, Slots};
pub use name::LockName;
pub use reservation::{Reservation, Reserved};
pub use status::{Finding, Holder, ListQuery, LockStatus, Page, Waiter};
pub use token::{Fence, FencingToken, StaleToken, StoreToken};
pub use value::LockValue;
