//! 93. A server that means well until a lock is asked for: it answers otherwise to what makes a node.

use conformance_tests::hostile::attempt;
use lock_zookeeper::ZookeeperFactory;
use test_servers::ZookeeperServers;

use crate::says;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_says_later_is_an_error_in_time() {
    let servers = ZookeeperServers::start();
    let server = servers.addresses()[0];
    says::withstand_all(Some((server, b"-lock-"))).await;
    // Itself it is one, however busy.
    attempt(ZookeeperFactory, &format!("zookeeper://{server}?timeout=20s")).await.unwrap();
}
