//! A server that says what no server says. One test, in a program of its own: memory is a process's.

mod common;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use common::{LONG, claim, soon};
use lock_core::{DistributedLock, Error};
use lock_redis::{RedisLock, RedisOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use test_servers::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a server may make us keep: twice the longest answer, as its text and as its values, and what a buffer has to spare.
const MEMORY: u64 = 256 << 20;

/// What is said once, and what is said again and again after it.
#[derive(Clone, Debug)]
struct Says(Vec<u8>, Vec<u8>);

fn says(once: impl AsRef<[u8]>, again: &str) -> Says {
    // In pieces that are worth a write.
    Says(once.as_ref().to_vec(), again.repeat(if again.is_empty() { 0 } else { (64 << 10) / again.len() }).into_bytes())
}

fn all() -> Vec<Says> {
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
    for seed in 0..20 {
        let mut bytes = vec![0; 4096];
        StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
        all.push(Says(bytes, Vec::new()));
    }
    all
}

/// In front of a server that means well. What it says itself, it says at once, or in the place of the first script's answer.
async fn hostile(server: SocketAddr, says: Says, at_once: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            // It ends when the client has had enough.
            tokio::spawn(serve(client, server, says.clone(), at_once));
        }
    });
    address
}

/// Carries what is asked and answered, up to the first script.
async fn mean_well(client: &mut TcpStream, server: SocketAddr) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        tokio::select! {
            length = client.read(&mut asked) => match &asked[..length?] {
                [] => return Err(io::ErrorKind::UnexpectedEof.into()),
                asked if asked.windows(4).any(|word| word == b"EVAL") => return Ok(()),
                asked => server.write_all(asked).await?,
            },
            length = server.read(&mut answered) => match &answered[..length?] {
                [] => return Err(io::ErrorKind::UnexpectedEof.into()),
                answered => client.write_all(answered).await?,
            },
        }
    }
}

async fn serve(mut client: TcpStream, server: SocketAddr, says: Says, at_once: bool) -> io::Result<()> {
    if !at_once {
        mean_well(&mut client, server).await?;
    }
    let Says(once, again) = says;
    let (mut from, mut to) = client.split();
    let say = async {
        to.write_all(&once).await?;
        while !again.is_empty() {
            to.write_all(&again).await?;
        }
        std::future::pending().await
    };
    let listen = async {
        let mut asked = [0; 4096];
        while from.read(&mut asked).await? > 0 {}
        Ok(())
    };
    tokio::select! {
        ended = say => ended,
        ended = listen => ended,
    }
}

/// The most memory that this process has had.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

async fn connect(address: SocketAddr) -> Result<RedisLock, Error> {
    let options = RedisOptions::new(&format!("redis://{address}"))?.timeout(Duration::from_millis(300));
    soon("the connection", options.connect()).await
}

/// 93. Whatever it is, each request ends in time, with an error; and the memory that it took is bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_says_is_an_error_in_time() {
    let server = RedisServer::start();
    let before = most_memory();
    for says in all() {
        let shown = String::from_utf8_lossy(&says.0[..says.0.len().min(40)]).into_owned();
        assert!(connect(hostile(server.address(), says.clone(), true).await).await.is_err(), "{shown:?} at once");
        let lock = connect(hostile(server.address(), says, false).await).await.unwrap();
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
    let took = most_memory() - before;
    assert!(took < MEMORY, "{took} bytes");
    // And the same server that means well is one.
    let lock = connect(server.address()).await.unwrap();
    let grant = lock.try_lock(&claim("x", "owner")).await.unwrap().unwrap();
    assert!(grant.valid_until <= lock.clock().now() + LONG);
}
