//! The suite on MariaDB, or another server of its kind, with ShedLock's table joined.

#[path = "harness/mysql.rs"]
mod harness;

conformance_tests::suite!(harness::MySqlHarness::Shedlock);
