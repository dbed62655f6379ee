//! The program, as far as it needs no server.

#[path = "../common/mod.rs"]
mod common;
mod compare;
mod elect;
mod fence;
mod fenced;
mod latch;
mod look;
mod loss;
mod mistakes;
mod once;
mod rate;
mod run;
mod terminal;
mod top;
mod usage;
