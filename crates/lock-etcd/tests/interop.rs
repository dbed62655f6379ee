//! Others who lock in the same line: the real `etcdctl lock`, which is Go's `concurrency.Mutex`, in both directions.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Locks;
use lock_etcd::EtcdLock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_servers::EtcdCluster;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Longer than any step takes, shorter than the leases.
const BOUND: Duration = Duration::from_secs(20);

async fn locks(cluster: &EtcdCluster, prefix: &str) -> Locks {
    let backend = EtcdLock::connect(&cluster.url(), prefix).await.unwrap();
    Locks::builder(Arc::new(backend)).lease(Duration::from_secs(300)).build().unwrap()
}

/// `etcdctl lock NAME`, which prints its key when it has the lock, and holds it until it is told to end.
struct Etcdctl {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Etcdctl {
    fn lock(cluster: &EtcdCluster, name: &str) -> Self {
        let mut command = Command::from(cluster.etcdctl(&["lock", name]));
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("etcdctl is installed");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn has_it(&mut self) -> String {
        let line = tokio::time::timeout(BOUND, self.lines.next_line()).await.expect("etcdctl gets the lock");
        line.unwrap().expect("etcdctl prints its key")
    }

    async fn interrupt(mut self) {
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap());
        kill(pid, Signal::SIGINT).unwrap();
        tokio::time::timeout(BOUND, self.child.wait()).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn etcdctl_waits_for_us_and_we_wait_for_etcdctl() {
    let cluster = EtcdCluster::start(1);
    for (prefix, name, place) in [("", "job", "job"), ("app/locks", "a/b", "app/locks/a%2Fb")] {
        let locks = locks(&cluster, prefix).await;
        let ours = locks.mutex(name).lock().await.unwrap();
        let mut theirs = Etcdctl::lock(&cluster, place);
        let in_line = async {
            while locks.inspect(name).await.unwrap().waiters.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(BOUND, in_line).await.expect("etcdctl stands in line");
        assert!(tokio::time::timeout(Duration::from_millis(300), theirs.lines.next_line()).await.is_err());
        ours.unlock().await.unwrap();
        let key = theirs.has_it().await;
        assert!(key.starts_with(&format!("{place}/")), "{key}");

        assert!(locks.mutex(name).try_lock().await.unwrap().is_none());
        let holder = locks.inspect(name).await.unwrap().into_holder().unwrap();
        assert_eq!(Some(holder.owner.as_str()), key.rsplit('/').next());
        let waiting = tokio::spawn({
            let mutex = locks.mutex(name);
            async move { mutex.lock().await.unwrap() }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished());
        theirs.interrupt().await;
        let ours = tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap();
        assert!(ours.fencing_token().store() > holder.token);
    }
}

/// A line of both kinds is served in its order.
#[tokio::test]
async fn a_mixed_line_keeps_its_order() {
    let cluster = EtcdCluster::start(1);
    // The tasks of one client would stand in line here, and not there.
    let (locks, other) = (locks(&cluster, "").await, locks(&cluster, "").await);
    let first = locks.mutex("job").lock().await.unwrap();
    let in_line = async |count: usize| {
        while locks.inspect("job").await.unwrap().waiters.len() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let mut second = Etcdctl::lock(&cluster, "job");
    tokio::time::timeout(BOUND, in_line(1)).await.unwrap();
    let third = tokio::spawn({
        let mutex = other.mutex("job");
        async move { mutex.lock().await.unwrap() }
    });
    tokio::time::timeout(BOUND, in_line(2)).await.unwrap();
    let mut fourth = Etcdctl::lock(&cluster, "job");
    tokio::time::timeout(BOUND, in_line(3)).await.unwrap();
    first.unlock().await.unwrap();
    second.has_it().await;
    assert!(!third.is_finished());
    second.interrupt().await;
    let third = tokio::time::timeout(BOUND, third).await.unwrap().unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), fourth.lines.next_line()).await.is_err());
    third.unlock().await.unwrap();
    fourth.has_it().await;
}
