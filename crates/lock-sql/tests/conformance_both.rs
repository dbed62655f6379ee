//! The suite on two SQLite files as one.

#[path = "../../lock-core/tests/both/mod.rs"]
mod both;
#[allow(dead_code, reason = "it is a suite of its own")]
#[path = "conformance.rs"]
mod sqlite;

use async_trait::async_trait;
use conformance_tests::{Harness, Store};
use lock_core::{Registry, TokensOf};

use both::BothStores;
use sqlite::SqliteHarness;

conformance_tests::suite!(BothHarness);

struct BothHarness;

#[async_trait]
impl Harness for BothHarness {
    fn name(&self) -> &'static str {
        "both-sqlite"
    }

    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        SqliteHarness.declared()
    }

    fn registry(&self) -> Registry {
        SqliteHarness.registry()
    }

    async fn store(&self) -> Box<dyn Store> {
        let (from, to) = (SqliteHarness.store().await, SqliteHarness.store().await);
        Box::new(BothStores { from, to, tokens: TokensOf::To })
    }
}
