//! The suite on two SQLite files as one.

#[path = "../../lock-core/tests/both/mod.rs"]
mod both;
#[allow(dead_code, reason = "it is a suite of its own")]
#[path = "conformance.rs"]
mod sqlite;

use std::sync::LazyLock;

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
        static DECLARED: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
            let far = [
                (
                    "tokens_rise_over_stores",
                    "tokens=to raises tokens years ahead of the clock, by which other stores count",
                ),
                ("tokens_raised", "raised in the old store, they are raised far above that in the new one"),
                ("token_range", "its tokens are above the numbers that the case begins with"),
            ];
            SqliteHarness.declared().iter().copied().chain(far).collect()
        });
        &DECLARED
    }

    fn registry(&self) -> Registry {
        SqliteHarness.registry()
    }

    async fn store(&self) -> Box<dyn Store> {
        let (from, to) = (SqliteHarness.store().await, SqliteHarness.store().await);
        Box::new(BothStores { from, to, tokens: TokensOf::To })
    }
}
