//! A relay in front of a server that counts what clients send. It knows no protocol, so that it serves any store whose
//! URL names one host and port.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// More than any request for a lock.
const CHUNK: usize = 64 * 1024;

/// Passes on until it is dropped.
#[derive(Debug)]
pub(super) struct Relay {
    port: u16,
    sent: Arc<AtomicU64>,
    _passing: JoinSet<()>,
}

impl Relay {
    /// In front of the server at `address`, a host and a port.
    pub(super) async fn start(address: String) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let sent = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&sent);
        let mut passing = JoinSet::new();
        passing.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(connection(client, address.clone(), Arc::clone(&counted)));
            }
        });
        Ok(Self { port, sent, _passing: passing })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// How many messages clients have sent: what arrives at once is one.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

async fn connection(client: TcpStream, address: String, sent: Arc<AtomicU64>) {
    // An end of either side is the other's to notice.
    let Ok(server) = TcpStream::connect(address).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((mut from_client, mut to_client), (mut from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        _ = count(&mut from_client, to_server, &sent) => {}
        _ = copy(&mut from_server, &mut to_client) => {}
    }
}

async fn count(from: &mut OwnedReadHalf, mut to: OwnedWriteHalf, sent: &AtomicU64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = from.read(&mut chunk).await?;
        if length == 0 {
            return Ok(());
        }
        sent.fetch_add(1, Ordering::Relaxed);
        to.write_all(&chunk[..length]).await?;
    }
}

/// Splits a URL that names one host and port, without TLS or discovery of others, so that these can be replaced.
pub(super) fn place(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    if scheme.contains('+') {
        return None;
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let start = rest[..end].rfind('@').map_or(0, |at| at + 1);
    let (host, port) = rest[start..end].rsplit_once(':')?;
    let is_one = !host.is_empty() && !host.contains(',') && port.parse::<u16>().is_ok();
    let before = url.len() - rest.len();
    is_one.then(|| (&url[..before + start], &rest[start..end], &rest[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_host_and_port_can_be_replaced() {
        assert_eq!(place("redis://u:p@h:1/0?x=1"), Some(("redis://u:p@", "h:1", "/0?x=1")));
        assert_eq!(place("etcd://[::1]:2379"), Some(("etcd://", "[::1]:2379", "")));
        for other in ["sqlite:/a", "redis://h", "zookeeper://a:1,b:2", "redis+cluster://h:1", "redis://h:x/"] {
            assert_eq!(place(other), None, "{other}");
        }
    }
}
