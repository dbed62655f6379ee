//! MariaDB in other places than by itself.

use lock_core::ErrorKind;
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
