//! The suite on two in-memory stores as one.

mod both;
#[allow(dead_code, reason = "it is a suite of its own")]
#[path = "conformance.rs"]
mod memory;

use async_trait::async_trait;
use conformance_tests::{Harness, Store};
use lock_core::TokensOf;

use both::BothStores;
use memory::MemoryHarness;

conformance_tests::suite!(BothHarness);

struct BothHarness;

#[async_trait]
impl Harness for BothHarness {
    fn name(&self) -> &'static str {
        "both-memory"
    }

    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        MemoryHarness.declared()
    }

    async fn store(&self) -> Box<dyn Store> {
        let (from, to) = (MemoryHarness.store().await, MemoryHarness.store().await);
        Box::new(BothStores { from, to, tokens: TokensOf::From })
    }
}
