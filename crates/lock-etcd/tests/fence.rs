//! `fence::etcd`: etcd itself refuses who has lost the lock.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Txn, TxnOp};
use lock_core::memory::MemoryLock;
use lock_core::{Both, ErrorKind, Lease, Locks, TokensOf};
use lock_etcd::EtcdLock;
use lock_fence::etcd::holds;
use test_servers::{EtcdCluster, Proxy};

const NAME: &str = "orders/42";
const DATA: &str = "data";

/// The shortest that etcd knows.
const LEASE: Duration = Duration::from_secs(2);

async fn locks(cluster: &EtcdCluster) -> Locks {
    locks_at(&cluster.url()).await
}

async fn locks_at(url: &str) -> Locks {
    Locks::new(Arc::new(EtcdLock::connect(url, "oarlock").await.unwrap()))
}

/// A client of the application.
async fn application(cluster: &EtcdCluster) -> Client {
    Client::connect(cluster.addresses().iter().map(ToString::to_string).collect::<Vec<_>>(), None).await.unwrap()
}

/// A write that is made, and not sent yet.
fn write(lease: &Lease, text: &str) -> Txn {
    Txn::new().when(holds(lease).unwrap()).and_then([TxnOp::put(DATA, text, None)])
}

/// Was it done?
async fn sent(client: &Client, write: Txn) -> bool {
    client.kv_client().txn(write).await.unwrap().succeeded()
}

async fn data(client: &Client) -> String {
    let found = client.kv_client().get(DATA, None).await.unwrap();
    found.kvs()[0].value_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_holder_writes_over_renewals_and_not_once_it_was_evicted() {
    let cluster = EtcdCluster::start(1);
    let (locks, client) = (locks(&cluster).await, application(&cluster).await);
    let guard = locks.mutex(NAME).lease(LEASE).lock().await.unwrap();
    let renewed = guard.changed();
    assert!(sent(&client, write(&guard, "first")).await);
    tokio::time::timeout(LEASE, renewed).await.expect("a renewal");
    assert!(sent(&client, write(&guard, "second")).await);
    let late = write(&guard, "late");
    locks.evict(NAME).await.unwrap().expect("it was held");
    assert!(!sent(&client, late).await);
    assert_eq!(data(&client).await, "second");
    guard.lost().await;
    assert_eq!(holds(&guard).unwrap_err().kind(), ErrorKind::Lost);
}

/// The holder is cut off, and its lease runs out: the application's client, which is not, writes nothing for it.
#[tokio::test]
async fn a_holder_whose_lease_expired_is_refused() {
    let cluster = EtcdCluster::start(1);
    let proxy = Proxy::new(cluster.addresses()[0]);
    let cut_off = locks_at(&format!("etcd://{}", proxy.address())).await;
    let client = application(&cluster).await;
    let former = cut_off.mutex(NAME).lease(LEASE).lock().await.unwrap();
    let late = write(&former, "late");
    proxy.cut();
    // Granted once the lease is over, and given back: nobody holds the lock, and the former holder still does not.
    let next = locks(&cluster).await.mutex(NAME).wait(LEASE * 5).lock().await.unwrap();
    assert!(sent(&client, write(&next, "next")).await);
    next.unlock().await.unwrap();
    assert!(!sent(&client, late).await);
    assert_eq!(data(&client).await, "next");
    assert_eq!(holds(&former).unwrap_err().kind(), ErrorKind::Lost);
}

/// Keys are used again: the next holder's has the same name, and is another.
#[tokio::test]
async fn the_next_holder_of_the_same_key_does_not_let_the_former_pass() {
    let cluster = EtcdCluster::start(1);
    let (locks, others, client) = (locks(&cluster).await, locks(&cluster).await, application(&cluster).await);
    let former = locks.mutex(NAME).lock().await.unwrap();
    let late = write(&former, "late");
    let [key] = former.evidence() else { panic!("one key") };
    let key = key.clone();
    former.unlock().await.unwrap();
    let next = others.mutex(NAME).lock().await.unwrap();
    assert_eq!(next.evidence()[0].place(), key.place());
    assert_ne!(next.evidence()[0].number(), key.number());
    assert!(sent(&client, write(&next, "next")).await);
    assert!(!sent(&client, late).await);
    assert_eq!(data(&client).await, "next");
}

#[tokio::test]
async fn whoever_had_waited_and_shows_a_value_writes_too() {
    let cluster = EtcdCluster::start(1);
    let (locks, others, client) = (locks(&cluster).await, locks(&cluster).await, application(&cluster).await);
    for value in [false, true] {
        let first = locks.mutex(NAME).lock().await.unwrap();
        let late = write(&first, "late");
        let mutex = others.mutex(NAME);
        let mutex = if value { mutex.value("http://10.0.0.7") } else { mutex };
        let waiting = tokio::spawn(async move { mutex.lock().await });
        while locks.inspect(NAME).await.unwrap().waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        first.unlock().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        assert!(sent(&client, write(&next, "next")).await, "with a value: {value}");
        assert!(!sent(&client, late).await);
        next.unlock().await.unwrap();
    }
}

/// Each reader, and each holder of permits, has a key of its own.
#[tokio::test]
async fn those_who_hold_together_do_not_fence_each_other_off() {
    let cluster = EtcdCluster::start(1);
    let (locks, others, client) = (locks(&cluster).await, locks(&cluster).await, application(&cluster).await);
    let readers =
        [locks.rw_lock(NAME).unwrap().read().await.unwrap(), others.rw_lock(NAME).unwrap().read().await.unwrap()];
    let permits = [
        locks.semaphore("exports", 3).unwrap().acquire_many(2).await.unwrap(),
        others.semaphore("exports", 3).unwrap().acquire().await.unwrap(),
    ];
    for together in [readers, permits] {
        for guard in together.iter().chain(&together) {
            assert!(sent(&client, write(guard, "together")).await, "{guard:?}");
        }
        let [one, other] = together;
        let late = write(&one, "late");
        one.unlock().await.unwrap();
        assert!(sent(&client, write(&other, "still")).await);
        assert!(!sent(&client, late).await);
        let late = write(&other, "late");
        other.unlock().await.unwrap();
        assert!(!sent(&client, late).await);
    }
    assert_eq!(data(&client).await, "still");
}

/// The store cannot tell them from each other, so the lease does.
#[tokio::test]
async fn whoever_handed_the_lock_over_in_the_process_is_refused() {
    let cluster = EtcdCluster::start(1);
    let (locks, client) = (locks(&cluster).await, application(&cluster).await);
    let mutex = locks.mutex(NAME).hand_over_for(Duration::from_secs(20));
    let first = mutex.lock().await.unwrap();
    let lease = first.lease();
    let next = tokio::spawn(async move { mutex.lock().await });
    // Its task stands in the queue of the process after its first poll.
    tokio::task::yield_now().await;
    first.unlock().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_eq!(next.evidence(), lease.evidence(), "it was handed over");
    assert_eq!(holds(&lease).unwrap_err().kind(), ErrorKind::Lost);
    assert!(sent(&client, write(&next, "next")).await);
}

#[tokio::test]
async fn of_a_lock_in_two_stores_one_is_enough_and_of_another_store_none_is_there() {
    let cluster = EtcdCluster::start(1);
    let client = application(&cluster).await;
    let etcd = Arc::new(EtcdLock::connect(&cluster.url(), "oarlock").await.unwrap());
    let memory = Arc::new(MemoryLock::new());
    let both = Locks::new(Arc::new(Both::new(memory.clone(), etcd, TokensOf::From).unwrap()));
    let guard = both.mutex(NAME).lock().await.unwrap();
    assert!(sent(&client, write(&guard, "both")).await);
    let guard = Locks::new(memory).mutex("another").lock().await.unwrap();
    let error = holds(&guard).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("take it in etcd"), "{error}");
}
