//! The program as one calls it. (That there is such a test has cargo build the program beside the tests, which run it.)

use std::process::Command;

#[test]
fn who_cannot_take_part_is_told_who_can() {
    let torture = Command::new(env!("CARGO_BIN_EXE_trials")).args(["torture", "redis", "--with", "kazoo"]).output();
    let torture = torture.unwrap();
    assert!(!torture.status.success());
    let said = String::from_utf8_lossy(&torture.stderr);
    assert!(said.contains("kazoo of zookeeper") && said.contains("redis-py of redis"), "{said}");
}

#[test]
fn what_cannot_be_tortured_is_told_what_can() {
    let torture = Command::new(env!("CARGO_BIN_EXE_trials")).args(["torture", "oracle", "--minutes", "1"]).output();
    let torture = torture.unwrap();
    assert!(!torture.status.success());
    let said = String::from_utf8_lossy(&torture.stderr);
    assert!(said.contains("oracle") && said.contains("zookeeper"), "{said}");
}
