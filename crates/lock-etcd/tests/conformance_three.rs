//! The suite on three members.

mod common;

conformance_tests::suite!(common::EtcdHarness { name: "etcd_three", members: 3 });
