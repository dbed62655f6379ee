//! Makes connections: the socket, TLS over it, and the login.

use std::path::Path;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lock_core::{Error, ErrorKind, HostPort, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::address::Address;
use crate::bounded::Bounded;
use crate::error::{of_connecting, of_login};
use crate::tls::Tls;

/// After so long without an answer to anything, the kernel takes a connection for dead.
const DEAD: Duration = Duration::from_secs(10);

/// Asks several at once, each in bounded time, and ends as soon as more than half have answered. With no answer at all
/// it is an error: a refusal, if there was one, since that says more than that somebody cannot be reached.
pub(crate) async fn majority<T, F>(asked: impl Iterator<Item = F>, limit: Duration) -> Result<Vec<T>>
where
    F: Future<Output = Result<T>>,
{
    let late =
        |_| Error::new(ErrorKind::Unavailable, "nobody who knows the servers answers in time; look whether they run");
    let bounded = |ask| async move { tokio::time::timeout(limit, ask).await.map_err(late)? };
    let mut asked: FuturesUnordered<_> = asked.map(bounded).collect();
    let all = asked.len();
    let (mut answers, mut failed) = (Vec::new(), None);
    while answers.len() <= all / 2
        && let Some(answer) = asked.next().await
    {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(error) if failed.is_none() || error.kind() == ErrorKind::Refused => failed = Some(error),
            Err(_) => {}
        }
    }
    match failed {
        Some(error) if answers.is_empty() => Err(error),
        _ => Ok(answers),
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) struct Dialer {
    pub(crate) tls: Option<Tls>,
    /// The bound of connecting, and of each request.
    pub(crate) timeout: Duration,
}

/// The socket of a server of this host.
#[cfg(unix)]
async fn local(path: impl AsRef<Path>, address: &Address) -> Result<Box<dyn Stream>> {
    let stream = tokio::net::UnixStream::connect(path).await;
    Ok(Box::new(stream.map_err(|error| of_connecting(address, error.into()))?))
}

/// Tokio has none of these sockets on other systems.
#[cfg(not(unix))]
async fn local(_: impl AsRef<Path>, address: &Address) -> Result<Box<dyn Stream>> {
    let wrong = format!("{address}: this system has no Unix sockets; use redis://localhost");
    Err(Error::new(ErrorKind::Unsupported, wrong))
}

/// A connection to one server. Dropping it closes it.
pub(crate) struct Wire {
    pub(crate) connection: MultiplexedConnection,
    driver: JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Dialer {
    /// Connects and logs in. Nothing was asked yet should it fail.
    pub(crate) async fn dial(
        &self,
        address: &Address,
        login: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<Wire> {
        let config = config.set_response_timeout(Some(self.timeout));
        let dial = async {
            let stream = Bounded::new(self.stream(address).await?);
            let made = MultiplexedConnection::new_with_config(login, stream, config).await;
            made.map_err(|error| of_login(address, login.password().is_some(), error))
        };
        let late = |_| {
            let tls = if self.tls.is_some() { ", and that it speaks TLS" } else { "" };
            let message = format!("no connection to the server {address} in time; look whether it runs{tls}");
            Error::new(ErrorKind::Unavailable, message)
        };
        let (connection, driver) = tokio::time::timeout(self.timeout, dial).await.map_err(late)??;
        Ok(Wire { connection, driver: tokio::spawn(driver) })
    }

    async fn stream(&self, address: &Address) -> Result<Box<dyn Stream>> {
        let (host, port) = match address {
            Address::Unix(path) => return local(path, address).await,
            Address::Tcp(HostPort { host, port }) => (host, *port),
        };
        let stream = TcpStream::connect((host.as_str(), port)).await.and_then(|stream| {
            let socket = socket2::SockRef::from(&stream);
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(DEAD / 2).with_interval(DEAD / 4))?;
            #[cfg(target_os = "linux")]
            socket.set_tcp_user_timeout(Some(DEAD))?;
            Ok(stream)
        });
        let stream = stream.map_err(|error| of_connecting(address, error.into()))?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some(tls) => Ok(Box::new(tls.secure(stream, host, address).await?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use crate::RedisLock;

    /// What is said of a server that answers this to whatever is asked first.
    async fn said_of(answer: &'static str) -> String {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", server.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let mut kept = Vec::new();
            loop {
                let (mut stream, _) = server.accept().await.unwrap();
                assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
                stream.write_all(answer.as_bytes()).await.unwrap();
                if answer.starts_with('-') {
                    kept.push(stream);
                }
            }
        });
        let error = RedisLock::connect(&url, "oarlock").await.unwrap_err();
        serving.abort();
        error.to_string()
    }

    #[tokio::test]
    async fn a_server_without_resp3_is_not_called_old() {
        // As old servers, proxies and look-alikes answer the whole greeting.
        for unknown in [
            "-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n",
            "-ERR unknown command 'hello'\r\n",
            "-NOPROTO unsupported protocol version\r\n",
        ] {
            let said = said_of([unknown; 9].concat().leak()).await;
            assert!(said.contains("does not speak RESP3") && said.contains("may be a proxy"), "{said}");
        }
    }

    #[tokio::test]
    async fn another_service_and_a_missing_password_are_told_from_a_server_that_is_away() {
        for other in ["HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "\0\0\0\0", ""] {
            let said = said_of(other).await;
            assert!(said.contains("is it the right port?"), "{said}");
        }
        // As a server answers the whole greeting, which is several commands.
        let refused = "-NOAUTH HELLO must be called with the client already authenticated\r\n";
        let said = said_of([refused; 9].concat().leak()).await;
        assert!(said.contains("wants a password and none was given"), "{said}");
    }
}
