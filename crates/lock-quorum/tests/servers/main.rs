//! Quorums of real servers.

mod tokens;
