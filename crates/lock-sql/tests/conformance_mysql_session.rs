//! The suite on sessions of MariaDB, or another server of its kind.

#[path = "harness/mysql.rs"]
mod harness;

conformance_tests::suite!(harness::MySqlHarness::Sessions);
