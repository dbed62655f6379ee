//! The checks on real servers.

mod databases;
mod sql;
