//! The rights for which the manual asks are enough.

use std::time::Duration;

use crate::raw::raw;
use lock_core::{Config, ErrorKind, Locks, Registry};
use lock_zookeeper::ZookeeperFactory;
use test_servers::ZookeeperServers;
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

/// For what needs no lease's end.
const BOUND: Duration = Duration::from_secs(20);

async fn try_connect(url: &str) -> lock_core::Result<Locks> {
    let mut registry = Registry::new();
    registry.register(ZookeeperFactory);
    registry.connect(Config::from_url(url).unwrap()).await
}

async fn connect(url: &str) -> Locks {
    try_connect(url).await.unwrap()
}

async fn works(url: &str) {
    let (locks, other) = (connect(url).await, connect(url).await);
    let guard = locks.mutex("x").lock().await.unwrap();
    let waiting = tokio::spawn(async move { other.mutex("x").wait(BOUND).lock().await.unwrap().unlock().await });
    while locks.inspect("x").await.unwrap().waiters.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    locks.list(&Default::default()).await.unwrap();
    locks.doctor().await.unwrap();
    guard.unlock().await.unwrap();
    waiting.await.unwrap().unwrap();
    let guard = locks.mutex("x").lock().await.unwrap();
    locks.evict("x").await.unwrap().unwrap();
    tokio::time::timeout(BOUND, guard.lost()).await.unwrap();
}

/// 99. To make the prefix's node and the one beside it; and with them made, nothing but what is in them.
#[tokio::test]
async fn two_nodes_are_enough() {
    let servers = ZookeeperServers::start();
    let url = format!("zookeeper://us:s3cr3t@{}/app", servers.addresses()[0]);
    let us = raw(&servers).await;
    us.auth("digest", b"us:s3cr3t").await.unwrap();
    let may = |permission| [Acl::new(permission, AuthId::authed())];
    let rights = may(Permission::CREATE | Permission::ADMIN);
    us.create("/app", b"", &CreateMode::Persistent.with_acls(Acls::new(&rights))).await.unwrap();
    works(&url).await;
    us.set_acl("/app", &may(Permission::ADMIN), None).await.unwrap();
    works(&url).await;
    // Others may nothing, and are told.
    let theirs = connect(&url.replace("us:s3cr3t", "them:s3cr3t")).await;
    let error = theirs.mutex("x").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(!format!("{error:?}").contains("s3cr3t"), "{error:?}");
}

/// A chroot that is missing is an error, and one that is empty is not: looking at it makes nothing.
#[tokio::test]
async fn a_missing_chroot_is_named_and_an_empty_one_stays_empty() {
    let servers = ZookeeperServers::start();
    let url = format!("zookeeper://{}/ap", servers.addresses()[0]);
    let error = try_connect(&url).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("/ap behind"), "{error}");
    let raw = raw(&servers).await;
    raw.create("/ap", b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    let locks = connect(&url).await;
    assert_eq!(locks.inspect("x").await.unwrap().holder(), None);
    assert_eq!(locks.list(&Default::default()).await.unwrap().locks, []);
    assert_eq!(locks.evict("x").await.unwrap(), None);
    assert_eq!(raw.list_children("/ap").await.unwrap(), Vec::<String>::new());
    locks.mutex("x").lock().await.unwrap().unlock().await.unwrap();
}
