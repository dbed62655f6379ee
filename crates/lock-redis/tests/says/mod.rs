//! 93. A server that says what no server says. Each test in a program of its own: memory is a process's.

use std::net::SocketAddr;
use std::time::Duration;

use conformance_tests::hostile::{Says, most_memory};
use lock_core::Error;
use lock_redis::{RedisLock, RedisOptions};

use crate::common::soon;

/// What a server may make us keep: twice the longest answer, as its text and as its values, and what a buffer has to
/// spare.
const MEMORY: u64 = 256 << 20;

/// Many requests wait in vain for the rest of an answer.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

fn says(once: impl AsRef<[u8]>, again: &str) -> Says {
    Says::new(once, again)
}

pub(crate) fn all() -> Vec<Says> {
    let mut all = vec![
        // Lengths that nobody has memory for.
        says("$9223372036854775807\r\n", "x"),
        says("$4294967296\r\n", "x"),
        says("$-7\r\n", "x"),
        says("=-7\r\n", "x"),
        says("!-7\r\n", "x"),
        says("*9223372036854775807\r\n", ""),
        says("*1000000000\r\n", ":1\r\n"),
        says("%4611686018427387903\r\n", ""),
        says("%-7\r\n", ""),
        says("|9223372036854775807\r\n", ""),
        says("~1000000000\r\n", "_\r\n"),
        says(">1000000000\r\n", "+message\r\n"),
        // Answers that never end.
        says("+", "x"),
        says("-", "x"),
        says(":", "1"),
        says("", "*1000\r\n"),
        says("*1000000\r\n", "$1000\r\n"),
        says("", "*1\r\n"),
        // Answers, and messages, that nobody asked for.
        says("", "+OK\r\n"),
        says("", ">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$5\r\n7 8 9\r\n"),
        // What no script answers, and numbers that are none.
        says(":1\r\n", ""),
        says("_\r\n", ""),
        says("*2\r\n:1\r\n$-1\r\n", ""),
        says("*2\r\n:1\r\n$20\r\n99999999999999999999\r\n", ""),
        says("*3\r\n:0\r\n:-9223372036854775808\r\n$1\r\nx\r\n", ""),
        says(":x\r\n", ""),
        says(",nan\r\n", ""),
        says("-\r\n", ""),
        says("\r\n", ""),
        says([b'+', 0xff, b'\r', b'\n'], ""),
    ];
    all.extend((0..20).map(Says::noise));
    all
}

/// Whose requests wait for an answer for so long.
pub(crate) async fn connect(address: SocketAddr, timeout: Duration) -> Result<RedisLock, Error> {
    let options = RedisOptions::new(&format!("redis://{address}"))?.timeout(timeout);
    soon("the connection", options.connect()).await
}

/// Does it, within bounds of memory.
pub(crate) async fn bounded(what: impl Future<Output = ()>) {
    let before = most_memory();
    what.await;
    let took = most_memory() - before;
    assert!(took < MEMORY, "{took} bytes");
}
