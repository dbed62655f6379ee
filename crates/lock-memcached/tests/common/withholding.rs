//! A way to a server on which one request stays, and its sender is sent away.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Forwards all connections, but for the first request that was to be withheld.
pub(crate) struct Withholding {
    pub(crate) address: SocketAddr,
    /// That request, when its connection has ended for its client.
    pub(crate) withheld: oneshot::Receiver<Withheld>,
}

/// A request that did not arrive yet, over a connection that the server still has.
pub(crate) struct Withheld {
    request: Vec<u8>,
    server: TcpStream,
}

impl Withholding {
    pub(crate) async fn new(server: SocketAddr, is_meant: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, (tell, withheld)) = (listener.local_addr().unwrap(), oneshot::channel());
        tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut server_side = TcpStream::connect(server).await.unwrap();
            let request = forward(&mut client, &mut server_side, is_meant).await;
            drop(client);
            assert!(tell.send(Withheld { request, server: server_side }).is_ok());
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server_side = TcpStream::connect(server).await.unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server_side).await });
            }
        });
        Self { address, withheld }
    }
}

/// Forwards until it reads a request that is meant, and answers that.
async fn forward(client: &mut TcpStream, server: &mut TcpStream, is_meant: impl Fn(&str) -> bool) -> Vec<u8> {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let requests = async {
        let mut piece = vec![0; 1 << 16];
        loop {
            let length = from_client.read(&mut piece).await.unwrap();
            assert_ne!(length, 0, "the client left");
            if is_meant(&String::from_utf8_lossy(&piece[..length])) {
                return piece[..length].to_vec();
            }
            to_server.write_all(&piece[..length]).await.unwrap();
        }
    };
    tokio::select! {
        request = requests => request,
        _ = copy(&mut from_server, &mut to_client) => panic!("the server left"),
    }
}

impl Withheld {
    /// It arrives, and is answered.
    pub(crate) async fn arrives(mut self) {
        self.server.write_all(&self.request).await.unwrap();
        assert_ne!(self.server.read(&mut [0; 1024]).await.unwrap(), 0);
    }
}
