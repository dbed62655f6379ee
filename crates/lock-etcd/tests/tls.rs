//! TLS: with a CA of one's own and a certificate of the client.
#![cfg(feature = "tls")]

use std::path::Path;
use std::process::Command;

use lock_core::{Config, ErrorKind, Registry, Unlocked};
use lock_etcd::EtcdFactory;
use test_servers::EtcdCluster;

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let output = command.args(arguments.split(' ')).current_dir(folder).output().expect("openssl is installed");
    assert!(output.status.success(), "{output:?}");
}

/// A CA, and a certificate of the server and of the client, signed by it.
fn certificates(folder: &Path) {
    let key = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    openssl(folder, &format!("{key} -x509 -subj /CN=ca -keyout ca.key -out ca.pem"));
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    for name in ["server", "client"] {
        openssl(
            folder,
            &format!("{} -subj /CN={name} -keyout {name}.key -out {name}.csr", key.replace(" -days 2", "")),
        );
        let signed =
            format!("x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names");
        openssl(folder, &format!("{signed} -out {name}.pem"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_with_the_right_certificates() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let [certificate, key, ca] = ["server.pem", "server.key", "ca.pem"].map(file);
    let server = ["--cert-file", &certificate, "--key-file", &key, "--client-cert-auth", "--trusted-ca-file", &ca];
    let cluster = EtcdCluster::start_with_tls(&server);
    let mut registry = Registry::new();
    registry.register(EtcdFactory);
    let connect = async |url: String| registry.connect(Config::from_url(&url).unwrap()).await;
    let hosts = cluster.hosts();
    let client = format!("cert={}&key={}", file("client.pem"), file("client.key"));
    let locks = connect(format!("etcds://{hosts}?ca={ca}&{client}")).await.unwrap();
    assert_eq!(locks.mutex("x").lock().await.unwrap().unlock().await.unwrap(), Unlocked::Released);
    for (url, kind) in [
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
