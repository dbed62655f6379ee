//! TLS: with a CA of one's own and a certificate of the client.
#![cfg(feature = "tls")]

use std::path::Path;

use lock_core::{Config, ErrorKind, Registry};
use lock_etcd::EtcdFactory;
use test_servers::{Authority, EtcdCluster};

#[tokio::test(flavor = "multi_thread")]
async fn only_with_the_right_certificates() {
    let authority = Authority::new();
    let (server, client) = (authority.issue("127.0.0.1"), authority.issue("client"));
    let shown = |file: &Path| file.display().to_string();
    let [certificate, key, ca] = [&server.certificate, &server.key, &authority.file()].map(|file| shown(file));
    let server = ["--cert-file", &certificate, "--key-file", &key, "--client-cert-auth", "--trusted-ca-file", &ca];
    let cluster = EtcdCluster::start_with_tls(&server);
    let mut registry = Registry::new();
    registry.register(EtcdFactory);
    let connect = async |url: String| registry.connect(Config::from_url(&url).unwrap()).await;
    let hosts = cluster.hosts();
    let client = format!("cert={}&key={}", shown(&client.certificate), shown(&client.key));
    let locks = connect(format!("etcds://{hosts}?ca={ca}&{client}")).await.unwrap();
    locks.mutex("x").lock().await.unwrap().unlock().await.unwrap();
    let stranger = Authority::new();
    let elsewhere = hosts.replace("127.0.0.1", "localhost");
    for (url, kind) in [
        // Another CA's server, another host's.
        (format!("etcds://{hosts}?ca={}&{client}", shown(&stranger.file())), ErrorKind::Unavailable),
        (format!("etcds://{elsewhere}?ca={ca}&{client}"), ErrorKind::Unavailable),
        // No certificate of ours, no CA that signed the server's, no TLS at all.
        (format!("etcds://{hosts}?ca={ca}"), ErrorKind::Unavailable),
        (format!("etcds://{hosts}?{client}"), ErrorKind::Unavailable),
        (format!("etcd://{hosts}"), ErrorKind::Unavailable),
        (format!("etcds://{hosts}?ca={ca}&cert={certificate}"), ErrorKind::Invalid),
        (format!("etcds://{hosts}?ca=/nowhere/ca.pem"), ErrorKind::Invalid),
        (format!("etcd://{hosts}?ca={ca}"), ErrorKind::Invalid),
    ] {
        let error = connect(url.clone()).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error:?}");
    }
}
