//! 93. Servers that say what no server says: an error in time, and no panic of a driver's gets through.

use std::net::SocketAddr;
use std::time::Duration;

use conformance_tests::hostile::{Says, attempt, withstand};
use lock_sql::{MySqlFactory, PostgresFactory};
use test_servers::PostgresServer;

/// For what takes a second at most.
const BOUND: Duration = Duration::from_secs(20);

fn and_noise(mut all: Vec<Says>) -> Vec<Says> {
    all.extend((0..10).map(Says::noise));
    all
}

/// At once; or, behind a server, in the place of the answer to the first request that has these bytes in it.
pub(crate) type Behind = Option<(SocketAddr, &'static [u8])>;

pub(crate) async fn postgres(behind: Behind) {
    let all = and_noise(vec![
        // Lengths that nobody has memory for, or that are none.
        Says::new(b"R\x7f\xff\xff\xff", "x"),
        Says::new(b"D\x40\0\0\0", "x"),
        Says::new(b"R\xff\xff\xff\xff", ""),
        Says::new(b"R\0\0\0\0", ""),
        Says::new(b"T\0\0\0\x06\x7f\xff", ""),
        Says::new(b"D\0\0\0\x0a\0\x01\x7f\xff\xff\xff", ""),
        // Without end: answers that nobody asked for, rows of the first answer, and columns.
        Says::new("", b"D\0\0\0\x06\0\0"),
        Says::new("", b"1\0\0\0\x04"),
        Says::new(b"1\0\0\0\x04t\0\0\0\x06\0\0n\0\0\0\x04Z\0\0\0\x05I2\0\0\0\x04", b"D\0\0\0\x06\0\0"),
        Says::new(b"1\0\0\0\x04t\0\0\0\x06\0\0T\x7f\xff\xff\xff\xff\xff", b"x\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        // A row that is shorter than it says, and one without columns.
        Says::new(b"1\0\0\0\x04t\0\0\0\x06\0\0n\0\0\0\x04Z\0\0\0\x05I2\0\0\0\x04D\0\0\0\x0a\0\x01\0\0\0\x09C\0\0\0\x05\0Z\0\0\0\x05I", ""),
        Says::new(b"1\0\0\0\x04t\0\0\0\x06\0\0n\0\0\0\x04Z\0\0\0\x05I2\0\0\0\x04D\0\0\0\x06\0\0C\0\0\0\x05\0Z\0\0\0\x05I", ""),
        // Logins of a kind that is none, and an error that says nothing.
        Says::new(b"R\0\0\0\x08\0\0\x7f\xff", ""),
        Says::new(b"E\0\0\0\x05\0", ""),
        Says::new("HTTP/1.1 400 Bad Request\r\n\r\n", ""),
    ]);
    let url = |address| format!("{}?timeout=500ms", PostgresServer::url_at(address));
    let ask = async |address| attempt(PostgresFactory, &url(address)).await;
    withstand(all, behind, BOUND, ask).await;
}

pub(crate) async fn mysql(behind: Behind) {
    let all = and_noise(vec![
        // The longest packets, without end: each says that another belongs to it.
        Says::new("", [&[0xff, 0xff, 0xff, 0][..], &[b'x'; 4092]].concat()),
        Says::new([0xff, 0xff, 0xff, 0], "x"),
        Says::new([0; 4], ""),
        Says::new("", [1, 0, 0, 0, 0]),
        // A greeting without an end, and of another protocol.
        Says::new([&[255, 0, 0, 0, 10][..], &[b'8'; 255]].concat(), ""),
        Says::new([5, 0, 0, 0, 9, b'3', 0, 0, 0], ""),
        // More columns and longer strings than there are bytes.
        Says::new([9, 0, 0, 1, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], ""),
        Says::new([2, 0, 0, 1, 0xfc, 0xff], ""),
        Says::new([3, 0, 0, 1, 0xff, 0, 0], ""),
        Says::new("HTTP/1.1 400 Bad Request\r\n\r\n", ""),
    ]);
    let ask = async |address| attempt(MySqlFactory, &format!("mysql://root@{address}/mysql?timeout=200ms")).await;
    withstand(all, behind, BOUND, ask).await;
}
