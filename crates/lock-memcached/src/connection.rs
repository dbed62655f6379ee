//! The connection to the server: requests in one order, each bounded in time.
//!
//! A client has one connection, with a task that writes and reads. What is asked over it is done in the order in which
//! it was asked. A connection that fails is left, and the next request makes another.
//!
//! CAS numbers begin again when the server is restarted. So what was read over one connection is changed over the same
//! one, or not at all.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{Clock, Error, HostPort, Instant, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time;

use crate::error;
use crate::process::{Process, greet, understand};
use crate::server_time::ServerTime;
use crate::wire::{Commands, Decoder, Reply, Shape};

/// How much is read at a time, in bytes.
const PIECE: usize = 16 << 10;

/// The server, as one client knows it.
pub(crate) struct Client {
    pub(crate) server: Arc<Server>,
    slot: Mutex<Slot>,
}

/// What outlasts a connection.
pub(crate) struct Server {
    pub(crate) address: HostPort,
    pub(crate) timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    /// Something happened by which holds may be lost.
    pub(crate) doubts: watch::Sender<()>,
    /// The process that answered last, and its clock.
    known: Mutex<Option<(Process, ServerTime)>>,
}

#[derive(Default)]
struct Slot {
    link: Option<Arc<Link>>,
    closed: bool,
}

/// A connection that is there, or is being made.
pub(crate) struct Link {
    server: Arc<Server>,
    requests: mpsc::UnboundedSender<Request>,
}

/// What is on its way to the task of a connection.
struct Request {
    commands: Commands,
    answer: oneshot::Sender<Result<Vec<Reply>, Failed>>,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// Is another connection likely to do better, at once?
    pub(crate) again: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, again: false }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.server.address)
    }
}

impl Client {
    pub(crate) fn new(address: HostPort, timeout: Duration, clock: Arc<dyn Clock>) -> Self {
        let server = Server { address, timeout, clock, doubts: watch::Sender::new(()), known: Mutex::default() };
        Self { server: Arc::new(server), slot: Mutex::default() }
    }

    /// The present connection, or a new one. It must be called within a tokio runtime.
    pub(crate) fn link(&self) -> Result<Arc<Link>> {
        let mut slot = locked(&self.slot);
        if slot.closed {
            return Err(Error::closed());
        }
        if let Some(link) = slot.link.as_ref().filter(|link| !link.requests.is_closed()) {
            return Ok(Arc::clone(link));
        }
        let link = self.server.connect();
        slot.link = Some(Arc::clone(&link));
        Ok(link)
    }

    /// The next request is made over another connection.
    pub(crate) fn leave(&self, link: &Arc<Link>) {
        let mut slot = locked(&self.slot);
        if slot.link.as_ref().is_some_and(|present| Arc::ptr_eq(present, link)) {
            slot.link = None;
        }
    }

    pub(crate) fn close(&self) {
        *locked(&self.slot) = Slot { link: None, closed: true };
    }
}

impl Server {
    /// A connection of its own. It ends when nobody has it any more.
    pub(crate) fn connect(self: &Arc<Self>) -> Arc<Link> {
        let (requests, received) = mpsc::unbounded_channel();
        tokio::spawn(serve(Arc::clone(self), received));
        Arc::new(Link { server: Arc::clone(self), requests })
    }

    /// This process has answered, and told its time.
    fn met(&self, process: Process, time: ServerTime) {
        let mut known = locked(&self.known);
        match &*known {
            Some((before, _)) if *before == process => {}
            Some((before, _)) => {
                let server = &self.address;
                tracing::warn!(%server, ?before, now = ?process, "memcached was restarted, and has lost all locks");
                *known = Some((process, time));
                self.doubts.send_replace(());
            }
            None => *known = Some((process, time)),
        }
    }

    /// The server told this second, and we heard of it just now.
    pub(crate) fn heard(&self, second: u64) {
        let now = self.clock.now();
        if let Some((_, time)) = &mut *locked(&self.known) {
            time.heard(second, now);
        }
    }

    /// The second that it was at the server then, or a later one than that.
    pub(crate) fn second_at(&self, at: Instant) -> u64 {
        locked(&self.known).map_or(0, |(_, time)| time.second_at(at))
    }
}

impl Link {
    /// Sends these, and waits for all their answers.
    ///
    /// # Cancel safety
    /// What was sent is done all the same, before what is sent later over this connection.
    pub(crate) async fn ask(&self, commands: Commands) -> Result<Vec<Reply>, Failed> {
        let (answer, answered) = oneshot::channel();
        if self.requests.send(Request { commands, answer }).is_err() {
            return Err(Failed { error: error::not_sent(&self.server.address), again: true });
        }
        // The task has its own bounds. But it stands still with its runtime, if nobody drives that.
        match time::timeout(self.server.timeout * 3, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Failed { error: error::broken(&self.server.address, None), again: true }),
            Err(_) => Err(Failed { error: error::slow(&self.server.address), again: false }),
        }
    }
}

/// What was sent and is not answered yet.
struct Unanswered {
    shapes: VecDeque<Shape>,
    replies: Vec<Reply>,
    due: time::Instant,
    answer: oneshot::Sender<Result<Vec<Reply>, Failed>>,
}

/// The task of a connection: makes it, and does what is asked until it fails or nobody has it any more.
async fn serve(server: Arc<Server>, mut requests: mpsc::UnboundedReceiver<Request>) {
    let connected = time::timeout(server.timeout, dial(&server)).await;
    let connected = connected.unwrap_or_else(|_| Err(error::unreachable(&server.address, None)));
    let failed = match connected {
        Ok(stream) => {
            let mut waiting = VecDeque::new();
            let failed = exchange(&server, stream, &mut requests, &mut waiting).await;
            let is_left = requests.is_closed();
            // Before anybody hears of it, who then asks for another connection.
            requests.close();
            for one in waiting {
                // Who asked may have gone.
                let _ = one.answer.send(Err(failed.clone()));
            }
            if !is_left {
                server.doubts.send_replace(());
            }
            Failed { error: error::not_sent(&server.address), again: failed.again }
        }
        Err(error) => error.into(),
    };
    requests.close();
    while let Ok(request) = requests.try_recv() {
        let _ = request.answer.send(Err(failed.clone()));
    }
}

/// Connects, and asks who is there.
async fn dial(server: &Server) -> Result<TcpStream> {
    let address = &server.address;
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
    let mut stream = stream.map_err(|error| error::unreachable(address, Some(error)))?;
    stream.set_nodelay(true).map_err(|error| error::unreachable(address, Some(error)))?;
    let (commands, mut decoder, mut replies) = (greet(), Decoder::default(), Vec::new());
    let unreachable = |error| error::unreachable(address, Some(error));
    stream.write_all(&commands.bytes).await.map_err(unreachable)?;
    for shape in &commands.shapes {
        let reply = loop {
            match decoder.next(shape) {
                Ok(Some(reply)) => break reply,
                Ok(None) => {}
                Err(malformed) => return Err(error::no_memcached(address, malformed.0)),
            }
            if stream.read_buf(&mut decoder.arrived).await.map_err(unreachable)? == 0 {
                return Err(error::no_memcached(address, "it ends the connection"));
            }
        };
        let is_refused = matches!(reply, Reply::Refused(_));
        replies.push(reply);
        if is_refused {
            // It may end the connection, and say no more.
            break;
        }
    }
    let (process, second) = understand(replies, address)?;
    let mut time = ServerTime::default();
    time.heard(second, server.clock.now());
    server.met(process, time);
    Ok(stream)
}

/// Writes what is asked and reads what is answered, until something fails.
async fn exchange(
    server: &Server,
    mut stream: TcpStream,
    requests: &mut mpsc::UnboundedReceiver<Request>,
    waiting: &mut VecDeque<Unanswered>,
) -> Failed {
    let address = &server.address;
    let (mut reader, mut writer) = stream.split();
    let (mut decoder, mut unsent) = (Decoder::default(), Vec::new());
    loop {
        let due = waiting.front().map(|first| first.due);
        decoder.arrived.reserve(PIECE);
        tokio::select! {
            biased;
            read = reader.read_buf(&mut decoder.arrived) => match read {
                Ok(0) => return Failed { error: error::broken(address, None), again: true },
                Ok(_) => if let Err(error) = answer(&mut decoder, waiting, address) {
                    return error.into();
                },
                Err(error) => return Failed { error: error::broken(address, Some(error)), again: true },
            },
            () = time::sleep_until(due.unwrap_or_else(time::Instant::now)), if due.is_some() => {
                return error::slow(address).into();
            }
            written = writer.write(&unsent), if !unsent.is_empty() => match written {
                Ok(length) => drop(unsent.drain(..length)),
                Err(error) => return Failed { error: error::broken(address, Some(error)), again: true },
            },
            request = requests.recv() => match request {
                Some(Request { commands, answer }) => {
                    unsent.extend_from_slice(&commands.bytes);
                    let due = time::Instant::now() + server.timeout;
                    waiting.push_back(Unanswered { shapes: commands.shapes.into(), replies: Vec::new(), due, answer });
                }
                None => return error::not_sent(address).into(),
            },
        }
    }
}

/// Hands out what has arrived.
fn answer(decoder: &mut Decoder, waiting: &mut VecDeque<Unanswered>, address: &HostPort) -> Result<()> {
    while let Some(first) = waiting.front_mut() {
        while let Some(shape) = first.shapes.front() {
            match decoder.next(shape) {
                Ok(Some(reply)) => first.replies.push(reply),
                Ok(None) => return Ok(()),
                Err(malformed) => return Err(error::malformed(address, malformed.0)),
            }
            first.shapes.pop_front();
        }
        if let Some(done) = waiting.pop_front() {
            // Who asked may have gone.
            let _ = done.answer.send(Ok(done.replies));
        }
    }
    if decoder.arrived.is_empty() { Ok(()) } else { Err(error::malformed(address, "an answer to nothing")) }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
