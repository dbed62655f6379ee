//! The real `concurrency.Mutex` and `recipes.RWMutex`, in a program of Go: one session, which takes the same key for each of
//! its locks.

use std::process::Stdio;
use std::time::Duration;

use test_servers::EtcdCluster;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Longer than any step takes.
const BOUND: Duration = Duration::from_secs(20);

pub(crate) struct GoSession {
    _child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

/// What it locked.
#[derive(Debug)]
pub(crate) struct GoLock {
    pub(crate) key: String,
}

impl GoSession {
    pub(crate) fn open(cluster: &EtcdCluster) -> Self {
        let mut command = Command::from(test_servers::go_mutex());
        command.args([&cluster.hosts(), "60"]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("it was built");
        let (orders, lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        Self { _child: child, orders, lines }
    }

    /// Asks for the lock and does not wait for it.
    pub(crate) async fn ask(&mut self, name: &str) {
        self.order("lock", name).await;
    }

    /// The same; how is `lock`, or `read` or `write` of a read-write lock.
    pub(crate) async fn order(&mut self, how: &str, name: &str) {
        self.orders.write_all(format!("{how} {name}\n").as_bytes()).await.unwrap();
    }

    /// Waits until it has what it asked for.
    pub(crate) async fn has_it(&mut self) -> GoLock {
        let line = self.line().await;
        let key = line.strip_prefix("locked ").unwrap_or_else(|| panic!("{line}"));
        GoLock { key: key.split(' ').next().unwrap().to_owned() }
    }

    pub(crate) async fn lock(&mut self, name: &str) -> GoLock {
        self.ask(name).await;
        self.has_it().await
    }

    pub(crate) async fn unlock(&mut self) {
        self.orders.write_all(b"unlock\n").await.unwrap();
        assert_eq!(self.line().await, "unlocked");
    }

    async fn line(&mut self) -> String {
        let line = tokio::time::timeout(BOUND, self.lines.next_line()).await.expect("Go goes on");
        line.unwrap().expect("Go goes on")
    }
}
