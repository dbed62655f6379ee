//! The suite on one member.

mod common;

conformance_tests::suite!(common::EtcdHarness { name: "etcd", members: 1 });
