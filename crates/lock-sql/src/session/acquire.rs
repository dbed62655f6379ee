//! How a lock is taken in a session, and how a session that waits is watched.

use std::pin::pin;
use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Failures, Grant, Renewal, Result};
use tokio::time::timeout;

use super::held::renew_one;
use super::{AnsweredBy, BySessions, Does, Failed, SessionOf, Taken};
use crate::server::{Again, Statement};

/// Who waits for longer than this is shown to others.
const MOMENT: Duration = Duration::from_millis(100);

/// How often a waiter looks whether its session is still in line.
const TURN: Duration = Duration::from_secs(5);

/// After a longer wait, what two clocks drift apart in it is no part of the lease: another request confirms the grant.
pub(crate) const DRIFT: Duration = Duration::from_secs(5);

/// How often a waiter looks whether a hold has ended that has no session any more.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// A new session may be idle for so long at least, until a lock is asked for: it must live until then on a busy
/// machine.
const AT_FIRST: Duration = Duration::from_secs(10);

pub(crate) async fn take<L: BySessions>(lock: &L, claim: &Claim, waits: bool) -> Result<Option<Grant>> {
    if let Some(grant) = take_again(lock, claim).await? {
        return Ok(Some(grant));
    }
    lock.sweep_if_due();
    let (server, mut retries) = (lock.server(), true);
    loop {
        let began = server.clock.now();
        let (mut session, is_new) = session(lock, claim, retries).await?;
        let place = lock.claims().arm(&claim.owner, session.identity);
        // The lease counts from when it was asked for, also where a connection had to be made first.
        let sent = is_new.then_some(began);
        let Failed { error, broken } = match lock.request(&mut session, claim, sent, waits).await {
            Ok(Taken::Granted { grant, key }) => {
                let _ = place.granted.set((grant.token, key));
                place.lasts(grant.valid_until);
                *place.session.lock().await = Some(session);
                return Ok(Some(grant));
            }
            Ok(Taken::Busy) => {
                lock.claims().settle(&claim.owner);
                lock.sessions().give_back(session);
                return Ok(None);
            }
            Err(failed) => failed,
        };
        drop(session);
        // The server may have ended an idle session long ago.
        let soon = server.clock.now().saturating_duration_since(began) < server.timeout;
        let again = broken && soon && !is_new && std::mem::take(&mut retries);
        if !again && !error.is_refused() {
            return Err(error);
        }
        // Nobody undoes what is refused, and the session may have the lock.
        lock.undo(claim, Some(place.identity), Again::Yes)
            .await
            .map_err(|_| error.clone().after_something_was_done())?;
        if !again {
            return Err(error);
        }
        lock.sessions().forget_idle();
    }
}

/// The grant of an owner that holds the lock already. What an earlier request of its left is undone.
async fn take_again<L: BySessions>(lock: &L, claim: &Claim) -> Result<Option<Grant>> {
    let Some(place) = lock.claims().get(&claim.owner) else { return Ok(None) };
    let Some(&(token, _)) = place.granted.get() else {
        let undone = lock.undo(claim, Some(place.identity), Again::Yes).await;
        return undone.map(|_| None).map_err(Error::after_something_was_done);
    };
    Ok(match renew_one(lock, claim).await? {
        Renewal::Held { valid_until } => Some(Grant::new(token, valid_until)),
        _ => None,
    })
}

/// A session in which nothing was asked yet, and whether it is new.
async fn session<L: BySessions>(lock: &L, claim: &Claim, may_be_used: bool) -> Result<(SessionOf<L>, bool)> {
    let opening = async {
        let idle = lock.sessions().lend().await?.filter(|_| may_be_used);
        match idle {
            Some(session) => Ok((session, false)),
            None => Ok((lock.open(claim.lease.max(AT_FIRST)).await?, true)),
        }
    };
    timeout(lock.server().timeout, opening).await.unwrap_or_else(|_| Err(lock.server().too_slow(false)))
}

/// Waits for the answer, as long as the server says that the session is in line. `seen`: it said so before.
pub(crate) async fn wait<L: BySessions>(
    lock: &L,
    session: &mut SessionOf<L>,
    (take, text): (&Statement, String),
    mark: &str,
    claim: &Claim,
    seen: &mut bool,
) -> Result<AnsweredBy<L>, Failed> {
    let (identity, server, since) = (session.identity, lock.server(), lock.server().clock.now());
    let failed = |error| Failed::of::<L::Dialect>(error, &server.shown);
    // By then an answer that was sent is here, unless the network swallowed it.
    let answer_comes = server.timeout / 4;
    let sent = tokio::time::Instant::now();
    let mut asking = pin!(session.ask(take, text));
    let (mut pause, mut silent, mut failures) = (MOMENT, false, Failures::default());
    let mut waited = false;
    loop {
        if let Ok(answer) = timeout(pause, &mut asking).await {
            return answer.map_err(failed);
        }
        let mut looking = pin!(lock.look(claim, identity, mark, since));
        let looked = tokio::select! {
            answer = &mut asking => {
                // Given up now, it would take its connection along; and it may show that this waits.
                let looked = timeout(LOOK, looking).await;
                *seen |= !matches!(looked, Ok(Ok(Some(Does::Other | Does::Nothing) | None)));
                return answer.map_err(failed);
            }
            looked = &mut looking => looked,
        };
        let over = |what| Failed::from(Error::new(ErrorKind::Unknown, format!("the server {}: {what}", server.shown)));
        // Who waited and does something else now has answered.
        let looked =
            looked.map(|does| does.map(|does| if waited && does == Does::Other { Does::Nothing } else { does }));
        pause = match looked {
            Ok(None) => return Err(over("the session that waited has ended")),
            Ok(Some(Does::Other)) if sent.elapsed() >= server.timeout => {
                return Err(over("the session that was asked to wait does not begin"));
            }
            Ok(Some(Does::Nothing)) if silent => return Err(over("its answer does not come")),
            Ok(Some(does)) => {
                silent = does == Does::Nothing;
                waited |= does == Does::Wait;
                failures.forget();
                let was_seen = *seen;
                *seen |= does != Does::Other;
                match does {
                    Does::Wait if was_seen => TURN,
                    Does::Wait => server.timeout,
                    Does::Other | Does::Nothing => answer_comes,
                }
            }
            Err(error) if failures.count(&error) || !*seen => return Err(error.after_something_was_done().into()),
            Err(_) => Failures::PAUSE,
        };
    }
}
