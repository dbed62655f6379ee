//! The connection: one for requests and messages alike, shared by all, bounded in time, and replaced when it is of no use.
//!
//! Requests over one connection are done in the order in which they were sent, also those whose future was dropped. So
//! an `unlock` comes after whatever it undoes. To keep that over a replacement, the new connection first has the server
//! close the old one: then nothing that was sent over it can be done any more.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::{Clock, Error, ErrorKind, Instant, Result};
use redis::{
    AsyncConnectionConfig, Cmd, PushInfo, PushKind, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind,
    Value,
};

use crate::address::Address;
use crate::dial::{Dialer, Wire};
use crate::error::{Blame, blame, of_connecting, of_request};
use crate::scripts::Script;
use crate::waiting::Waiters;

const NO_SCRIPT: redis::ErrorKind = redis::ErrorKind::Server(ServerErrorKind::NoScript);

/// So many requests in a row without an answer, and the connection is replaced.
const PATIENCE: u32 = 2;

pub(crate) struct Connection {
    pub(crate) address: Address,
    dialer: Dialer,
    login: RedisConnectionInfo,
    pub(crate) clock: Arc<dyn Clock>,
    /// This client among all, for its messages.
    pub(crate) id: String,
    waiters: Arc<Waiters>,
    state: Mutex<State>,
    /// Held by who connects.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    /// Connections that the server may not have closed yet.
    former: Vec<Number>,
    closed: bool,
}

/// A connection as the server numbers it, never twice in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Number {
    run: String,
    id: i64,
}

struct Link {
    wire: Wire,
    number: Number,
    broken: Arc<AtomicBool>,
    /// Requests in a row without an answer.
    unanswered: AtomicU32,
    /// What `INFO` said on connecting.
    info: String,
}

/// What a request was answered, and when it was sent.
pub(crate) struct Answer {
    pub(crate) sent: Instant,
    pub(crate) value: Value,
}

/// May a request whose answer was lost with its connection be sent again over the next?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    Yes,
    No,
}

impl Connection {
    pub(crate) fn new(
        address: Address,
        dialer: Dialer,
        login: RedisConnectionInfo,
        clock: Arc<dyn Clock>,
        waiters: Arc<Waiters>,
    ) -> Self {
        let id = format!("{:016x}", rand::random::<u64>());
        let state = Mutex::default();
        Self { address, dialer, login, clock, id, waiters, state, connecting: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of this client's channel, and of the key that shows that it lives.
    pub(crate) fn own_key(&self) -> String {
        format!("oarlock-client:{}", self.id)
    }

    /// Runs a script.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        again: Again,
    ) -> Result<Answer> {
        let command = |verb: &str, script: &str| {
            let mut command = redis::cmd(verb);
            command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
            command
        };
        let sent = self.clock.now();
        match self.send(&command("EVALSHA", &script.hash), again).await {
            // The server was restarted, or is asked for the first time. It counts from the first question.
            Err(error) if error.kind() == NO_SCRIPT => {
                let answer = self.send(&command("EVAL", script.source), again).await;
                answer.map(|answer| Answer { sent, ..answer })
            }
            answer => answer,
        }
        .map_err(Failure::into_error)
    }

    /// Sends a command that changes nothing.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value> {
        let answer = self.send(command, Again::Yes).await.map_err(Failure::into_error)?;
        Ok(answer.value)
    }

    /// What `INFO` said when the connection was made, which it now is.
    pub(crate) async fn info(&self) -> Result<String> {
        Ok(self.link().await?.info.clone())
    }

    async fn send(&self, command: &Cmd, again: Again) -> Result<Answer, Failure> {
        let mut again = again == Again::Yes;
        loop {
            let link = self.link().await.map_err(Failure::NoLink)?;
            let sent = self.clock.now();
            match link.ask(command).await {
                Ok(value) => return Ok(Answer { sent, value }),
                Err(_) if again && link.broken.load(Ordering::SeqCst) => again = false,
                Err(error) => return Err(Failure::Request(error)),
            }
        }
    }

    /// The connection; a new one if there is none, or it is of no use.
    async fn link(&self) -> Result<Arc<Link>> {
        if let Some(link) = self.present()? {
            return Ok(link);
        }
        self.bounded(async {
            let _turn = self.connecting.lock().await;
            if let Some(link) = self.present()? {
                return Ok(link);
            }
            let link = Arc::new(self.connect().await?);
            let mut state = self.state();
            if state.closed {
                return Err(closed());
            }
            state.former.clear();
            state.link = Some(Arc::clone(&link));
            Ok(link)
        })
        .await
    }

    fn present(&self) -> Result<Option<Arc<Link>>> {
        let mut state = self.state();
        if state.closed {
            return Err(closed());
        }
        if let Some(link) = state.link.take_if(|link| link.broken.load(Ordering::SeqCst)) {
            state.former.push(link.number.clone());
        }
        Ok(state.link.clone())
    }

    async fn connect(&self) -> Result<Link> {
        let broken = Arc::new(AtomicBool::new(false));
        let config = AsyncConnectionConfig::new().set_push_sender(self.listener(&broken));
        let wire = self.dialer.dial(&self.address, &self.login, config).await?;
        let former = self.state().former.clone();
        let link = self.set_up(wire, broken, &former).await.map_err(|error| of_connecting(&self.address, error))?;
        let run = &link.number.run;
        if former.last().is_some_and(|former| former.run != *run) {
            tracing::warn!(server = %self.address, "the server was restarted or is another one; what it did not save is lost");
        }
        Ok(link)
    }

    /// What each new connection needs before the first request.
    async fn set_up(&self, wire: Wire, broken: Arc<AtomicBool>, former: &[Number]) -> RedisResult<Link> {
        let mut connection = wire.connection.clone();
        let (id, info): (i64, String) = redis::pipe()
            .cmd("CLIENT")
            .arg("SETNAME")
            .arg(format!("oarlock:{}", self.id))
            .ignore()
            .cmd("CLIENT")
            .arg("ID")
            .cmd("INFO")
            .query_async(&mut connection)
            .await?;
        let run = field(&info, "run_id").unwrap_or_default().to_owned();
        // With a number that nobody has, so that a missing right shows now and not in trouble.
        let same_run = former.iter().filter(|number| number.run == run).map(|number| number.id);
        for id in same_run.chain([i64::MAX]) {
            redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id).exec_async(&mut connection).await?;
        }
        connection.subscribe(self.own_key()).await?;
        Ok(Link { wire, number: Number { run, id }, broken, unanswered: AtomicU32::new(0), info })
    }

    /// Hears of grants, and of the end of the connection.
    fn listener(&self, broken: &Arc<AtomicBool>) -> impl Fn(PushInfo) -> Result<(), redis::aio::SendError> + use<> {
        let (waiters, clock, broken) = (Arc::clone(&self.waiters), Arc::clone(&self.clock), Arc::clone(broken));
        move |push| {
            match push.kind {
                PushKind::Message => {
                    if let Some(Value::BulkString(message)) = push.data.last() {
                        waiters.granted(&String::from_utf8_lossy(message), clock.now());
                    }
                }
                // Whether we asked for that or not, nobody could reach us any more.
                PushKind::Disconnection | PushKind::Unsubscribe => {
                    broken.store(true, Ordering::SeqCst);
                    waiters.look_now();
                }
                _ => {}
            }
            Ok(())
        }
    }

    async fn bounded<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout(self.dialer.timeout * 2, future).await.unwrap_or_else(|_| {
            let message = format!("no connection to the server {} in time; look whether it runs", self.address);
            Err(Error::new(ErrorKind::Unavailable, message))
        })
    }

    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.link = None;
    }
}

impl Link {
    async fn ask(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        let answer = self.wire.connection.clone().send_packed_command(cmd).await.and_then(Value::extract_error);
        match answer.as_ref().map_or_else(blame, |_| Blame::Fine) {
            Blame::Fine => self.unanswered.store(0, Ordering::SeqCst),
            Blame::Slow if self.unanswered.fetch_add(1, Ordering::SeqCst) + 1 < PATIENCE => {}
            Blame::Slow | Blame::Broken => self.broken.store(true, Ordering::SeqCst),
        }
        answer
    }
}

/// Why a request has no answer.
enum Failure {
    NoLink(Error),
    Request(RedisError),
}

impl Failure {
    fn kind(&self) -> redis::ErrorKind {
        match self {
            Self::NoLink(_) => redis::ErrorKind::Io,
            Self::Request(error) => error.kind(),
        }
    }

    fn into_error(self) -> Error {
        match self {
            Self::NoLink(error) => error,
            Self::Request(error) => of_request(error),
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "these locks were closed")
}

/// A line of `INFO`.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
