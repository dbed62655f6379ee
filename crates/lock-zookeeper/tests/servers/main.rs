//! What needs servers, but for the suite.

mod common;
mod diverged;
mod events;
mod faults;
mod hostile;
mod interop;
mod kept;
mod lagging;
mod line;
mod permits;
#[path = "../raw/mod.rs"]
mod raw;
mod read_write;
mod restart;
mod rights;
#[path = "../says/mod.rs"]
mod says;
mod server_clock;
mod slow;
mod upkeep;
