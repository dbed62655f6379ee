//! The suite on one real server, behind a proxy.

mod harness;
mod raw;

conformance_tests::suite!(harness::ZookeeperHarness { name: "zookeeper", servers: 1 });
