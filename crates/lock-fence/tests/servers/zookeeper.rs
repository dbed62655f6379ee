//! `fence::zookeeper`: ZooKeeper itself refuses who has lost the lock.

use std::sync::Arc;
use std::time::Duration;

use lock_core::memory::MemoryLock;
use lock_core::{Both, ErrorKind, Lease, LockGuard, Locks, TokensOf};
use lock_fence::zookeeper::writer;
use lock_zookeeper::ZookeeperLock;
use test_servers::{Proxy, ZookeeperServers};
use zookeeper_client::{Acls, CheckWriteError, CheckWriter, Client, CreateMode, Error as ZkError};

const NAME: &str = "orders/42";
const DATA: &str = "/data";

/// The shortest that its server gives, about.
const LEASE: Duration = Duration::from_secs(4);

async fn locks(servers: &ZookeeperServers) -> Locks {
    locks_at(&servers.url()).await
}

async fn locks_at(url: &str) -> Locks {
    Locks::new(Arc::new(ZookeeperLock::connect(url, "oarlock").await.unwrap()))
}

/// A client of the application, which has its data there.
async fn application(servers: &ZookeeperServers) -> Client {
    let client = Client::connect(&servers.addresses()[0].to_string()).await.unwrap();
    client.create(DATA, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    client
}

/// A write that is made, and not sent yet.
fn write<'a>(client: &'a Client, lease: &Lease, text: &str) -> CheckWriter<'a> {
    let mut writer = writer(client, lease).unwrap();
    writer.add_set_data(DATA, text.as_bytes(), None).unwrap();
    writer
}

async fn data(client: &Client) -> String {
    String::from_utf8(client.get_data(DATA).await.unwrap().0).unwrap()
}

async fn assert_refused(late: CheckWriter<'_>) {
    let refused = late.commit().await.unwrap_err();
    assert_eq!(refused, CheckWriteError::CheckFailed { source: ZkError::NoNode });
}

#[tokio::test]
async fn a_holder_writes_over_renewals_and_not_once_it_was_evicted() {
    let servers = ZookeeperServers::start();
    let (locks, client) = (locks(&servers).await, application(&servers).await);
    let guard = locks.mutex(NAME).lease(LEASE).lock().await.unwrap();
    let renewed = guard.changed();
    write(&client, &guard, "first").commit().await.unwrap();
    tokio::time::timeout(LEASE, renewed).await.expect("a renewal");
    write(&client, &guard, "second").commit().await.unwrap();
    let late = write(&client, &guard, "late");
    locks.evict(NAME).await.unwrap().expect("it was held");
    assert_refused(late).await;
    assert_eq!(data(&client).await, "second");
    guard.lost().await;
    assert_eq!(writer(&client, &guard).err().map(|error| error.kind()), Some(ErrorKind::Lost));
}

/// The holder is cut off, and its session expires: the application's client, which is not, writes nothing for it.
#[tokio::test]
async fn a_holder_whose_session_expired_is_refused() {
    let servers = ZookeeperServers::start();
    let proxy = Proxy::new(servers.addresses()[0]);
    let cut_off = locks_at(&format!("zookeeper://{}", proxy.address())).await;
    let client = application(&servers).await;
    let former = cut_off.mutex(NAME).lease(LEASE).lock().await.unwrap();
    let late = write(&client, &former, "late");
    proxy.cut();
    // Granted once the session is over, and given back: nobody holds the lock, and the former holder still does not.
    let next = locks(&servers).await.mutex(NAME).wait(LEASE * 3).lock().await.unwrap();
    write(&client, &next, "next").commit().await.unwrap();
    next.unlock().await.unwrap();
    assert_refused(late).await;
    assert_eq!(data(&client).await, "next");
    assert_eq!(writer(&client, &former).err().map(|error| error.kind()), Some(ErrorKind::Lost));
}

/// The holder before has the same folder, and the next may have been in line behind it.
#[tokio::test]
async fn the_next_holder_does_not_let_the_former_pass() {
    let servers = ZookeeperServers::start();
    let (locks, others) = (locks(&servers).await, locks(&servers).await);
    let client = application(&servers).await;
    let former = locks.mutex(NAME).lock().await.unwrap();
    let late = write(&client, &former, "late");
    let waiting = tokio::spawn(async move { others.mutex(NAME).lock().await });
    while locks.inspect(NAME).await.unwrap().waiters.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    former.unlock().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    write(&client, &next, "next").commit().await.unwrap();
    assert_refused(late).await;
    assert_eq!(data(&client).await, "next");
}

#[tokio::test]
async fn readers_do_not_fence_each_other_off() {
    let servers = ZookeeperServers::start();
    let (locks, others) = (locks(&servers).await, locks(&servers).await);
    let client = application(&servers).await;
    let one = locks.rw_lock(NAME).unwrap().read().await.unwrap();
    let other = others.rw_lock(NAME).unwrap().read().await.unwrap();
    write(&client, &other, "other").commit().await.unwrap();
    write(&client, &one, "one").commit().await.unwrap();
    let late = write(&client, &one, "late");
    let locked = async |guard: LockGuard| guard.unlock().await.unwrap();
    locked(one).await;
    write(&client, &other, "still").commit().await.unwrap();
    locked(other).await;
    let alone = locks.rw_lock(NAME).unwrap().write().await.unwrap();
    write(&client, &alone, "alone").commit().await.unwrap();
    assert_refused(late).await;
    assert_eq!(data(&client).await, "alone");
}

/// Each permit is a node.
#[tokio::test]
async fn holders_of_permits_do_not_fence_each_other_off() {
    let servers = ZookeeperServers::start();
    let (locks, others) = (locks(&servers).await, locks(&servers).await);
    let client = application(&servers).await;
    let two = locks.semaphore("exports", 3).unwrap().acquire_many(2).await.unwrap();
    let one = others.semaphore("exports", 3).unwrap().acquire().await.unwrap();
    assert_eq!((two.evidence().len(), one.evidence().len()), (2, 1));
    for (guard, text) in [(&two, "two"), (&one, "one"), (&two, "two again")] {
        write(&client, guard, text).commit().await.unwrap();
        assert_eq!(data(&client).await, text);
    }
    let late = write(&client, &two, "late");
    two.unlock().await.unwrap();
    assert_refused(late).await;
    let next = others.semaphore("exports", 3).unwrap().acquire_many(2).await.unwrap();
    let late = write(&client, &next, "late");
    client.delete(next.evidence()[1].place(), None).await.unwrap();
    let refused = late.commit().await.unwrap_err();
    assert_eq!(refused, CheckWriteError::OperationFailed { index: 0, source: ZkError::NoNode });
    write(&client, &one, "still").commit().await.unwrap();
}

/// The store cannot tell them from each other, so the lease does.
#[tokio::test]
async fn whoever_handed_the_lock_over_in_the_process_is_refused() {
    let servers = ZookeeperServers::start();
    let (locks, client) = (locks(&servers).await, application(&servers).await);
    let mutex = locks.mutex(NAME).hand_over_for(Duration::from_secs(20));
    let first = mutex.lock().await.unwrap();
    let lease = first.lease();
    let next = tokio::spawn(async move { mutex.lock().await });
    // Its task stands in the queue of the process after its first poll.
    tokio::task::yield_now().await;
    first.unlock().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_eq!(next.evidence(), lease.evidence(), "it was handed over");
    assert_eq!(writer(&client, &lease).err().map(|error| error.kind()), Some(ErrorKind::Lost));
    write(&client, &next, "next").commit().await.unwrap();
}

#[tokio::test]
async fn a_clients_root_has_to_be_above_the_locks() {
    let servers = ZookeeperServers::start();
    let client = application(&servers).await;
    let folder = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for path in ["/app", "/app/other"] {
        client.create(path, b"", &folder).await.unwrap();
    }
    let url = format!("{}/app", servers.url());
    let locks = Locks::new(Arc::new(ZookeeperLock::connect(&url, "locks").await.unwrap()));
    let guard = locks.mutex(NAME).lock().await.unwrap();
    write(&client, &guard, "from above").commit().await.unwrap();
    let inside = client.clone().chroot("/app").unwrap();
    let mut writing = writer(&inside, &guard).unwrap();
    writing.add_create("/made", b"", &folder).unwrap();
    writing.commit().await.unwrap();
    let other = client.clone().chroot("/app/other").unwrap();
    let error = writer(&other, &guard).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("/app/other"), "{error}");
    let late = writer(&inside, &guard).unwrap();
    guard.unlock().await.unwrap();
    assert_refused(late).await;
}

#[tokio::test]
async fn of_a_lock_in_two_stores_one_is_enough_and_of_another_store_none_is_there() {
    let servers = ZookeeperServers::start();
    let client = application(&servers).await;
    let zookeeper = Arc::new(ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap());
    let memory = Arc::new(MemoryLock::new());
    let both = Locks::new(Arc::new(Both::new(memory.clone(), zookeeper, TokensOf::From).unwrap()));
    let guard = both.mutex(NAME).lock().await.unwrap();
    write(&client, &guard, "both").commit().await.unwrap();
    let guard = Locks::new(memory).mutex("another").lock().await.unwrap();
    let error = writer(&client, &guard).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("take it in ZooKeeper"), "{error}");
}
