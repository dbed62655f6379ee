//! TLS and SASL: who is trusted, and what is said when it does not come about.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use lock_core::{Config, Error, ErrorKind, Locks, Registry};
use lock_zookeeper::ZookeeperFactory;
use test_servers::{Authority, Certificate, ZookeeperServers};

/// Longer than any step may take, with the time-out of the connection.
const BOUND: Duration = Duration::from_secs(20);

async fn connect(url: &str) -> Result<Locks, Error> {
    let mut registry = Registry::new();
    registry.register(ZookeeperFactory);
    tokio::time::timeout(BOUND, registry.connect(Config::from_url(url).unwrap())).await.unwrap()
}

async fn works(locks: &Locks) {
    let guard = locks.mutex("x").lock().await.unwrap();
    guard.unlock().await.unwrap();
}

/// A server that asks its clients for a certificate of this authority, and its port for them.
fn certified(authority: &Authority, folder: &Path) -> (ZookeeperServers, u16) {
    let Certificate { certificate, key } = authority.issue("127.0.0.1");
    let both = [certificate, key].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    let store = folder.join("server.pem");
    std::fs::write(&store, both).unwrap();
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let servers = ZookeeperServers::start_with(
        1,
        &[
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            &format!("secureClientPort={port}"),
            &format!("ssl.keyStore.location={}", store.display()),
            &format!("ssl.trustStore.location={}", authority.file().display()),
            // A client's certificate names no host.
            "ssl.hostnameVerification=false",
        ],
    );
    (servers, port)
}

#[tokio::test]
async fn both_sides_show_a_certificate() {
    let (authority, stranger, folder) = (Authority::new(), Authority::new(), tempfile::tempdir().unwrap());
    let (_servers, port) = certified(&authority, folder.path());
    let Certificate { certificate, key } = authority.issue("client");
    let parameters = |authority: &Authority| format!("?ca={}", authority.file().display());
    let identity = format!("&cert={}&key={}", certificate.display(), key.display());
    let url = format!("zookeeper://127.0.0.1:{port}");

    works(&connect(&format!("{url}{}{identity}", parameters(&authority))).await.unwrap()).await;
    // A stranger's server, another host's, no certificate of our own, and no TLS at all.
    let elsewhere = url.replace("127.0.0.1", "localhost");
    for bad in [
        format!("{url}{}{identity}", parameters(&stranger)),
        format!("{elsewhere}{}{identity}", parameters(&authority)),
        format!("{url}{}", parameters(&authority)),
        url,
    ] {
        let error = connect(&bad).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{bad}: {error:?}");
    }
}

#[tokio::test]
async fn a_user_shows_by_sasl_who_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let logins = folder.path().join("jaas.conf");
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
    std::fs::write(&logins, format!("Server {{ {module} required user_us=\"hunter2\"; }};")).unwrap();
    let servers = ZookeeperServers::start_with(
        1,
        &[
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            &format!("-Djava.security.auth.login.config={}", logins.display()),
        ],
    );
    let address = servers.addresses()[0];
    let ours = connect(&format!("zookeeper://us:hunter2@{address}?auth=sasl")).await.unwrap();
    let held = ours.mutex("x").lock().await.unwrap();
    // The nodes are this user's.
    let error = connect(&format!("zookeeper://{address}")).await.unwrap().mutex("x").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    let error = connect(&format!("zookeeper://us:hunter3@{address}?auth=sasl")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && !format!("{error:?}").contains("hunter"), "{error:?}");
    held.unlock().await.unwrap();
}
