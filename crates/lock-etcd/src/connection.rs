//! The connection: to one member at a time, shared by all requests, each bounded in time. When a member does not
//! answer, the next one is asked.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error as EtcdError, KvClient, LeaseClient, MaintenanceClient, WatchClient};
use lock_core::{Clock, Error};
use tokio::sync::watch;

use crate::error::{Failure, Verdict, in_doubt, judge, no_answer, not_done};

/// How often to ask again while there is no leader.
const ELECTION: Duration = Duration::from_millis(50);

pub(crate) struct Connection {
    /// In the order in which they are tried.
    pub(crate) endpoints: Vec<String>,
    options: ConnectOptions,
    /// The bound of each request.
    pub(crate) timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Held by who connects.
    connecting: tokio::sync::Mutex<()>,
    /// The number of the present link: who has a stream over another one has to open it anew.
    present: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    /// Which endpoint is asked.
    turn: usize,
    closed: bool,
}

/// A connection to one member.
pub(crate) struct Link {
    pub(crate) number: u64,
    /// Which of the endpoints.
    pub(crate) endpoint: String,
    pub(crate) kv: KvClient,
    pub(crate) lease: LeaseClient,
    pub(crate) watch: WatchClient,
    pub(crate) maintenance: MaintenanceClient,
    /// Keep-alives after the first of a stream are not answered soon: etcd's grpc-proxy is between, which answers them
    /// once in a third of the lease.
    pub(crate) proxied: AtomicBool,
}

/// What a request was answered.
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    /// An earlier copy, sent to another member, was not answered: it may land yet, at any time.
    pub(crate) unsure: bool,
}

/// May a request whose answer was lost be sent again?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    Yes,
    No,
}

/// The tries of one request: one with each member, and for a while more when one says that an election is on its way.
pub(crate) struct Tries {
    again: Again,
    endpoints: usize,
    left: usize,
    late: tokio::time::Instant,
    /// An earlier one may have been done.
    unsure: bool,
}

impl Tries {
    /// After this verdict: may another one follow? If not, it answers what to say.
    pub(crate) async fn after(&mut self, verdict: Verdict) -> Result<(), Failure> {
        self.left -= 1;
        let (error, elects) = match verdict {
            Verdict::Answered(Failure::LeaseExists { .. }) => return Err(Failure::LeaseExists { ours: self.unsure }),
            Verdict::Answered(failure) if !self.unsure => return Err(failure),
            Verdict::Answered(failure) => return Err(Failure::Other(in_doubt(failure.into()))),
            Verdict::NotDone(error) => (error, false),
            Verdict::NoLeader(error) => (error, true),
            Verdict::Unknown(error) => {
                self.unsure = true;
                (error, false)
            }
        };
        if elects {
            // The others are asked once more when it is over, also those that did not answer.
            self.left = self.endpoints;
        }
        if self.left == 0 || tokio::time::Instant::now() >= self.late || (self.unsure && self.again == Again::No) {
            return Err(Failure::Other(if self.unsure { in_doubt(error) } else { error }));
        }
        if elects {
            tokio::time::sleep(ELECTION).await;
        }
        Ok(())
    }
}

impl Connection {
    pub(crate) fn new(
        endpoints: Vec<String>,
        turn: usize,
        options: ConnectOptions,
        timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (state, connecting) = (Mutex::new(State { turn, ..State::default() }), tokio::sync::Mutex::default());
        Self { endpoints, options, timeout, clock, state, connecting, present: watch::Sender::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, if need be to one member after the other.
    pub(crate) async fn ask<T, F, Asking>(&self, again: Again, request: F) -> Result<Answer<T>, Failure>
    where
        F: Fn(Arc<Link>) -> Asking,
        Asking: Future<Output = Result<T, EtcdError>>,
    {
        let mut tries = self.tries(again);
        loop {
            match self.ask_once(&request).await {
                Ok(value) => return Ok(Answer { value, unsure: tries.unsure }),
                Err(verdict) => tries.after(verdict).await?,
            }
        }
    }

    pub(crate) fn tries(&self, again: Again) -> Tries {
        let (left, late) = (self.endpoints.len().max(2), tokio::time::Instant::now() + self.timeout * 2);
        Tries { again, endpoints: left, left, late, unsure: false }
    }

    async fn ask_once<T, F, Asking>(&self, request: &F) -> Result<T, Verdict>
    where
        F: Fn(Arc<Link>) -> Asking,
        Asking: Future<Output = Result<T, EtcdError>>,
    {
        let link = self.link().await?;
        self.bounded(&link, request(Arc::clone(&link))).await
    }

    /// Waits no longer than a request may take, and leaves a member that does not answer.
    pub(crate) async fn bounded<T>(
        &self,
        link: &Link,
        asking: impl Future<Output = Result<T, EtcdError>>,
    ) -> Result<T, Verdict> {
        let verdict = match tokio::time::timeout(self.timeout, asking).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => judge(&link.endpoint, error),
            Err(_) => Verdict::Unknown(no_answer(&link.endpoint)),
        };
        if !matches!(verdict, Verdict::Answered(_)) {
            self.leave(link.number);
        }
        Err(verdict)
    }

    /// The connection; a new one if there is none.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, Verdict> {
        if let Some(link) = self.present()? {
            return Ok(link);
        }
        let _turn = self.connecting.lock().await;
        if let Some(link) = self.present()? {
            return Ok(link);
        }
        let turn = {
            let mut state = self.state();
            let turn = state.turn;
            // Unless it turns out well, the next one is next.
            state.turn = (turn + 1) % self.endpoints.len();
            turn
        };
        let endpoint = self.endpoints[turn].clone();
        let client = self.connect(&endpoint).await?;
        let mut state = self.state();
        if state.closed {
            return Err(Verdict::Answered(Failure::Other(Error::closed())));
        }
        state.turn = turn;
        let number = *self.present.borrow() + 1;
        let link = Arc::new(Link {
            number,
            endpoint,
            kv: client.kv_client(),
            lease: client.lease_client(),
            watch: client.watch_client(),
            maintenance: client.maintenance_client(),
            proxied: AtomicBool::new(false),
        });
        state.link = Some(Arc::clone(&link));
        self.present.send_replace(number);
        Ok(link)
    }

    fn present(&self) -> Result<Option<Arc<Link>>, Verdict> {
        let state = self.state();
        if state.closed { Err(Verdict::Answered(Failure::Other(Error::closed()))) } else { Ok(state.link.clone()) }
    }

    /// The link with this number is of no use: the next request goes to the next member.
    pub(crate) fn leave(&self, number: u64) {
        let mut state = self.state();
        if state.link.take_if(|link| link.number == number).is_some() {
            state.turn = (state.turn + 1) % self.endpoints.len();
            drop(state);
            self.present.send_replace(number);
        }
    }

    /// Ends when another link is there, or will be, than the one with this number.
    pub(crate) async fn left(&self, number: u64) {
        let mut present = self.present.subscribe();
        loop {
            let gone = self.state().link.as_ref().is_none_or(|link| link.number != number);
            if gone || present.changed().await.is_err() {
                return;
            }
        }
    }

    /// A connection to one endpoint that is used for nothing else.
    pub(crate) async fn only(&self, endpoint: &str) -> Result<Client, Error> {
        self.connect(endpoint).await.map_err(Error::from)
    }

    /// With a user, this logs in; without one it does nothing yet. Nothing else was done if it fails.
    async fn connect(&self, endpoint: &str) -> Result<Client, Verdict> {
        let connecting = Client::connect([endpoint], Some(self.options.clone()));
        let verdict = match tokio::time::timeout(self.timeout, connecting).await {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => judge(endpoint, error),
            Err(_) => Verdict::Unknown(no_answer(endpoint)),
        };
        Err(match verdict {
            Verdict::Unknown(error) => Verdict::NotDone(not_done(error)),
            other => other,
        })
    }

    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.link = None;
        drop(state);
        self.present.send_modify(|_| {});
    }
}
