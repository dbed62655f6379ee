//! 93. A server that says what no server says. One test, in a program of its own: memory is a process's.

use std::time::Duration;

use conformance_tests::hostile::{Says, attempt, most_memory, withstand};
use lock_etcd::EtcdFactory;
use test_servers::EtcdCluster;

/// For what takes a second at most.
const BOUND: Duration = Duration::from_secs(20);

/// What a server may make us keep: several of its longest answers.
const MEMORY: u64 = 256 << 20;

/// Frames of HTTP/2: length, kind, flags, stream.
fn all() -> Vec<Says> {
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let after = |frame: &[u8]| [&settings, frame].concat();
    let mut all = vec![
        // The longest frame, which nobody allowed.
        Says::new(after(&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]), "x"),
        // Without end: settings, pings, headers that go on, data of a stream that nobody opened.
        Says::new("", settings),
        Says::new(settings, [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[7; 8]].concat()),
        Says::new(after(&[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x88]), [0, 0, 1, 9, 0, 0, 0, 0, 1, 0x88]),
        Says::new(settings, [0, 0, 1, 0, 0, 0, 0, 0, 9, 0]),
        // A message of four gigabytes, and one that never ends, as the answer to the first request.
        Says::new(after(&[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88, 0, 0, 5, 0, 0, 0, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff]), ""),
        Says::new(after(&[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88]), [0, 0, 1, 0, 0, 0, 0, 0, 1, 0]),
        Says::new(after(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]), ""),
        Says::new("HTTP/1.1 400 Bad Request\r\n\r\n", ""),
    ];
    all.extend((0..10).map(Says::noise));
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_says_is_an_error_in_time() {
    let ask = async |address| attempt(EtcdFactory, &format!("etcd://{address}?timeout=300ms")).await;
    let before = most_memory();
    withstand(all(), None, BOUND, ask).await;
    // In the place of the answer to the first request about a key.
    let cluster = EtcdCluster::start(1);
    let server = cluster.addresses()[0];
    withstand(all(), Some((server, b"oarlock/")), BOUND, ask).await;
    let took = most_memory() - before;
    assert!(took < MEMORY, "{took} bytes");
    // Itself it is one, however busy.
    attempt(EtcdFactory, &format!("etcd://{server}?timeout=20s")).await.unwrap();
}
