//! How a lock is taken, at once or in line.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use lock_core::{Claim, Error, Grant, InLine, Instant, Mode, News, Result, StoreToken};

use super::batch::{Batches, Sent, UnderWay};
use super::error::Postgres;
use super::modes::kind;
use super::statements::{Statements, the_row};
use super::waiters::{TURNS, keep_watching};
use super::{PostgresLock, arguments};
use crate::keys::{duration, micros};
use crate::server::{Again, Read, Server, given_up};

/// Requests for locks that nobody may have.
pub(super) type Takes = Batches<Take, Result<Told>>;

/// One of them.
pub(super) struct Take {
    key: String,
    owner: String,
    lease: i64,
}

impl Take {
    pub(super) fn new(key: String, claim: &Claim) -> Self {
        Self { key, owner: claim.owner.as_str().to_owned(), lease: micros(claim.lease) }
    }
}

/// What it was answered.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) sent: Instant,
    /// The token, if it was granted.
    pub(super) token: Option<i64>,
    /// It may land once more.
    pub(super) twice: bool,
}

/// What the request was answered that was sent with others.
enum Taken {
    Granted(Grant),
    /// It was not sent, or found the lock neither free nor held.
    Alone(Option<UnderWay>),
}

/// What an attempt was answered.
pub(super) enum Acquired {
    Granted(Grant),
    /// The name is in use as this.
    Another(Mode),
    /// Held by another for so many microseconds more, with this token.
    Busy {
        left_us: i64,
        token: i64,
        in_line: InLine,
    },
}

impl PostgresLock {
    pub(super) async fn take(&self, claim: &Claim) -> Result<Option<Grant>> {
        let acquired = self.acquire(claim, &self.prefix.key(&claim.name), None).await?;
        if let Acquired::Granted(grant) = acquired {
            return Ok(Some(grant));
        }
        if self.unsettled.contains(&claim.owner) {
            // Nobody undoes what was denied, and its first copy may land yet.
            self.give_back(claim).await.map_err(Error::after_something_was_done)?;
        }
        if let Acquired::Another(found) = acquired {
            claim.mode.check_kind(found)?;
        }
        Ok(None)
    }

    pub(super) async fn take_in_turn(&self, claim: &Claim) -> Result<Grant> {
        let key = self.prefix.key(&claim.name);
        // Before the request, so that no notification comes too early.
        let mut waiting = self.waiters.register(claim, key.clone());
        let mut may_wait = false;
        loop {
            let client = self.known_as();
            let told = client.map(|client| (client, waiting.number()));
            let acquired = self.acquire(claim, &key, told).await;
            let acquired = acquired.map_err(|error| if may_wait { error.after_something_was_done() } else { error });
            let (left_us, held, in_line) = match acquired? {
                Acquired::Granted(grant) => return Ok(grant),
                Acquired::Busy { left_us, token, in_line } => (left_us, token, in_line),
                Acquired::Another(found) => {
                    if may_wait || self.unsettled.contains(&claim.owner) {
                        self.give_back(claim).await.map_err(Error::after_something_was_done)?;
                    }
                    claim.mode.check_kind(found)?;
                    continue;
                }
            };
            may_wait = true;
            self.waiters.ensure_task(TURNS.0, || {
                self.be_known_as(0);
                keep_watching(self.clone())
            });
            if client.is_some() {
                waiting.entered(Some(duration(left_us)));
            }
            match waiting.news_after(held as u64).await {
                // Which permits, the notification does not say.
                News::Granted { .. } if claim.mode.permits().is_some() => {}
                News::Granted { token, at_us, arrived, .. } => {
                    let valid_until = waiting.valid_until(&in_line, at_us, arrived, duration(micros(claim.lease)));
                    return Ok(Grant::new(StoreToken::new(token)?, valid_until));
                }
                News::Failed(error) => return Err(error),
                _ => {}
            }
        }
    }

    async fn acquire(&self, claim: &Claim, key: &str, place: Option<(i64, u64)>) -> Result<Acquired> {
        self.sweep_if_due();
        if claim.mode != Mode::Exclusive {
            return self.acquire_beside(claim, key, place).await;
        }
        let lease_us = micros(claim.lease);
        let (client, place) = (place.map(|place| place.0), place.map_or(0, |place| place.1 as i64));
        let owner = claim.owner.as_str();
        let mut _alone = None;
        let (statement, arguments) = match &claim.value {
            Some(value) => {
                (&self.statements.acquire_showing, arguments!(key, owner, lease_us, client, place, value.as_str()))
            }
            None => {
                _alone = match self.take_with_others(claim, key, lease_us).await? {
                    Taken::Granted(grant) => return Ok(Acquired::Granted(grant)),
                    Taken::Alone(alone) => alone,
                };
                (&self.statements.acquire, arguments!(key, owner, lease_us, client, place))
            }
        };
        let on_its_way = self.unsettled.send(&claim.owner);
        let answer = on_its_way.answered(self.server.run(statement, arguments, Again::Yes).await);
        // What was sent with others may land yet, or have been done.
        let may_be = |error: Error| match self.unsettled.contains(&claim.owner) {
            true => error.after_something_was_done(),
            false => error,
        };
        let answer = answer.map_err(may_be)?;
        let [token, left_us, now_us, held]: [Option<i64>; 4] = the_row(&answer)?.read(0)?;
        match (token, left_us) {
            (Some(token), Some(left_us)) => Ok(Acquired::Granted(Grant::new(
                StoreToken::new(token as u64)?,
                answer.sent + duration(left_us.min(lease_us)),
            ))),
            (None, Some(left_us)) => Ok(Acquired::Busy {
                left_us,
                token: held.unwrap_or_default(),
                in_line: InLine { sent: answer.sent, store_us: now_us.unwrap_or_default() },
            }),
            (None, None) if held.is_some() => Ok(Acquired::Another(kind(held.unwrap_or_default()))),
            _ => Err(given_up()),
        }
    }

    /// Takes the lock with other requests of this client, if there are many of them and if it is free.
    async fn take_with_others(&self, claim: &Claim, key: &str, lease: i64) -> Result<Taken> {
        let on_its_way = self.unsettled.send(&claim.owner);
        let request = || Take::new(key.to_owned(), claim);
        match self.takes.send(request).await {
            Sent::Alone(alone) => {
                on_its_way.settle();
                Ok(Taken::Alone(Some(alone)))
            }
            Sent::WithOthers(Ok(Told { sent, token, twice })) => {
                if !twice {
                    on_its_way.settle();
                }
                let Some(token) = token else { return Ok(Taken::Alone(None)) };
                Ok(Taken::Granted(Grant::new(StoreToken::new(token as u64)?, sent + duration(lease))))
            }
            Sent::WithOthers(Err(error)) => {
                if error.is_refused() {
                    on_its_way.settle();
                }
                // What is wrong with one of them is not the others' fault.
                if is_said_by_server(&error) { Ok(Taken::Alone(None)) } else { Err(error) }
            }
            // Asked again, it finds what it was given.
            Sent::Unanswered => Ok(Taken::Alone(None)),
        }
    }
}

/// Did the server answer, and with an error?
pub(super) fn is_said_by_server(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    matches!(source, Some(sqlx::Error::Database(_)))
}

/// What sends several such requests.
pub(super) fn takes(server: &Arc<Server<Postgres>>, statements: &Arc<Statements>, most: usize) -> Arc<Takes> {
    let (server, statements) = (Arc::clone(server), Arc::clone(statements));
    let patience = server.timeout / 20;
    Batches::new(
        most,
        patience,
        Box::new(move |takes| take_all(Arc::clone(&server), Arc::clone(&statements), takes).boxed()),
    )
}

/// Sends them as one call.
pub(super) async fn take_all(
    server: Arc<Server<Postgres>>,
    statements: Arc<Statements>,
    takes: Vec<Take>,
) -> Vec<Result<Told>> {
    let keys: Vec<_> = takes.iter().map(|take| take.key.as_str()).collect();
    let owners: Vec<_> = takes.iter().map(|take| take.owner.as_str()).collect();
    let leases: Vec<_> = takes.iter().map(|take| take.lease).collect();
    let asked = async {
        let answer = server.run(&statements.acquire_free, arguments!(keys, owners, leases), Again::Yes).await?;
        let tokens = answer.rows.iter().map(|row| Ok((row.read("who")?, row.read("given")?)));
        let tokens: HashMap<String, i64> = tokens.collect::<Result<_>>()?;
        Ok((answer.sent, answer.twice, tokens))
    };
    match asked.await {
        Ok((sent, twice, tokens)) => {
            let told = |take: &Take| Ok(Told { sent, token: tokens.get(&take.owner).copied(), twice });
            takes.iter().map(told).collect()
        }
        Err(error) => vec![Err(error); takes.len()],
    }
}
