//! Makes connections: the socket, TLS over it, and the login.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

use crate::address::Address;
use crate::error::of_connecting;
use crate::tls::Tls;

/// After so long without an answer to anything, the kernel takes a connection for dead.
const DEAD: Duration = Duration::from_secs(10);

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) struct Dialer {
    pub(crate) tls: Option<Tls>,
    /// The bound of connecting, and of each request.
    pub(crate) timeout: Duration,
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
            let stream = self.stream(address).await?;
            let made = MultiplexedConnection::new_with_config(login, stream, config).await;
            made.map_err(|error| of_connecting(address, error))
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
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                return Ok(Box::new(stream.map_err(|error| of_connecting(address, error.into()))?));
            }
            Address::Tcp(host, port) => (host, *port),
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
