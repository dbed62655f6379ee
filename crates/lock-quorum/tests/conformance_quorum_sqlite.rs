//! The suite on a quorum of three SQLite files.

#[allow(dead_code, reason = "it is a suite of its own")]
#[path = "../../lock-sql/tests/conformance.rs"]
mod sqlite_suite;
mod stores;

use std::sync::LazyLock;

use async_trait::async_trait;
use conformance_tests::{Harness, Store};
use lock_core::Registry;

use sqlite_suite::SqliteHarness;
use stores::{QuorumStores, with_quorum};

conformance_tests::suite!(QuorumHarness);

struct QuorumHarness;

#[async_trait]
impl Harness for QuorumHarness {
    fn name(&self) -> &'static str {
        "quorum-sqlite"
    }

    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        static DECLARED: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| SqliteHarness.declared().to_vec());
        &DECLARED
    }

    fn registry(&self) -> Registry {
        with_quorum(SqliteHarness.registry())
    }

    async fn store(&self) -> Box<dyn Store> {
        let members = vec![SqliteHarness.store().await, SqliteHarness.store().await, SqliteHarness.store().await];
        Box::new(QuorumStores { members, prefix: "oarlock" })
    }
}
