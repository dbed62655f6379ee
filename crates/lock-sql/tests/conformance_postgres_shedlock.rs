//! The suite on PostgreSQL, with ShedLock's table joined.

#[path = "harness/postgres.rs"]
mod harness;

conformance_tests::suite!(harness::PostgresHarness { shedlock: true });
