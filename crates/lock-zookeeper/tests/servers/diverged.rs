//! A server whose data are not what the servers agreed on.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use lock_core::{Claim, DistributedLock, LockName, OwnerId};
use lock_zookeeper::ZookeeperLock;
use test_servers::ZookeeperServers;
use zookeeper_client::{Acls, CreateMode};

use crate::common::{LONG, until};
use crate::raw::{PERSISTENT, raw_at};

/// Made at a leader that nobody hears.
const LOST: &str = "/never-agreed-on";

/// How a snapshot ends that is whole.
const SEAL: &[u8] = b"\0\0\0\x01/";

/// Is it in one of a server's files whose name begins so, and which ends so?
fn is_in(data: &Path, kind: &str, end: &[u8]) -> bool {
    let files = fs::read_dir(data).unwrap().map(|file| file.unwrap().path());
    let mut files = files.filter(|file| file.file_name().unwrap().to_string_lossy().starts_with(kind));
    files.any(|file| {
        // A log is as long as 64 MiB from the first; a snapshot of this is short.
        let mut begin = Vec::new();
        File::open(file).unwrap().take(1 << 18).read_to_end(&mut begin).unwrap();
        begin.windows(LOST.len()).any(|part| part == LOST.as_bytes()) && begin.ends_with(end)
    })
}

async fn connect(servers: &str) -> ZookeeperLock {
    ZookeeperLock::connect(&format!("zookeeper://{servers}"), "oarlock").await.unwrap()
}

fn claim(owner: &str) -> Claim {
    Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), LONG)
}

/// 269. A leader removes a holder's node and is killed before anybody heard of it; it leads once more without being heard,
/// which has it save that in a snapshot, and is killed again. If it comes back before the others agree on anything more,
/// ZooKeeper leaves it what it has: it grants the lock once more. The doctor finds that, and what it advises mends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_data_differ_is_found_and_mended() {
    let mut servers = ZookeeperServers::start_with(3, &[]);
    let old = servers.leader().expect("somebody leads");
    let (third, other) = ((old + 1) % 3, (old + 2) % 3);
    let hosts: Vec<_> = servers.addresses().iter().map(ToString::to_string).collect();
    let (holder, client) = (raw_at(&hosts[third]).await, raw_at(&hosts[old]).await);
    holder.mkdir("/oarlock/x", &PERSISTENT).await.unwrap();
    let node = "/oarlock/x/_c_8b1a0f6e-5d3a-4c86-9f0d-0123456789ab-lock-";
    let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, number) = holder.create(node, b"theirs", &ephemeral).await.unwrap();
    let node = format!("{node}{number}");
    servers.kill(other);
    servers.cut(old);
    let removed = node.clone();
    let unheard = tokio::spawn(async move {
        let (delete, create) = tokio::join!(client.delete(&removed, None), client.create(LOST, b"", &PERSISTENT));
        delete.is_err() && create.is_err()
    });
    until("the leader logs it", async || is_in(&servers.data(old), "log.", b"")).await;
    servers.kill(old);
    assert!(unheard.await.unwrap());
    servers.revive(old);
    until("it leads again", async || is_in(&servers.data(old), "snapshot.", SEAL)).await;
    servers.kill(old);
    servers.revive(other);
    servers.heal(old);
    until("another leads", async || servers.leader().is_some_and(|leader| leader != old)).await;
    servers.revive(old);
    until("it follows", async || servers.ask(old, "srvr").is_some_and(|state| state.contains("Mode: "))).await;

    assert!(raw_at(&hosts[third]).await.check_stat(&node).await.unwrap().is_some());
    assert!(raw_at(&hosts[old]).await.check_stat(&node).await.unwrap().is_none());
    let (there, here) = (connect(&hosts[third]).await, connect(&hosts[old]).await);
    assert!(there.try_lock(&claim("there")).await.unwrap().is_none());
    assert!(here.try_lock(&claim("here")).await.unwrap().is_some(), "two hold it");
    let doctor = connect(&hosts.join(",")).await;
    let differ = async || {
        let found = doctor.doctor().await.ok()?.into_iter();
        Some(found.filter(|finding| finding.setting.starts_with("zk_digest_mismatches_count=")).collect::<Vec<_>>())
    };
    let mut found = Vec::new();
    until("the doctor finds it", async || {
        found = differ().await.unwrap_or_default();
        !found.is_empty()
    })
    .await;
    assert!(found.len() == 1 && found[0].setting.ends_with(&hosts[old]), "{found:?}");

    servers.kill(old);
    fs::remove_dir_all(servers.data(old)).unwrap();
    servers.restart(old);
    assert!(raw_at(&hosts[old]).await.check_stat(&node).await.unwrap().is_some());
    until("the doctor is content", async || differ().await.is_some_and(|found| found.is_empty())).await;
    assert!(connect(&hosts[old]).await.try_lock(&claim("later")).await.unwrap().is_none());
}
