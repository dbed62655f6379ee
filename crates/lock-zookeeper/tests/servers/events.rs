//! What stands between a client and a server and knows which packets are watch events.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_zookeeper::{ZookeeperLock, ZookeeperOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Forward,
    /// Events are lost.
    Lose,
    /// All that a server says waits, and then comes as one piece.
    Gather,
}

pub(crate) struct Events {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    lost: Arc<AtomicU32>,
}

impl Events {
    pub(crate) async fn of(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, lost) = (watch::Sender::new(Mode::Forward), Arc::new(AtomicU32::new(0)));
        let (modes, lost_here) = (mode.subscribe(), Arc::clone(&lost));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(serve(client, server, modes.clone(), Arc::clone(&lost_here)));
            }
        });
        Self { address, mode, lost }
    }

    /// A client of ours whose events come by here.
    pub(crate) async fn client(&self) -> Arc<ZookeeperLock> {
        let url = format!("zookeeper://{}", self.address);
        Arc::new(ZookeeperOptions::new(&url).unwrap().connect().await.unwrap())
    }

    pub(crate) fn lose(&self) {
        self.mode.send_replace(Mode::Lose);
    }

    pub(crate) fn gather(&self) {
        self.mode.send_replace(Mode::Gather);
    }

    pub(crate) fn forward(&self) {
        self.mode.send_replace(Mode::Forward);
    }

    /// How many were lost.
    pub(crate) fn lost(&self) -> u32 {
        self.lost.load(Ordering::SeqCst)
    }
}

async fn serve(client: TcpStream, server: TcpStream, mut modes: watch::Receiver<Mode>, lost: Arc<AtomicU32>) {
    let ((mut asks, mut told), (mut tells, mut asked)) = (client.into_split(), server.into_split());
    let (packets, mut coming) = mpsc::unbounded_channel();
    let asking = tokio::io::copy(&mut asks, &mut asked);
    let reading = async move {
        while let Ok(length) = tells.read_u32().await {
            let mut packet = vec![0; length as usize];
            if tells.read_exact(&mut packet).await.is_err() || packets.send(packet).is_err() {
                return;
            }
        }
    };
    let telling = async {
        let mut gathered = Vec::new();
        loop {
            tokio::select! {
                Some(packet) = coming.recv() => {
                    // Answers have the number of their request.
                    let is_event = packet.starts_with(&(-1_i32).to_be_bytes());
                    if is_event && *modes.borrow() == Mode::Lose {
                        lost.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    gathered.extend((packet.len() as u32).to_be_bytes());
                    gathered.extend(packet);
                }
                changed = modes.changed() => if changed.is_err() { return },
            }
            if *modes.borrow() != Mode::Gather && told.write_all(&std::mem::take(&mut gathered)).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = asking => {}
        () = async { tokio::join!(reading, telling); } => {}
    }
}
