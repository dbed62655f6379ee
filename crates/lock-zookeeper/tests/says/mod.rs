//! 93. A server that says what no server says: an error in time. Memory is the client library's affair.

use std::net::SocketAddr;
use std::time::Duration;

use conformance_tests::hostile::{Says, attempt, withstand};
use lock_zookeeper::ZookeeperFactory;

/// For what takes half a second at most.
const BOUND: Duration = Duration::from_secs(20);

fn all() -> Vec<Says> {
    let mut all = vec![
        // Lengths that nobody has memory for.
        Says::new([0x7f, 0xff, 0xff, 0xff], "x"),
        Says::new([0x40, 0, 0, 0], "x"),
        Says::new([0xff; 4], ""),
        Says::new([0x80, 0, 0, 0], "x"),
        // Answers of nothing, and to what nobody asked, without end.
        Says::new([], [0; 4]),
        Says::new([], [0, 0, 0, 1, 0]),
        Says::new([], [&[0, 0, 0, 16][..], &[0, 0, 0, 7], &[0; 12]].concat()),
        Says::new([], [&[0, 0, 0, 16][..], &[0xff; 16]].concat()),
        // Text where a length is meant.
        Says::new("HTTP/1.1 400 Bad Request\r\n\r\n", ""),
        // A session of a negative time, and one that is over.
        Says::new([&[0, 0, 0, 37, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..], &[0; 29]].concat(), ""),
        Says::new([&[0, 0, 0, 37][..], &[0; 37]].concat(), ""),
    ];
    all.extend((0..10).map(Says::noise));
    all
}

/// At once; or, behind a server, in the place of the answer to the first request that has these bytes in it.
pub(crate) async fn withstand_all(behind: Option<(SocketAddr, &'static [u8])>) {
    let ask = async |address| attempt(ZookeeperFactory, &format!("zookeeper://{address}?timeout=300ms")).await;
    withstand(all(), behind, BOUND, ask).await;
}
