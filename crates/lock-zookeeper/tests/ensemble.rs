//! The suite on three real servers, each behind a proxy.

mod harness;
mod raw;

conformance_tests::suite!(harness::ZookeeperHarness { name: "ensemble", servers: 3 });
