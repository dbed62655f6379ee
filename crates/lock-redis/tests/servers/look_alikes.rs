//! Servers that speak as Redis does, and are something else.

use std::net::SocketAddr;

use lock_core::ErrorKind;
use lock_redis::RedisLock;
use test_servers::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What Dragonfly answers to a script that uses a key that it was not called with.
const UNDECLARED: &[u8] =
    b"-ERR Error running script (call to 5c4d62f4e30c54fb15935b5892148e5ce7374077): @user_script:1: \
    script tried accessing undeclared key, key: oarlock-client:nobody\r\n";

/// A server that answers so to scripts, and to all else as this one. It listens until the test ends.
async fn dragonfly(redis: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut server = TcpStream::connect(redis).await.unwrap();
            tokio::spawn(async move {
                let (mut asked, mut answered) = ([0; 4096], [0; 4096]);
                loop {
                    tokio::select! {
                        length = client.read(&mut asked) => match length.unwrap_or_default() {
                            0 => return,
                            length if asked[..length].windows(4).any(|part| part == b"EVAL") => {
                                client.write_all(UNDECLARED).await.unwrap();
                            }
                            length => server.write_all(&asked[..length]).await.unwrap(),
                        },
                        length = server.read(&mut answered) => match length.unwrap_or_default() {
                            0 => return,
                            length => client.write_all(&answered[..length]).await.unwrap(),
                        },
                    }
                }
            });
        }
    });
    address
}

/// A server that forbids what our scripts do is refused at connecting, not when a lock is first contended.
#[tokio::test]
async fn a_server_that_forbids_undeclared_keys_is_refused() {
    let server = RedisServer::start();
    let url = format!("redis://{}", dragonfly(server.address()).await);
    let error = RedisLock::connect(&url, "oarlock").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    assert!(error.to_string().contains("allow-undeclared-keys"), "{error}");
}
