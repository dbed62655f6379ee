//! TLS to both servers: who is trusted, and what is said when it does not come about.

use crate::common::{connect, soon};
use lock_core::{ErrorKind, Locks};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
use test_servers::{Authority, Certificate, MariaDbServer, PostgresServer};

/// A CA, and the certificate of a server on this host.
fn certified() -> (Authority, Certificate) {
    let authority = Authority::new();
    let host = authority.issue("localhost");
    (authority, host)
}

/// Locks, also past one who waits: all of a backend's connections.
async fn works(url: &str) {
    // A host that is busy with other tests may take its time.
    let url = &format!("{url}&timeout=6s");
    let (one, other) = (connect(url).await.unwrap(), connect(url).await.unwrap());
    let guard = one.mutex("x").lock().await.unwrap();
    let waiting = tokio::spawn(async move { (other.mutex("x").lock().await.unwrap(), other) });
    while one.inspect("x").await.unwrap().waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    guard.unlock().await.unwrap();
    let (guard, _other): (_, Locks) = soon("the hand-over", waiting).await.unwrap();
    guard.unlock().await.unwrap();
}

async fn refused(url: &str, why: &str) {
    let error = connect(url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.to_string().contains(why), "{error:?}");
    assert!(!format!("{error:?}").contains("s3cr3t"), "{error:?}");
}

/// What holds for both, with the URL of a server that is called `localhost`.
async fn trust(url: &str, authority: &Authority) {
    let ca = authority.file().display().to_string();
    for mode in ["require", "verify-ca", "verify-full"] {
        works(&format!("{url}?sslmode={mode}&sslrootcert={ca}")).await;
    }
    // Its certificate is for the name, not for the address.
    let by_address = url.replace("localhost", "127.0.0.1");
    works(&format!("{by_address}?sslmode=verify-ca&sslrootcert={ca}")).await;
    let stranger = Authority::new();
    let other = stranger.file().display().to_string();
    for bad in [
        format!("{by_address}?sslmode=verify-full&sslrootcert={ca}"),
        format!("{url}?sslmode=verify-full&sslrootcert={other}"),
        format!("{url}?sslmode=verify-ca&sslrootcert={other}"),
        format!("{url}?sslmode=verify-full"),
    ] {
        refused(&bad, "sslrootcert").await;
    }
    let error = connect(&format!("{url}?sslmode=verify-full&sslrootcert=/nowhere")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("/nowhere"), "{error}");
}

#[tokio::test]
async fn postgres() {
    let (authority, host) = certified();
    let server = PostgresServer::start_tls(&authority, &host, false);
    let url = server.url().replace("127.0.0.1", "localhost");
    trust(&url, &authority).await;
    refused(&format!("{url}?sslmode=disable"), "pg_hba.conf").await;

    let strict = PostgresServer::start_tls(&authority, &host, true);
    let ca = authority.file().display().to_string();
    let url = format!("{}?sslmode=verify-full&sslrootcert={ca}", strict.url().replace("127.0.0.1", "localhost"));
    refused(&url, "pg_hba.conf").await;
    let own = authority.issue("client");
    works(&format!("{url}&sslcert={}&sslkey={}", own.certificate.display(), own.key.display())).await;
}

#[tokio::test]
async fn mysql() {
    let (authority, host) = certified();
    let server = MariaDbServer::start_tls(&authority, &host);
    let url = server.url().replace("127.0.0.1", "localhost");
    trust(&url, &authority).await;

    let mut raw = MySqlConnection::connect(&server.url()).await.unwrap();
    let users =
        "CREATE USER safe IDENTIFIED BY 's3cr3t' REQUIRE SSL; CREATE USER known IDENTIFIED BY 's3cr3t' REQUIRE X509;
        GRANT ALL ON mysql.* TO safe; GRANT ALL ON mysql.* TO known";
    raw.execute(sqlx::raw_sql(AssertSqlSafe(users))).await.unwrap();
    let ca = authority.file().display().to_string();
    let safe = url.replace("root@", "safe:s3cr3t@");
    works(&format!("{safe}?sslmode=verify-full&sslrootcert={ca}")).await;
    refused(&format!("{safe}?sslmode=disable"), "sslmode").await;
    let known = format!("{}?sslmode=verify-full&sslrootcert={ca}", url.replace("root@", "known:s3cr3t@"));
    refused(&known, "sslcert").await;
    let own = authority.issue("client");
    works(&format!("{known}&sslcert={}&sslkey={}", own.certificate.display(), own.key.display())).await;
}

/// A server without TLS is not talked to where that was asked for.
#[tokio::test]
async fn a_server_without_it() {
    let server = PostgresServer::start();
    refused(&format!("{}?sslmode=require", server.url()), "sslmode").await;
    let server = MariaDbServer::start();
    refused(&format!("{}?sslmode=require", server.url()), "sslmode").await;
}
