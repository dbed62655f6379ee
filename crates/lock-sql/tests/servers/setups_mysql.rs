//! MariaDB in other places than by itself.

use lock_core::ErrorKind;
use sqlx::{Connection, Executor, MySqlConnection};
use test_servers::MariaDbServer;

use crate::common::connect;

/// One of several primaries, which would each grant what the others have granted, is refused, and nothing is made there.
#[tokio::test]
async fn one_of_several_primaries_is_refused() {
    let server = MariaDbServer::start_with(&["--wsrep-on=ON", "--wsrep-cluster-address=gcomm://"]);
    let error = connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("Galera"), "{error}");
}

/// Tables are of one mode, and a client of another is refused before it makes any; those that were made before there were
/// modes are of rows.
#[tokio::test]
async fn tables_of_another_mode_are_refused() {
    let server = MariaDbServer::start();
    let mut raw = MySqlConnection::connect(&server.url()).await.unwrap();
    connect(&server.url()).await.unwrap();
    raw.execute("DELETE FROM oarlock_meta WHERE name = 'mode'").await.unwrap();
    connect(&server.url()).await.unwrap();
    raw.execute("INSERT INTO oarlock_meta VALUES ('mode', 0, 'session')").await.unwrap();
    let refused = async || {
        let error = connect(&server.url()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        for said in ["mode=row", "mode=session", "`table`"] {
            assert!(error.to_string().contains(said), "{error}");
        }
    };
    refused().await;
    raw.execute("DROP TABLE oarlock_lock").await.unwrap();
    refused().await;
    assert!(raw.execute("SELECT 1 FROM oarlock_lock").await.is_err(), "it was made");
}
