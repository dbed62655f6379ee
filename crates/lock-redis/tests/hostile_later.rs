//! 93. A server that means well until a lock is asked for.

mod common;
mod says;

use std::time::Duration;

use common::{LONG, claim, soon};
use lock_core::DistributedLock;
use says::{SHORT, all, bounded, connect};
use test_servers::RedisServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_says_later_is_an_error_in_time() {
    let server = RedisServer::start();
    bounded(async {
        for says in all() {
            let shown = says.beginning();
            let address = says.listen(Some((server.address(), b"EVAL"))).await;
            // Up to there all is well, and a busy machine may need longer than a request has.
            let connected = async {
                loop {
                    if let Ok(lock) = connect(address, SHORT).await {
                        break lock;
                    }
                }
            };
            let lock = soon("a connection", connected).await;
            let claim = claim("x", "owner");
            let refused = [
                soon("a try", lock.try_lock(&claim)).await.is_err(),
                soon("a wait", lock.lock(&claim)).await.is_err(),
                soon("a look", lock.inspect(&claim.name)).await.is_err(),
            ];
            assert_eq!(refused, [true; 3], "{shown:?}");
            // To these, some of it may be an answer.
            drop(soon("a renewal", lock.renew(std::slice::from_ref(&claim))).await);
            drop(soon("a release", lock.unlock(&claim)).await);
            drop(soon("a listing", lock.list(&Default::default())).await);
        }
    })
    .await;
    // And the same server that means well is one.
    let lock = connect(server.address(), Duration::from_secs(60)).await.unwrap();
    let grant = lock.try_lock(&claim("x", "owner")).await.unwrap().unwrap();
    assert!(grant.valid_until <= lock.clock().now() + LONG);
}
