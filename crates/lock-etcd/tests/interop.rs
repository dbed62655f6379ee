//! Others who lock in the same line: the real `etcdctl lock`, which is Go's `concurrency.Mutex`, and `etcdctl elect`, which
//! is its `concurrency.Election`, in both directions.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Claim, DistributedLock, Holder, Kept, LockName, LockValue, Locks, Observed, Observer, OwnerId};
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

/// `etcdctl lock NAME`, which prints its key when it has the lock, and holds it until it is told to end; or another that
/// prints something now and then.
struct Etcdctl {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Etcdctl {
    fn lock(cluster: &EtcdCluster, name: &str) -> Self {
        Self::start(cluster, &["lock", name])
    }

    /// A candidate: it prints its key and its value when it leads.
    fn elect(cluster: &EtcdCluster, name: &str, value: &str) -> Self {
        Self::start(cluster, &["elect", name, value])
    }

    /// Prints the key and the value of each leader.
    fn listen(cluster: &EtcdCluster, name: &str) -> Self {
        Self::start(cluster, &["elect", "--listen", name])
    }

    fn start(cluster: &EtcdCluster, arguments: &[&str]) -> Self {
        let mut command = Command::from(cluster.etcdctl(arguments));
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("etcdctl is installed");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn has_it(&mut self) -> String {
        let line = tokio::time::timeout(BOUND, self.lines.next_line()).await.expect("etcdctl gets the lock");
        line.unwrap().expect("etcdctl prints its key")
    }

    /// The value that is printed next, with its key.
    async fn sees(&mut self) -> (String, String) {
        (self.has_it().await, self.has_it().await)
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

/// Before the first of ours has come, nothing that they hold has a token, whatever etcd counts.
#[tokio::test]
async fn a_lock_of_theirs_has_no_token_before_ours_count() {
    let cluster = EtcdCluster::start(1);
    let mut theirs = Etcdctl::lock(&cluster, "job");
    theirs.has_it().await;
    let locks = locks(&cluster, "").await;
    let seen = async || locks.inspect("job").await.unwrap().into_holder().unwrap();
    let leader = locks.election("job").leader().await.unwrap().unwrap();
    assert_eq!((seen().await.token, leader.token), (Holder::NO_TOKEN, Holder::NO_TOKEN));
    // Nor after that, for it was there before.
    let _other = locks.mutex("other").lock().await.unwrap();
    assert_eq!(seen().await.token, Holder::NO_TOKEN);
    theirs.interrupt().await;
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

/// What is seen next of a leader: its owner and its value.
async fn leader(observer: &mut Observer) -> (String, String) {
    loop {
        match tokio::time::timeout(BOUND, observer.next()).await.expect("a change").unwrap() {
            Observed::Held(holder) => {
                return (holder.owner.as_str().to_owned(), holder.value.unwrap().as_str().to_owned());
            }
            Observed::Free => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn etcdctl_and_we_lead_in_turns_and_see_each_other() {
    let cluster = EtcdCluster::start(1);
    for (prefix, name, place) in [("", "job", "job"), ("app/locks", "a/b", "app/locks/a%2Fb")] {
        let (locks, watching) = (locks(&cluster, prefix).await, locks(&cluster, prefix).await);
        let mut observer = watching.election(name).observe().unwrap();
        let mut listening = Etcdctl::listen(&cluster, place);
        let ours = locks.election(name).campaign("http://ours:1 \u{1f980}").await.unwrap();
        let (key, value) = listening.sees().await;
        assert!(key.starts_with(&format!("{place}/")), "{key}");
        assert_eq!(value, "http://ours:1 \u{1f980}");
        assert_eq!(leader(&mut observer).await, (ours.owner().as_str().to_owned(), value));
        ours.proclaim("http://ours:2").await.unwrap();
        assert_eq!(listening.sees().await, (key, "http://ours:2".to_owned()));
        assert_eq!(leader(&mut observer).await.1, "http://ours:2");

        let mut theirs = Etcdctl::elect(&cluster, place, "http://theirs");
        let in_line = async || {
            let in_line = async {
                while watching.inspect(name).await.unwrap().waiters.is_empty() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(BOUND, in_line).await.expect("one stands in line");
        };
        in_line().await;
        // A candidate's value is not what its owner is shown as.
        let waiter = watching.inspect(name).await.unwrap().waiters.pop().unwrap().owner;
        assert!(i64::from_str_radix(waiter.as_str(), 16).is_ok(), "{waiter}");
        assert!(tokio::time::timeout(Duration::from_millis(300), theirs.lines.next_line()).await.is_err());
        ours.resign().await.unwrap();
        let (key, value) = theirs.sees().await;
        assert_eq!(value, "http://theirs");
        assert_eq!(listening.sees().await, (key.clone(), value.clone()));
        assert_eq!(leader(&mut observer).await, (waiter.as_str().to_owned(), value));
        assert!(key.ends_with(waiter.as_str()));

        let again = tokio::spawn({
            let election = locks.election(name);
            async move { election.campaign("http://ours:3").await.unwrap() }
        });
        in_line().await;
        assert!(!again.is_finished());
        theirs.interrupt().await;
        let again = tokio::time::timeout(BOUND, again).await.unwrap().unwrap();
        assert_eq!(listening.sees().await.1, "http://ours:3");
        let leads = leader(&mut observer).await;
        assert_eq!(leads, (again.owner().as_str().to_owned(), "http://ours:3".to_owned()));
        again.resign().await.unwrap();
    }
}

/// A hold that goes on without its owner excludes them until its time is over.
#[tokio::test]
async fn etcdctl_waits_for_the_end_of_a_kept_hold() {
    const REST: Duration = Duration::from_secs(2);
    let cluster = EtcdCluster::start(1);
    for value in [None, Some("http://ours")] {
        let backend = EtcdLock::connect(&cluster.url(), "").await.unwrap();
        let owner = OwnerId::from_store(&format!("{value:?}"));
        let mut claim = Claim::new(LockName::new("job").unwrap(), owner, Duration::from_secs(300));
        claim.value = value.map(|value| LockValue::new(value).unwrap());
        backend.try_lock(&claim).await.unwrap().unwrap();
        let mut theirs = match value {
            None => Etcdctl::lock(&cluster, "job"),
            Some(_) => Etcdctl::elect(&cluster, "job", "http://theirs"),
        };
        let in_line = async {
            while backend.inspect(&claim.name).await.unwrap().waiters.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(BOUND, in_line).await.unwrap();
        let began = std::time::Instant::now();
        assert_eq!(backend.keep(&claim, REST).await.unwrap(), Kept::Kept);
        // It is not the session that keeps it.
        backend.close().await.unwrap();
        let key = theirs.has_it().await;
        assert!(began.elapsed() >= REST, "{key} after {:?}", began.elapsed());
        theirs.interrupt().await;
    }
}
