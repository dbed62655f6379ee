//! The connection: one for requests and messages alike, shared by all, bounded in time, and replaced when it is of no
//! use.
//!
//! Requests over one connection are done in the order in which they were sent, also those whose future was dropped. So
//! an `unlock` comes after whatever it undoes. To keep that over a replacement, the new connection first has the server
//! close the old one: then nothing that was sent over it can be done any more.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{Clock, Error, ErrorKind, Instant, News, Result, Slots, Waiters};
use redis::{
    AsyncConnectionConfig, Cmd, Pipeline, PushInfo, PushKind, RedisConnectionInfo, RedisError, ServerErrorKind, Value,
};
use tokio::sync::watch;

use crate::address::Address;
use crate::answers::Grants;
use crate::dial::{Dialer, Wire};
use crate::error::{Blame, blame, is_answered, of_closing, of_connecting, of_request};
use crate::free::{Contended, Drawn};
use crate::keys::LockKeys;
use crate::life::Life;
use crate::records::Records;
use crate::replicas::Replicas;
use crate::scripts::Script;
use crate::sentinel::Sentinels;
use crate::slots::number_in;
use crate::times::Times;

const NO_SCRIPT: redis::ErrorKind = redis::ErrorKind::Server(ServerErrorKind::NoScript);
const MOVED: redis::ErrorKind = redis::ErrorKind::Server(ServerErrorKind::Moved);

/// So many requests in a row without an answer, and the connection is replaced.
const PATIENCE: u32 = 2;

/// What all connections of one client share.
pub(crate) struct Client {
    pub(crate) dialer: Dialer,
    pub(crate) login: RedisConnectionInfo,
    pub(crate) clock: Arc<dyn Clock>,
    /// This client among all, for its messages.
    pub(crate) id: String,
    pub(crate) waiters: Arc<Waiters<Arc<LockKeys>>>,
    pub(crate) life: Life,
    pub(crate) times: Times,
    pub(crate) contended: Contended,
    pub(crate) records: Records,
    /// So many replicas must have a grant.
    pub(crate) replicas: usize,
    /// A server may have lost what it kept.
    pub(crate) doubts: watch::Sender<()>,
}

impl Client {
    /// The name of this client, in a cluster one of its names that are in this slot.
    pub(crate) fn name(&self, slot: Option<u16>) -> String {
        slot.map_or_else(|| self.id.clone(), |slot| format!("{}{{{}}}", self.id, number_in(slot)))
    }

    /// The key that shows that it lives, and without a slot its channel.
    pub(crate) fn own_key(&self, slot: Option<u16>) -> String {
        format!("oarlock-client:{}", self.name(slot))
    }

    /// A lock was granted, which its waiter is told if it is ours; or one for which we wait is kept for so long.
    fn told(&self, message: &str) {
        if let Some(grant) = Grants::parse(message) {
            let (at_us, arrived) = (grant.at as i64, self.clock.now());
            let told = News::Granted { token: grant.token, slots: Slots::default(), at_us, arrived };
            self.waiters.tell_owner(&grant.owner, told);
        } else if let Some(left) = message.strip_prefix("kept ").and_then(|left| left.parse().ok()) {
            self.waiters.look_after(Duration::from_millis(left));
        }
    }

    /// A connection is of no use any more, and perhaps its server has lost what it kept.
    fn give_up(&self, broken: &AtomicBool) {
        broken.store(true, Ordering::SeqCst);
        self.doubt();
    }

    /// What the server kept may be lost: it is shown that we live, looked at what we wait for, and all is renewed.
    pub(crate) fn doubt(&self) {
        self.life.forget();
        self.times.forget();
        self.waiters.look_by(tokio::time::Instant::now());
        self.doubts.send_replace(());
    }
}

/// Which server a connection leads to.
pub(crate) enum Target {
    Fixed(Address),
    /// Whichever is the primary.
    Primary(Sentinels),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(address) => write!(f, "{address}"),
            Self::Primary(sentinels) => write!(f, "{sentinels}"),
        }
    }
}

pub(crate) struct Connection {
    pub(crate) target: Target,
    client: Arc<Client>,
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
    /// Of the server's data: a replica that is made a primary begins a new one.
    history: String,
    id: i64,
}

pub(crate) struct Link {
    wire: Wire,
    /// What scripts drew over it.
    pub(crate) drawn: Drawn,
    number: Number,
    replicas: Option<Arc<Replicas>>,
    /// To those who tell of a fail-over.
    _sentinels: Vec<Wire>,
    broken: Arc<AtomicBool>,
    /// Requests in a row without an answer.
    unanswered: AtomicU32,
    /// What `INFO` said on connecting.
    info: String,
}

/// What a request was answered, when it was sent, and over what.
pub(crate) struct Answer {
    pub(crate) sent: Instant,
    pub(crate) value: Value,
    pub(crate) link: Arc<Link>,
    /// It was sent twice, and what became of the first is not known.
    pub(crate) twice: bool,
}

/// May a request whose answer was lost with its connection be sent again over the next?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    Yes,
    No,
}

impl Connection {
    pub(crate) fn new(target: Target, client: Arc<Client>) -> Self {
        Self { target, client, state: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a script. A copy of it that was sent without an answer is noted in `unsure`.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        again: Again,
        unsure: &mut bool,
    ) -> Result<Answer, Failure> {
        let command = |verb: &str, script: &str| {
            let mut command = redis::cmd(verb);
            command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
            command
        };
        let sent = self.client.clock.now();
        match self.send(&command("EVALSHA", &script.hash), again, unsure).await {
            // The server was restarted, or is asked for the first time. It counts from the first question.
            Err(error) if error.kind() == NO_SCRIPT => {
                let answer = self.send(&command("EVAL", script.source), again, unsure).await;
                answer.map(|answer| Answer { sent, ..answer })
            }
            answer => answer,
        }
    }

    /// Sends a command that changes nothing.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value> {
        let answer = self.send(command, Again::Yes, &mut false).await.map_err(Failure::into_error)?;
        Ok(answer.value)
    }

    /// What `INFO` said when the connection was made, which it now is.
    pub(crate) async fn info(&self) -> Result<String> {
        Ok(self.link().await?.info.clone())
    }

    /// The connection, if there is one.
    pub(crate) fn ready(&self) -> Option<Arc<Link>> {
        self.present().ok().flatten()
    }

    async fn send(&self, command: &Cmd, again: Again, unsure: &mut bool) -> Result<Answer, Failure> {
        let (mut tried, mut lost) = (false, None);
        loop {
            let link = match (self.link().await, lost.take()) {
                (Ok(link), _) => link,
                (Err(error), None) => return Err(Failure::NoLink(error)),
                // It was sent, and may have been done.
                (Err(_), Some(first)) => return Err(Failure::Request(first)),
            };
            let sent = self.client.clock.now();
            match link.ask(command).await {
                Ok(value) => return Ok(Answer { sent, value, link, twice: *unsure }),
                Err(error) if again == Again::Yes && link.is_broken() && !tried => {
                    *unsure |= !is_answered(&error);
                    (tried, lost) = (true, Some(error));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The connection; a new one if there is none, or it is of no use.
    async fn link(&self) -> Result<Arc<Link>> {
        if let Some(link) = self.present()? {
            return Ok(link);
        }
        // Seldom done, and large: every request would carry the room for it.
        Box::pin(self.bounded(async {
            let _turn = self.connecting.lock().await;
            if let Some(link) = self.present()? {
                return Ok(link);
            }
            let link = Arc::new(self.connect().await?);
            let mut state = self.state();
            if state.closed {
                return Err(Error::closed());
            }
            // What an earlier server has not closed is closed if that one is the primary again.
            state.former.retain(|former| former.run != link.number.run);
            state.link = Some(Arc::clone(&link));
            Ok(link)
        }))
        .await
    }

    fn present(&self) -> Result<Option<Arc<Link>>> {
        let mut state = self.state();
        if state.closed {
            return Err(Error::closed());
        }
        if let Some(link) = state.link.take_if(|link| link.broken.load(Ordering::SeqCst)) {
            state.former.push(link.number.clone());
        }
        Ok(state.link.clone())
    }

    async fn connect(&self) -> Result<Link> {
        let client = &*self.client;
        let broken = Arc::new(AtomicBool::new(false));
        let (address, sentinels) = match &self.target {
            Target::Fixed(address) => (address.clone(), Vec::new()),
            Target::Primary(sentinels) => {
                let (told, broken) = (Arc::clone(&self.client), Arc::clone(&broken));
                sentinels.primary(&client.dialer, move || told.give_up(&broken)).await?
            }
        };
        let config = AsyncConnectionConfig::new().set_push_sender(self.listener(&broken));
        let wire = client.dialer.dial(&address, &client.login, config).await?;
        let former = self.state().former.clone();
        let (number, info) = self.set_up(&address, &wire, &former).await?;
        if matches!(self.target, Target::Primary(_)) && field(&info, "role") != Some("master") {
            let message = format!("the server {address} is not the primary yet, or not any more; try again");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let replicas = match client.replicas {
            0 => None,
            wanted => Some(Arc::new(self.second(&address, wanted, &number).await?)),
        };
        if former.last().is_some_and(|former| (&former.run, &former.history) != (&number.run, &number.history)) {
            tracing::warn!(server = %address, "the server was restarted or is another one; what it did not save is lost");
            client.doubts.send_replace(());
        }
        Ok(Link {
            wire,
            drawn: Drawn::default(),
            number,
            replicas,
            _sentinels: sentinels,
            broken,
            unanswered: AtomicU32::new(0),
            info,
        })
    }

    /// What each new connection needs before the first request.
    async fn set_up(&self, address: &Address, wire: &Wire, former: &[Number]) -> Result<(Number, String)> {
        let failed = |error| of_connecting(address, error);
        let mut connection = wire.connection.clone();
        let told = redis::pipe()
            .cmd("CLIENT")
            .arg("SETNAME")
            .arg(format!("oarlock:{}", self.client.id))
            .ignore()
            .cmd("CLIENT")
            .arg("ID")
            .cmd("INFO")
            .query_async(&mut connection)
            .await;
        let (id, info): (i64, String) = told.map_err(failed)?;
        let value = |name| field(&info, name).unwrap_or_default().to_owned();
        let number = Number { run: value("run_id"), history: value("master_replid"), id };
        // With a number that nobody has, so that a missing right shows now and not in trouble.
        let same_run = former.iter().filter(|former| former.run == number.run).map(|number| number.id);
        for id in same_run.chain([i64::MAX]) {
            let closed = redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id).exec_async(&mut connection).await;
            closed.map_err(|error| of_closing(address, error))?;
        }
        connection.subscribe(self.client.own_key(None)).await.map_err(failed)?;
        Ok((number, info))
    }

    /// The connection over which replicas are waited for: it must lead to the same server.
    async fn second(&self, address: &Address, wanted: usize, first: &Number) -> Result<Replicas> {
        let Client { dialer, login, .. } = &*self.client;
        let wire = dialer.dial(address, login, AsyncConnectionConfig::new()).await?;
        let info = redis::cmd("INFO").arg("server").query_async(&mut wire.connection.clone()).await;
        let info: String = info.map_err(|error| of_connecting(address, error))?;
        if field(&info, "run_id") != Some(&first.run) {
            let message = format!("{address} leads to several servers; name one");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(Replicas::new(wire, wanted, dialer.timeout / 2))
    }

    /// Hears of grants, and of the end of the connection.
    fn listener(&self, broken: &Arc<AtomicBool>) -> impl Fn(PushInfo) -> Result<(), redis::aio::SendError> + use<> {
        let (client, broken) = (Arc::clone(&self.client), Arc::clone(broken));
        move |push| {
            match push.kind {
                PushKind::Message => {
                    if let Some(Value::BulkString(message)) = push.data.last() {
                        client.told(&String::from_utf8_lossy(message));
                    }
                }
                // Whether we asked for that or not, nobody could reach us any more; and perhaps the server was
                // restarted.
                PushKind::Disconnection | PushKind::Unsubscribe => client.give_up(&broken),
                _ => {}
            }
            Ok(())
        }
    }

    async fn bounded<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout(self.client.dialer.timeout * 2, future).await.unwrap_or_else(|_| {
            let message = format!("no connection to the server {} in time; look whether it runs", self.target);
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
    /// Ends when as many replicas as are asked for have what was answered over this connection. The key is one that may
    /// be written.
    ///
    /// # Errors
    /// As [`Replicas::confirm`].
    pub(crate) async fn confirm(&self, key: String) -> Result<()> {
        let Some(replicas) = &self.replicas else { return Ok(()) };
        let confirmed = replicas.confirm(key).await;
        if confirmed.as_ref().is_err_and(|error| !error.is_refused()) {
            self.broken.store(true, Ordering::SeqCst);
        }
        confirmed
    }

    async fn ask(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        let answer = self.wire.connection.clone().send_packed_command(cmd).await.and_then(Value::extract_error);
        self.judge(answer.as_ref().err());
        answer
    }

    /// Sends several commands in one flight, whose answers may be errors.
    pub(crate) async fn ask_all(&self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        let answers = self.wire.connection.clone().send_packed_commands(commands, 0, commands.len()).await;
        self.judge(answers.as_ref().err());
        answers
    }

    fn judge(&self, error: Option<&RedisError>) {
        match error.map_or(Blame::Fine, blame) {
            Blame::Fine => self.unanswered.store(0, Ordering::SeqCst),
            Blame::Slow if self.unanswered.fetch_add(1, Ordering::SeqCst) + 1 < PATIENCE => {}
            Blame::Slow | Blame::Broken => self.broken.store(true, Ordering::SeqCst),
        }
    }

    /// Is it of no use any more?
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }
}

/// Why a request has no answer.
pub(crate) enum Failure {
    /// It was not sent.
    NoLink(Error),
    /// Another node of the cluster has the slot.
    Moved(RedisError),
    Request(RedisError),
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        if error.kind() == MOVED { Self::Moved(error) } else { Self::Request(error) }
    }
}

impl Failure {
    fn kind(&self) -> redis::ErrorKind {
        match self {
            Self::NoLink(_) => redis::ErrorKind::Io,
            Self::Moved(error) | Self::Request(error) => error.kind(),
        }
    }

    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::NoLink(error) => error,
            Self::Moved(error) | Self::Request(error) => of_request(error),
        }
    }
}

/// A line of `INFO`.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
