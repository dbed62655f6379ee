//! A TCP proxy that breaks what goes through it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// What happens to what goes through.
#[derive(Clone, Copy, Debug, Default)]
struct Mode {
    /// Requests of connections with a lower number wait.
    hold_c2s_below: u64,
    /// Answers on connections with a lower number wait.
    hold_s2c_below: u64,
    /// Everything takes so much longer.
    delay: Duration,
    /// New connections are closed at once.
    refuse: bool,
    /// Connections with a lower number are reset.
    reset_below: u64,
}

/// A proxy in front of a server, on a port and a thread of its own. Dropping it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    /// How many connections there were.
    count: Arc<AtomicU64>,
    runtime: Option<Runtime>,
}

impl Proxy {
    /// In front of this server, forwarding.
    pub fn new(server: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a socket");
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener).expect("a socket")
        };
        let (mode, count) = (watch::Sender::new(Mode::default()), Arc::default());
        runtime.spawn(accept(listener, server, mode.subscribe(), Arc::clone(&count)));
        Self { address, mode, count, runtime: Some(runtime) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were made through it so far.
    pub fn connections(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// From now on, requests wait in front of the server.
    pub fn hold_c2s(&self) {
        self.mode.send_modify(|mode| mode.hold_c2s_below = u64::MAX);
    }

    /// The same for the connections that are there now; later ones are not held.
    pub fn hold_c2s_of_present(&self) {
        self.mode.send_modify(|mode| mode.hold_c2s_below = self.connections());
    }

    /// From now on, requests are done and their answers wait.
    pub fn hold_s2c(&self) {
        self.mode.send_modify(|mode| mode.hold_s2c_below = u64::MAX);
    }

    /// From now on, nothing goes through.
    pub fn hold(&self) {
        self.hold_c2s();
        self.hold_s2c();
    }

    /// Each piece, in each direction, takes so much longer.
    pub fn delay(&self, delay: Duration) {
        self.mode.send_modify(|mode| mode.delay = delay);
    }

    /// New connections are closed at once.
    pub fn refuse(&self) {
        self.mode.send_modify(|mode| mode.refuse = true);
    }

    /// The connections that are there now are reset, and what they carried is lost.
    pub fn reset(&self) {
        self.mode.send_modify(|mode| mode.reset_below = self.connections());
    }

    /// What was held goes on, in its order, and nothing is held, delayed or refused any more.
    pub fn forward(&self) {
        self.mode.send_modify(|mode| *mode = Mode { reset_below: mode.reset_below, ..Mode::default() });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Not by waiting: it may be dropped inside another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, mode: watch::Receiver<Mode>, count: Arc<AtomicU64>) {
    while let Ok((client, _)) = listener.accept().await {
        if mode.borrow().refuse {
            continue;
        }
        let number = count.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(carry(client, server, number, mode.clone()));
    }
}

async fn carry(client: TcpStream, server: SocketAddr, number: u64, mode: watch::Receiver<Mode>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    for stream in [&client, &server] {
        // A reset below, and no waiting for more to send.
        let socket = socket2::SockRef::from(stream);
        let _ = (socket.set_linger(Some(Duration::ZERO)), socket.set_tcp_nodelay(true));
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let held_c2s = |mode: &Mode| number < mode.hold_c2s_below;
    let held_s2c = |mode: &Mode| number < mode.hold_s2c_below;
    let reset = {
        let mut mode = mode.clone();
        async move {
            // It fails if the proxy is gone: the same.
            let _ = mode.wait_for(|mode| number < mode.reset_below).await;
        }
    };
    // Whatever ends first ends the connection.
    tokio::select! {
        _ = pump(from_client, to_server, mode.clone(), held_c2s) => {}
        _ = pump(from_server, to_client, mode.clone(), held_s2c) => {}
        () = reset => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
    held: impl Fn(&Mode) -> bool,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let delay = mode.borrow().delay;
        tokio::time::sleep(delay).await;
        mode.wait_for(|mode| !held(mode)).await.map_err(io::Error::other)?;
        to.write_all(&buffer[..length]).await?;
    }
}
