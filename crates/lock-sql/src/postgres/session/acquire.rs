//! How a lock is taken, at once or in line.

use std::pin::pin;
use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Failures, Grant, Instant, Renewal, Result, StoreToken};
use sqlx::postgres::PgRow;
use tokio::time::timeout;

use super::connection::{Failed, Identity, Session, numbers};
use super::statements::literal;
use super::{PostgresSessionLock, arguments, idle_ms};
use crate::keys::{duration, micros};
use crate::server::{Again, Read, Statement};

/// Who waits for longer than this is shown to others.
const MOMENT: Duration = Duration::from_millis(10);

/// For so many milliseconds whoever need not be served in its turn stands in line before it comes again.
const PATIENCE: u32 = 10_000;

/// How often a waiter looks whether its session is still in line.
const TURN: Duration = Duration::from_secs(5);

/// How often a waiter looks whether a hold has ended that has no session any more.
const LOOK: Duration = Duration::from_millis(100);

/// A new session may be idle for so long at least, until a lock is asked for: it must live until then on a busy machine.
const AT_FIRST: Duration = Duration::from_secs(10);

/// After a longer wait, what two clocks drift apart in it is no part of the lease: another request confirms the grant.
const DRIFT: Duration = Duration::from_secs(5);

/// What a session does that was asked to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Something else: it has not come to that yet, or it never will.
    Other,
    Wait,
    /// Nothing more: it has answered.
    Nothing,
}

/// What a request to take a lock was answered.
enum Taken {
    Granted { grant: Grant, key: i64 },
    Busy,
}

impl PostgresSessionLock {
    pub(super) async fn take(&self, claim: &Claim, waits: bool) -> Result<Option<Grant>> {
        if let Some(grant) = self.take_again(claim).await? {
            return Ok(Some(grant));
        }
        self.sweep_if_due();
        let mut retries = true;
        loop {
            let began = self.server.clock.now();
            let (mut session, is_new) = self.session(claim, retries).await?;
            let place = self.claims.arm(&claim.owner, session.identity);
            // The lease counts from when it was asked for, also where a connection had to be made first.
            let sent = is_new.then_some(began);
            let Failed { error, broken } = match self.request(&mut session, claim, sent, waits).await {
                Ok(Taken::Granted { grant, key }) => {
                    let _ = place.granted.set((grant.token, key));
                    *place.session.lock().await = Some(session);
                    return Ok(Some(grant));
                }
                Ok(Taken::Busy) => {
                    self.claims.settle(&claim.owner);
                    self.sessions.give_back(session);
                    return Ok(None);
                }
                Err(failed) => failed,
            };
            drop(session);
            // The server may have ended an idle session long ago.
            let soon = self.server.clock.now().saturating_duration_since(began) < self.server.timeout;
            let again = broken && soon && !is_new && std::mem::take(&mut retries);
            if !again && !error.is_refused() {
                return Err(error);
            }
            // Nobody undoes what is refused, and the session may have the lock.
            self.undo(claim, Some(place.identity), Again::Yes)
                .await
                .map_err(|_| error.clone().after_something_was_done())?;
            if !again {
                return Err(error);
            }
            self.sessions.forget_idle();
        }
    }

    /// The grant of an owner that holds the lock already. What an earlier request of its left is undone.
    async fn take_again(&self, claim: &Claim) -> Result<Option<Grant>> {
        let Some(place) = self.claims.get(&claim.owner) else { return Ok(None) };
        let Some(&(token, _)) = place.granted.get() else {
            let undone = self.undo(claim, Some(place.identity), Again::Yes).await;
            return undone.map(|_| None).map_err(Error::after_something_was_done);
        };
        Ok(match self.renew_one(claim).await? {
            Renewal::Held { valid_until } => Some(Grant::new(token, valid_until)),
            _ => None,
        })
    }

    /// A session in which nothing was asked yet, and whether it is new.
    async fn session(&self, claim: &Claim, may_be_used: bool) -> Result<(Session, bool)> {
        let opening = async {
            let idle = self.sessions.lend().await?.filter(|_| may_be_used);
            if let Some(session) = idle {
                return Ok((session, false));
            }
            let (idle_ms, life) = (idle_ms(claim.lease.max(AT_FIRST)), self.sessions.lives.here());
            let (open, shown) = (&self.statements.open, &self.server.shown);
            Ok((Session::open(&self.connecting, life, idle_ms, open, shown).await?, true))
        };
        timeout(self.server.timeout, opening).await.unwrap_or_else(|_| Err(self.server.too_slow(false)))
    }

    async fn request(
        &self,
        session: &mut Session,
        claim: &Claim,
        mut began: Option<Instant>,
        waits: bool,
    ) -> Result<Taken, Failed> {
        let (name, owner) = (literal(&self.prefix.key(&claim.name)), literal(claim.owner.as_str()));
        let lease_us = micros(claim.lease);
        let (take, shown) = match &claim.value {
            Some(value) => (&self.statements.take_showing, format!(", {}", literal(value.as_str()))),
            None => (&self.statements.take, String::new()),
        };
        let Identity { pid, began_us } = session.identity;
        let (mut how, patience) = (i32::from(waits), if claim.fair { 0 } else { PATIENCE });
        let mut seen = false;
        loop {
            let set = self.set_idle(session, claim.lease);
            let mark = session.mark();
            let text = format!("{mark}{set}{take}{name}, {owner}, {lease_us}, {began_us}, {how}, {patience}{shown})");
            let sent = began.take().unwrap_or_else(|| self.server.clock.now());
            let rows = match how {
                1 => self.wait(session, (take, text), &mark, claim, &mut seen).await?,
                _ => self.ask(session, take, text).await?,
            };
            let heard = self.server.clock.now();
            session.idle_ms = idle_ms(claim.lease);
            let [token, time_us, answered_by, key] = numbers(&rows)?;
            if answered_by != Some(pid.into()) {
                let message = "something between us and the server lends connections; go past it, or use mode=row";
                return Err(Error::new(ErrorKind::Unknown, message).into());
            }
            match (token, time_us) {
                (Some(token), Some(after_us)) => {
                    let (token, key) = (StoreToken::new(token as u64)?, key.unwrap_or_default());
                    let lease = duration(lease_us);
                    let after = duration(after_us);
                    // By the server's clock it was granted so long after it began, and it began after it was sent.
                    let valid_until = match after > DRIFT {
                        true => self.confirm(session, claim, key).await?,
                        false => (sent + after).min(heard) + lease,
                    };
                    return Ok(Taken::Granted { grant: Grant::new(token, valid_until), key });
                }
                (None, Some(..0)) => {}
                (None, Some(left_us)) => {
                    how = 2;
                    tokio::time::sleep(duration(left_us).min(LOOK).min(claim.lease / 3)).await;
                }
                _ => return Ok(Taken::Busy),
            }
        }
    }

    async fn confirm(&self, session: &mut Session, claim: &Claim, key: i64) -> Result<Instant, Failed> {
        match self.renew_in(session, claim, key).await? {
            Some(valid_until) => Ok(valid_until),
            None => {
                Err(Error::new(ErrorKind::Unknown, "the lock was taken from its waiter as soon as it was granted")
                    .into())
            }
        }
    }

    /// Waits for the answer, as long as the server says that the session is in line. `seen`: it said so before.
    async fn wait(
        &self,
        session: &mut Session,
        (take, text): (&Statement, String),
        mark: &str,
        claim: &Claim,
        seen: &mut bool,
    ) -> Result<Vec<PgRow>, Failed> {
        let (identity, server) = (session.identity, &self.server.shown);
        // By then an answer that was sent is here, unless the network swallowed it.
        let answer_comes = self.server.timeout / 4;
        let sent = tokio::time::Instant::now();
        let mut asking = pin!(session.ask(take, text));
        let (mut pause, mut silent, mut failures) = (MOMENT, false, Failures::default());
        loop {
            if let Ok(answer) = timeout(pause, &mut asking).await {
                return answer.map_err(|error| Failed::of(error, server));
            }
            let mut looking = pin!(self.look(claim, identity, mark));
            let looked = tokio::select! {
                answer = &mut asking => {
                    // Given up now, it would take its connection along.
                    let _ = timeout(LOOK, looking).await;
                    return answer.map_err(|error| Failed::of(error, server));
                }
                looked = &mut looking => looked,
            };
            let over = |what| Failed::from(Error::new(ErrorKind::Unknown, format!("the server {server}: {what}")));
            pause = match looked {
                Ok(None) => return Err(over("the session that waited has ended")),
                Ok(Some(Does::Other)) if sent.elapsed() >= self.server.timeout => {
                    return Err(over("the session that was asked to wait does not begin"));
                }
                Ok(Some(Does::Nothing)) if silent => return Err(over("its answer does not come")),
                Ok(Some(does)) => {
                    silent = does == Does::Nothing;
                    failures.forget();
                    let was_seen = *seen;
                    *seen |= does != Does::Other;
                    match does {
                        Does::Wait if was_seen => TURN,
                        Does::Wait => self.server.timeout,
                        Does::Other | Does::Nothing => answer_comes,
                    }
                }
                Err(error) if failures.count(&error) || !*seen => return Err(error.after_something_was_done().into()),
                Err(_) => Failures::PAUSE,
            };
        }
    }

    /// Has it be seen for whom this session waits, and answers what it does; none: it has ended.
    async fn look(&self, claim: &Claim, session: Identity, mark: &str) -> Result<Option<Does>> {
        let name = self.prefix.key(&claim.name);
        let arguments = arguments!(session.pid, session.began_us, name, claim.owner.as_str(), mark);
        let answer = self.server.run(&self.statements.look, arguments, Again::Yes).await?;
        let Some(row) = answer.rows.first() else { return Ok(None) };
        let does: Option<String> = row.read("does")?;
        Ok(does.map(|does| match (does.as_str(), row.read("begun")) {
            ("idle", Ok(Some(false))) => Does::Other,
            ("idle", _) => Does::Nothing,
            _ => Does::Wait,
        }))
    }

    /// Asks a session, in bounded time.
    pub(super) async fn ask(
        &self,
        session: &mut Session,
        shown: &Statement,
        text: String,
    ) -> Result<Vec<PgRow>, Failed> {
        match timeout(self.server.timeout, session.ask(shown, text)).await {
            Ok(answer) => answer.map_err(|error| Failed::of(error, &self.server.shown)),
            Err(_) => Err(self.server.too_slow(true).into()),
        }
    }
}
