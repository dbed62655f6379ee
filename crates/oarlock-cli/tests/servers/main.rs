//! The program on stores with servers.

#[path = "../common/mod.rs"]
mod common;
mod compare;
mod moving;
mod stores;
