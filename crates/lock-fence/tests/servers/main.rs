//! The checks on real servers.

mod databases;
mod lock_in;
mod redis;
mod sql;
