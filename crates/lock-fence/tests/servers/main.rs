//! The checks on real servers.

mod databases;
mod lock_in;
mod marks;
mod redis;
mod sql;
mod zookeeper;
