//! The suite on three real servers, each behind a proxy.

mod harness;

conformance_tests::suite!(harness::ZookeeperHarness { name: "ensemble", servers: 3 });
