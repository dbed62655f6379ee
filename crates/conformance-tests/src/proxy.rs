//! A TCP proxy that breaks what goes through it.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// How many pieces are on their way at a time, in one direction of one connection, before the sender has to wait.
const ON_THE_WAY: usize = 64;

/// How far apart requests arrive that were held: a server that reads one together with its cancelling never does it.
const APART: Duration = Duration::from_millis(5);

/// The numbers of all connections.
const ALL: Range<u64> = 0..u64::MAX;

/// The connections that there were.
#[derive(Debug, Default)]
struct Connections {
    /// How many.
    made: AtomicU64,
    /// From which ports of ours the server sees them, and their numbers.
    ports: Mutex<HashMap<u16, u64>>,
    /// The numbers of those that have not ended.
    open: Mutex<BTreeSet<u64>>,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ports(&self) -> MutexGuard<'_, HashMap<u16, u64>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What happens to what goes through.
#[derive(Clone, Debug, Default)]
struct Mode {
    requests: Way,
    answers: Way,
    /// New connections are closed at once.
    refuse: bool,
    /// New connections lead to this server.
    leads_to: Option<SocketAddr>,
    /// Connections with a lower number are reset.
    reset_below: u64,
    /// Connections with a lower number have ended for their clients.
    ended_below: u64,
    /// Connections with these numbers have ended for the server.
    forgotten: Range<u64>,
    /// Once a request has one of these in it, the answers of its connection wait.
    telling: Vec<Vec<u8>>,
}

impl Mode {
    fn tells(&self, request: &[u8]) -> bool {
        self.telling.iter().any(|text| request.windows(text.len()).any(|part| part == text))
    }
}

/// What happens to what goes one way.
#[derive(Clone, Debug, Default)]
struct Way {
    /// What goes over connections with these numbers waits.
    held: Range<u64>,
    /// Each piece takes so much longer, at least and at most.
    delay: Range<Duration>,
}

/// A proxy in front of a server, on a port and a thread of its own. Dropping it closes its connections.
///
/// What is held or delayed stays in its order, also the end of a connection: a request that was on its way when its
/// client died is still done when it arrives. Requests that were held arrive a little apart, as over a network that
/// lost packets, so that what cancels one does not come with it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
    connections: Arc<Connections>,
    runtime: Option<Runtime>,
}

impl Proxy {
    /// In front of this server, forwarding.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn new(server: SocketAddr) -> Self {
        Self::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), server).expect("a free port")
    }

    /// The same at this address.
    pub(crate) fn at(address: SocketAddr, server: SocketAddr) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = std::net::TcpListener::bind(address)?;
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a socket");
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener).expect("a socket")
        };
        let mode = Arc::new(watch::Sender::new(Mode::default()));
        let connections = Arc::<Connections>::default();
        runtime.spawn(accept(listener, server, Arc::clone(&mode), Arc::clone(&connections)));
        Ok(Self { address, mode, connections, runtime: Some(runtime) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were made through it so far.
    pub fn connections(&self) -> u64 {
        self.connections.made.load(Ordering::SeqCst)
    }

    /// The numbers of the connections that have not ended, in the order in which they were made.
    pub fn open(&self) -> Vec<u64> {
        self.connections.open().iter().copied().collect()
    }

    /// From now on, requests wait in front of the server.
    pub fn hold_c2s(&self) {
        self.mode.send_modify(|mode| mode.requests.held = ALL);
    }

    /// The same for the connections that are there now; later ones are not held.
    pub fn hold_c2s_of_present(&self) {
        self.mode.send_modify(|mode| mode.requests.held = 0..self.connections());
    }

    /// The connections that are there now are dead, and neither side is told.
    pub fn hold_present(&self) {
        let present = 0..self.connections();
        self.mode.send_modify(|mode| {
            mode.requests.held = present.clone();
            mode.answers.held = present;
        });
    }

    /// The connection that the server sees coming from this port is dead, and neither side is told, as where a network
    /// forgot it.
    ///
    /// # Panics
    /// If none of this proxy's does.
    pub fn hold_from(&self, port: u16) {
        let number = self.connections.ports().get(&port).copied();
        self.swallow(number.expect("a connection from that port"));
    }

    /// The same for the connection with this number: the first one has 0.
    pub fn swallow(&self, number: u64) {
        self.mode.send_modify(|mode| {
            mode.requests.held = number..number + 1;
            mode.answers.held = number..number + 1;
        });
    }

    /// Requests over the connection with this number are done, and their answers wait.
    pub fn hold_answers_of(&self, number: u64) {
        self.mode.send_modify(|mode| mode.answers.held = number..number + 1);
    }

    /// The next request with one of these texts in it is done, and its answer waits, with all that comes after it over the
    /// same connection. Other connections go on.
    pub fn hold_answers_to(&self, texts: impl IntoIterator<Item = String>) {
        self.mode.send_modify(|mode| mode.telling = texts.into_iter().map(String::into_bytes).collect());
    }

    /// The connection with this number ends for the server, and its client is not told, as where a network forgot it and
    /// the server noticed first.
    pub fn forget(&self, number: u64) {
        self.mode.send_modify(|mode| mode.forgotten = number..number + 1);
    }

    /// From now on, requests are done and their answers wait.
    pub fn hold_s2c(&self) {
        self.mode.send_modify(|mode| mode.answers.held = ALL);
    }

    /// From now on, nothing goes through.
    pub fn hold(&self) {
        self.hold_c2s();
        self.hold_s2c();
    }

    /// Each piece, in each direction, takes so much longer.
    pub fn delay(&self, delay: Duration) {
        self.delay_c2s(delay..delay);
        self.delay_s2c(delay..delay);
    }

    /// Each piece of a request takes longer, by a time drawn from this range.
    pub fn delay_c2s(&self, delay: Range<Duration>) {
        self.mode.send_modify(|mode| mode.requests.delay = delay);
    }

    /// Each piece of an answer takes longer, by a time drawn from this range.
    pub fn delay_s2c(&self, delay: Range<Duration>) {
        self.mode.send_modify(|mode| mode.answers.delay = delay);
    }

    /// New connections are closed at once.
    pub fn refuse(&self) {
        self.mode.send_modify(|mode| mode.refuse = true);
    }

    /// New connections lead to this server, and those that are there are reset, as by a balancer.
    pub fn lead_to(&self, server: SocketAddr) {
        self.mode.send_modify(|mode| mode.leads_to = Some(server));
        self.reset();
    }

    /// The connections that are there now are reset, and what they carried is lost.
    pub fn reset(&self) {
        self.mode.send_modify(|mode| mode.reset_below = self.connections());
    }

    /// The connections that are there now end for their clients, while what these have sent still arrives.
    pub fn end_for_clients(&self) {
        self.mode.send_modify(|mode| mode.ended_below = self.connections());
    }

    /// Every connection breaks, and new ones are closed at once.
    pub fn cut(&self) {
        self.refuse();
        self.reset();
    }

    /// What was held goes on, in its order, and nothing is held, delayed or refused any more.
    pub fn forward(&self) {
        self.mode.send_modify(|mode| {
            *mode = Mode { reset_below: mode.reset_below, ended_below: mode.ended_below, ..Mode::default() };
        });
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

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
    connections: Arc<Connections>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let (refuse, leads_to) = {
            let mode = mode.borrow();
            (mode.refuse, mode.leads_to)
        };
        if refuse {
            continue;
        }
        let server = leads_to.unwrap_or(server);
        let number = connections.made.fetch_add(1, Ordering::SeqCst);
        connections.open().insert(number);
        let (mode, connections) = (Arc::clone(&mode), Arc::clone(&connections));
        tokio::spawn(async move {
            carry(client, server, number, &mode, &connections).await;
            connections.open().remove(&number);
        });
    }
}

async fn carry(mut client: TcpStream, server: SocketAddr, number: u64, modes: &watch::Sender<Mode>, all: &Connections) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    if let Ok(from) = server.local_addr() {
        all.ports().insert(from.port(), number);
    }
    let whole = [client.set_nodelay(true), server.set_nodelay(true)];
    let (Ok(ending), false) = (SockRef::from(&client).try_clone(), whole.iter().any(Result::is_err)) else { return };
    let [mut mode, mut ended, mut forgotten] = [(); 3].map(|()| modes.subscribe());
    let end_for_client = async {
        if ended.wait_for(|mode| number < mode.ended_below).await.is_ok() {
            // It fails if it had ended before.
            let _ = ending.shutdown(Shutdown::Write);
        }
        std::future::pending().await
    };
    let over = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let requests = pump(from_client, to_server, number, modes, |mode| &mode.requests, APART);
        let answers = pump(from_server, to_client, number, modes, |mode| &mode.answers, Duration::ZERO);
        tokio::select! {
            // First: what was held is lost, also if it is let go in the same moment.
            biased;
            // It fails if the proxy is gone: then nothing is left to reset.
            reset = mode.wait_for(|mode| number < mode.reset_below) => reset.map_or(Over::Ended, |_| Over::Reset),
            gone = forgotten.wait_for(|mode| mode.forgotten.contains(&number)) => gone.map_or(Over::Ended, |_| Over::Forgotten),
            () = end_for_client => Over::Ended,
            // Both have ended well, or one cannot go on.
            _ = async { tokio::try_join!(requests, answers) } => Over::Ended,
        }
    };
    if over == Over::Forgotten {
        drop(server);
        let mut nowhere = tokio::io::sink();
        tokio::select! {
            _ = mode.wait_for(|mode| number < mode.reset_below) => {}
            // What the client sends is lost, until it leaves.
            _ = tokio::io::copy(&mut client, &mut nowhere) => {}
        }
        let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
        return;
    }
    if over == Over::Reset {
        for stream in [&client, &server] {
            // Closing it is then a reset. It fails if the other side was faster.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

/// How a connection came to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Reset,
    Forgotten,
    Ended,
}

/// Carries what goes one way, and its end. What was held arrives so far apart.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    number: u64,
    modes: &watch::Sender<Mode>,
    way: fn(&Mode) -> &Way,
    apart: Duration,
) -> io::Result<()> {
    let (sender, mut on_the_way) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
    let (mut mode, delays) = (modes.subscribe(), modes.subscribe());
    let reading = async move {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            // A reset by one side is the end for the other too, after what came before it.
            let length = from.read(&mut buffer).await.unwrap_or(0);
            let due = Instant::now() + drawn(&way(&delays.borrow()).delay);
            if sender.send((due, buffer[..length].to_vec())).await.is_err() || length == 0 {
                break;
            }
        }
    };
    let writing = async move {
        let (mut released, mut written, mut gone) = (None, Instant::now(), false);
        let to_server = !apart.is_zero();
        while let Some((due, piece)) = on_the_way.recv().await {
            tokio::time::sleep_until(due).await;
            let is_held = way(&mode.borrow()).held.contains(&number);
            mode.wait_for(|mode| !way(mode).held.contains(&number)).await.map_err(io::Error::other)?;
            if is_held {
                released = Some(Instant::now());
            }
            if released.is_some_and(|released| due < released) {
                tokio::time::sleep_until(written + apart).await;
            }
            written = Instant::now();
            if to_server && mode.borrow().tells(&piece) {
                modes.send_modify(|mode| {
                    mode.answers.held = number..number + 1;
                    mode.telling.clear();
                });
            }
            if piece.is_empty() {
                return if gone { Ok(()) } else { to.shutdown().await };
            }
            if !gone && let Err(error) = to.write_all(&piece).await {
                // What a client has sent still arrives when it has left: its answers go nowhere.
                if to_server {
                    return Err(error);
                }
                gone = true;
            }
        }
        Ok(())
    };
    tokio::join!(reading, writing).1
}

fn drawn(delay: &Range<Duration>) -> Duration {
    if delay.is_empty() { delay.start } else { rand::rng().random_range(delay.clone()) }
}

#[cfg(test)]
mod tests;
