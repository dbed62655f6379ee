//! 98. No password stands in an error, a `Debug` or a log, whoever is at the other end. Alone: the log is a process's.
#![cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "redis", feature = "zookeeper"))]

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing_subscriber::filter::LevelFilter;

const PASSWORD: &str = "TellNobodyOfThis";

/// Longer than any of them may take.
const BOUND: Duration = Duration::from_secs(60);

/// All that was logged.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Write for Heard {
    fn write(&mut self, said: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(said);
        Ok(said.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
enum Peer {
    Nobody,
    HangsUp,
    /// Says whatever it was told, so that an error that quotes an answer quotes that.
    Echo,
}

impl Peer {
    async fn listen(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            // Nobody is at an address at which nobody listens any more.
            if matches!(self, Self::Nobody) {
                return;
            }
            while let Ok((client, _)) = listener.accept().await {
                if matches!(self, Self::Echo) {
                    tokio::spawn(echo(client));
                }
            }
        });
        address
    }
}

async fn echo(mut client: TcpStream) -> io::Result<()> {
    let mut said = [0; 4096];
    loop {
        match client.read(&mut said).await? {
            0 => return Ok(()),
            length => client.write_all(&said[..length]).await?,
        }
    }
}

fn urls(server: SocketAddr) -> Vec<String> {
    let mut schemes = vec!["redis", "rediss", "redis+cluster", "zookeeper", "postgres", "mysql", "nonsense"];
    if cfg!(feature = "etcd") {
        schemes.push("etcd");
    }
    let mut urls = Vec::new();
    for scheme in schemes {
        // Not where there are no databases.
        let database = if matches!(scheme, "redis+cluster" | "etcd") { "" } else { "/0" };
        let url = format!("{scheme}://user:{PASSWORD}@{server}{database}?timeout=300ms");
        urls.extend([
            format!("{url}&passwort={PASSWORD}"),
            format!("{scheme}://{server}?timeout=300ms&user=user&password={PASSWORD}"),
            // Somebody forgot to encode it.
            format!("{scheme}://user:{PASSWORD}/{PASSWORD}?{PASSWORD}@{server}"),
            format!("{scheme}:user:{PASSWORD}@{server}"),
            url,
        ]);
    }
    let sentinels = format!("{server}/main?sentinel_user=user&sentinel_password={PASSWORD}&timeout=300ms");
    urls.extend([
        format!("redis+sentinel://user:{PASSWORD}@{sentinels}"),
        format!("unix:/nowhere/redis.sock?password={PASSWORD}"),
        format!("sqlite:/nowhere/locks.db?password={PASSWORD}"),
        format!("memory:?password={PASSWORD}"),
        format!("both:?from=redis://user:{PASSWORD}@{server}&to=zookeeper://user:{PASSWORD}@{server}"),
        format!("both:?from=memory:&to=redis://user:{PASSWORD}/{PASSWORD}?{PASSWORD}@{server}"),
    ]);
    urls
}

/// All that an error says of itself.
fn told(error: &oarlock::Error) -> String {
    let mut all = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(error) = source {
        all += &format!(" {error} {error:?}");
        source = error.source();
    }
    all
}

/// What comes of it.
async fn connect(url: &str) -> String {
    match oarlock::connect(url).await {
        Err(error) => told(&error),
        Ok(locks) => {
            let error = locks.mutex("x").lock().await.expect_err("nobody is there who could grant it");
            format!("{locks:?} {}", told(&error))
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_password_shows() {
    let heard = Heard::default();
    let writer = heard.clone();
    tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(move || writer.clone()).init();
    let mut all = JoinSet::new();
    for peer in [Peer::Nobody, Peer::HangsUp, Peer::Echo] {
        for (number, url) in urls(peer.listen().await).into_iter().enumerate() {
            all.spawn(async move {
                eprintln!("{number}");
                let told = tokio::time::timeout(BOUND, connect(&url)).await;
                let told = told.unwrap_or_else(|_| panic!("URL {number} with {peer:?}: no end"));
                assert!(!told.is_empty() && !told.contains(PASSWORD), "URL {number} with {peer:?}: {told}");
            });
        }
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
    let heard = String::from_utf8_lossy(&heard.0.lock().unwrap()).into_owned();
    let told: Vec<_> = heard.lines().filter(|line| line.contains(PASSWORD)).take(5).collect();
    assert!(told.is_empty(), "{told:#?}");
    // Of those who know passwords, this one says at every level what it does.
    assert!(heard.contains("zookeeper_client"), "the log was listened to");
}
