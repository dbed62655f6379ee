//! A proxy that reads HTTP/2 so far that it can hold back, or lose, what a watch tells, while answers go through.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// How a connection begins, and how long a frame's head is.
const PREFACE: usize = 24;
const HEAD: usize = 9;

/// The kind of a frame that carries a message.
const DATA: u8 = 0;

/// What becomes of the events of watches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Events {
    Pass,
    Wait,
    Vanish,
}

/// In front of one member, forwarding. It ends with the runtime.
pub(crate) struct WatchProxy {
    address: SocketAddr,
    events: watch::Sender<Events>,
    seen: watch::Sender<u64>,
}

impl WatchProxy {
    pub(crate) async fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (events, seen) = (watch::Sender::new(Events::Pass), watch::Sender::new(0));
        tokio::spawn(accept(listener, server, events.clone(), seen.clone()));
        Self { address, events, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("etcd://{}", self.address)
    }

    /// From now on, what watches tell waits.
    pub(crate) fn hold(&self) {
        self.events.send_replace(Events::Wait);
    }

    /// From now on, what watches tell is lost, and nothing else shows it.
    pub(crate) fn lose(&self) {
        self.events.send_replace(Events::Vanish);
    }

    /// What waited is told now, in its order, and all that follows.
    pub(crate) fn forward(&self) {
        self.events.send_replace(Events::Pass);
    }

    /// Ends when the server told so much that was held or lost.
    pub(crate) async fn withheld(&self, messages: u64) {
        self.seen.subscribe().wait_for(|seen| *seen >= messages).await.expect("it runs");
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    events: watch::Sender<Events>,
    seen: watch::Sender<u64>,
) -> io::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        let server = TcpStream::connect(server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        let watches = Arc::default();
        tokio::spawn(requests(from_client, to_server, Arc::clone(&watches)));
        tokio::spawn(answers(from_server, to_client, watches, events.subscribe(), seen.clone()));
    }
}

/// The streams over which somebody watches.
type Watches = Arc<Mutex<HashSet<u32>>>;

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, watches: Watches) -> io::Result<()> {
    let mut preface = [0; PREFACE];
    from.read_exact(&mut preface).await?;
    to.write_all(&preface).await?;
    loop {
        let frame = Frame::read(&mut from).await?;
        if frame.opens_a_watch() {
            watches.lock().unwrap().insert(frame.stream());
        }
        to.write_all(&frame.0).await?;
    }
}

async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    watches: Watches,
    mut events: watch::Receiver<Events>,
    seen: watch::Sender<u64>,
) -> io::Result<()> {
    // Read by a task of its own: a frame that was begun has to be read to its end.
    let (sender, mut frames) = mpsc::unbounded_channel();
    let reading = async move {
        while let Ok(frame) = Frame::read(&mut from).await {
            if sender.send(frame).is_err() {
                return;
            }
        }
    };
    tokio::spawn(reading);
    let mut waiting = VecDeque::new();
    loop {
        tokio::select! {
            frame = frames.recv() => {
                let Some(frame) = frame else { return Ok(()) };
                let is_event = frame.kind() == DATA && watches.lock().unwrap().contains(&frame.stream());
                let events = if is_event { *events.borrow() } else { Events::Pass };
                if events == Events::Pass {
                    to.write_all(&frame.0).await?;
                    continue;
                }
                if events == Events::Wait {
                    waiting.push_back(frame);
                }
                seen.send_modify(|seen| *seen += 1);
            }
            changed = events.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                if *events.borrow_and_update() == Events::Pass {
                    for frame in waiting.drain(..) {
                        to.write_all(&frame.0).await?;
                    }
                }
            }
        }
    }
}

struct Frame(Vec<u8>);

impl Frame {
    async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut frame = vec![0; HEAD];
        from.read_exact(&mut frame).await?;
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
        frame.resize(HEAD + length, 0);
        from.read_exact(&mut frame[HEAD..]).await?;
        Ok(Self(frame))
    }

    fn kind(&self) -> u8 {
        self.0[3]
    }

    fn stream(&self) -> u32 {
        u32::from_be_bytes([self.0[5] & 0x7f, self.0[6], self.0[7], self.0[8]])
    }

    /// A message is five bytes and then fields. That which opens a watch has one, which begins with the key.
    fn opens_a_watch(&self) -> bool {
        let message = self.0.get(HEAD + 5..).unwrap_or_default();
        self.kind() == DATA && matches!(message, [0x0a, _, 0x0a, _, key @ ..] if key.starts_with(b"oarlock/"))
    }
}
