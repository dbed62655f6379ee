//! What needs servers, but for the suite.

mod beside;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod free;
mod interop;
mod kept;
mod look_alikes;
mod memory_and_clock;
mod replicas;
mod rights;
mod sentinel;
mod shedlock;
mod tls;
mod unsure;
mod values;
