//! TLS: who is trusted, and what is said when it does not come about.

use std::time::Duration;

use lock_core::{Config, Error, ErrorKind, Locks, Registry};
use lock_redis::RedisFactory;
use test_servers::{Authority, Certificate, RedisServer};

/// Longer than any step may take, with the time-out of the connection.
const BOUND: Duration = Duration::from_secs(20);

/// A CA, and the certificate of a server on this host.
fn certified() -> (Authority, Certificate) {
    let authority = Authority::new();
    let host = authority.issue("localhost");
    (authority, host)
}

async fn connect(url: &str) -> Result<Locks, Error> {
    let mut registry = Registry::new();
    registry.register(RedisFactory);
    tokio::time::timeout(BOUND, registry.connect(Config::from_url(url).unwrap())).await.unwrap()
}

async fn refused(url: &str, why: &str) {
    let error = connect(url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.to_string().contains(why) && !format!("{error:?}").contains("hunter2"), "{error:?}");
}

async fn works(locks: &Locks) {
    let guard = locks.mutex("x").lock().await.unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_host_that_its_ca_vouches_for() {
    let (authority, host) = certified();
    let server = RedisServer::start_tls(&authority, &host, false);
    let ca = authority.file().display().to_string();
    works(&connect(&format!("rediss://localhost:{}?ca={ca}", server.tls_port())).await.unwrap()).await;
    let config = format!("url = 'rediss://localhost:{}'\n[backend]\nca = '{ca}'", server.tls_port());
    let mut registry = Registry::new();
    registry.register(RedisFactory);
    works(&registry.connect(Config::from_toml(&config).unwrap()).await.unwrap()).await;
}

#[tokio::test]
async fn a_ca_that_is_not_trusted() {
    let (authority, host) = certified();
    let server = RedisServer::start_tls(&authority, &host, false);
    let other = Authority::new();
    let url = format!("rediss://u:hunter2@localhost:{}", server.tls_port());
    refused(&format!("{url}?ca={}", other.file().display()), "name its CA").await;
    // The system's do not know it either.
    refused(&url, "name its CA").await;
}

#[tokio::test]
async fn another_host() {
    let (authority, host) = certified();
    let server = RedisServer::start_tls(&authority, &host, false);
    let ca = authority.file().display().to_string();
    // The certificate is for the name, not for the address.
    refused(&format!("rediss://u:hunter2@127.0.0.1:{}?ca={ca}", server.tls_port()), "another host").await;
}

#[tokio::test]
async fn a_server_that_wants_to_know_its_clients() {
    let (authority, host) = certified();
    let server = RedisServer::start_tls(&authority, &host, true);
    let ca = authority.file().display().to_string();
    let url = format!("rediss://localhost:{}?ca={ca}", server.tls_port());
    refused(&url, "settings cert and key").await;
    let known = authority.issue("client");
    let own = |known: &Certificate| format!("cert={}&key={}", known.certificate.display(), known.key.display());
    works(&connect(&format!("{url}&{}", own(&known))).await.unwrap()).await;
    let other = Authority::new();
    refused(&format!("{url}&{}", own(&other.issue("client"))), "settings cert and key").await;
}

/// Both ways round: neither side understands the other, which costs a bounded time and tells what to look at.
#[tokio::test]
async fn a_server_without_tls() {
    let (authority, host) = certified();
    let server = RedisServer::start_tls(&authority, &host, false);
    let url = format!("rediss://u:hunter2@{}?timeout=500ms", server.address());
    let error = connect(&url).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Refused | ErrorKind::Unavailable), "{error:?}");
    assert!(error.to_string().contains("speak") && !format!("{error:?}").contains("hunter2"), "{error:?}");
    let error = connect(&format!("redis://localhost:{}?timeout=500ms", server.tls_port())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}
