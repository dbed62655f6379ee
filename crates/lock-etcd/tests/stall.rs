//! 43. The leader's disk stalls: it goes on answering keep-alives from memory while another leads.

mod patience;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lock_core::{DistributedLock, Locks};
use lock_etcd::{EtcdLock, EtcdOptions};
use test_servers::EtcdCluster;

/// For what needs no lease's end.
const BOUND: Duration = Duration::from_secs(20);

/// A holder that talks to the leader, and one who waits through another member. Whoever gets the lock, the holder does
/// not believe in it then; unless the version is one of those that end leases that were just prolonged, which `doctor`
/// names. Then the holder is told at once, and the token tells them apart.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_disk_stalls() {
    const LEASE: Duration = Duration::from_secs(3);
    let cluster = EtcdCluster::start(3);
    let leader = cluster.leader();
    let connect = async |first: usize| {
        let mut hosts: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
        hosts.rotate_left(first);
        Arc::new(in_order(&hosts).await)
    };
    let (through_leader, through_follower) = (connect(leader).await, connect((leader + 1) % 3).await);
    let findings = through_leader.doctor().await.unwrap();
    let known = findings.iter().any(|finding| finding.voids.contains("disk stalls"));
    let locks = |backend| Locks::builder(backend).lease(LEASE).build().unwrap();
    let (one, other) = (locks(through_leader), locks(through_follower));
    let guard = one.mutex("x").lock().await.unwrap();
    let token = guard.fencing_token();
    let waiting = tokio::spawn(patience::lock(other.mutex("x")));
    // Each write to its disk takes as long as two leases.
    let mut stall = Command::new("timeout")
        .args(["12", "strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync"])
        .args(["-e", "inject=fdatasync,fsync:delay_enter=6000000", "-p", &cluster.pid(leader).to_string()])
        .stderr(Stdio::piped())
        .spawn()
        .expect("timeout and strace are installed");
    let status = loop {
        let granted = waiting.is_finished();
        if granted && guard.is_held() {
            assert!(known, "two believe to hold");
            tokio::time::timeout(BOUND, guard.lost()).await.expect("the loss is told");
        }
        if let Some(status) = stall.try_wait().unwrap() {
            break status;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(status.code(), Some(124), "the stall did not last to its end");
    // If it was held to the end, it is released now, or soon.
    drop(guard);
    let next = tokio::time::timeout(BOUND, waiting).await.expect("the next is granted").unwrap();
    assert!(next.fencing_token() > token);
}

/// A client that begins with the first of these.
async fn in_order(hosts: &[String]) -> EtcdLock {
    EtcdOptions::new(&format!("etcd://{}", hosts.join(","))).unwrap().in_order(true).connect().await.unwrap()
}
