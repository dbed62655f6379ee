//! The suite on PostgreSQL.

#[path = "harness/postgres.rs"]
mod harness;

conformance_tests::suite!(harness::PostgresHarness { shedlock: false });
