//! The task beside a session: it keeps the session proved, releases what is over, watches what is held, and
//! sees to it that a session that ended is ended on the servers too.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lock_core::{Notice, OwnerId};
use tokio::sync::broadcast;
use zookeeper_client::{Client, Error as ZkError, EventType, SessionState};

use crate::release;
use crate::session::{Life, Session, is_over};

/// How often the claims are looked at, while there are any; and how long a hold lasts, at least, that is watched.
const TICK: Duration = Duration::from_millis(100);

/// For how long a session stays that nobody uses.
const IDLE: Duration = Duration::from_secs(60);

/// The pause before the servers are asked again to end a session.
const PAUSE: Duration = Duration::from_millis(500);

/// What goes on meanwhile. The answer is the owner of a hold that was ended from outside.
type Errands = FuturesUnordered<BoxFuture<'static, Option<OwnerId>>>;

/// Runs until the session is over and nothing of it is left on the servers.
pub(crate) async fn supervise(session: Arc<Session>, notices: broadcast::Sender<Notice>) {
    serve(&session, &notices).await;
    session.close();
    let held: Vec<_> = {
        let state = session.state();
        // Under the lock, so that no claim comes in unseen.
        session.life.send_replace(Life::Over);
        state.claims.iter().filter(|(_, claimed)| claimed.hold.is_some()).map(|(owner, _)| owner.clone()).collect()
    };
    for owner in held {
        // It fails if nobody listens.
        let _ = notices.send(Notice::NotHeld(owner));
    }
    bury(&session).await;
    session.life.send_replace(Life::Buried);
}

async fn serve(session: &Arc<Session>, notices: &broadcast::Sender<Notice>) {
    let Ok(client) = session.client() else { return };
    let mut states = client.state_watcher();
    // Kept here, it would keep the session open.
    drop(client);
    let mut errands = Errands::new();
    let mut used = session.now();
    loop {
        let busy = chores(session, &mut errands);
        if busy {
            used = session.now();
        } else if session.now() >= used + IDLE {
            session.close();
        }
        let pause = if busy { TICK } else { IDLE.min(session.lasts / 6) };
        tokio::select! {
            state = states.changed() => match state {
                SessionState::Disconnected => at_risk(session, notices),
                state if is_over(state) => return,
                _ => {}
            },
            Some(ended) = errands.next() => if let Some(owner) = ended
                && session.forget(&owner).is_some_and(|claimed| !claimed.ending)
            {
                let _ = notices.send(Notice::NotHeld(owner));
            },
            () = session.wake.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn at_risk(session: &Session, notices: &broadcast::Sender<Notice>) {
    session.doubt();
    for (owner, _) in session.state().claims.iter().filter(|(_, claimed)| claimed.hold.is_some()) {
        let _ = notices.send(Notice::AtRisk(owner.clone()));
    }
}

/// Starts what is due. Answers whether there are any claims.
fn chores(session: &Arc<Session>, errands: &mut Errands) -> bool {
    let now = session.now();
    let due = session.proof().is_some_and(|proof| now >= proof + session.lasts / 6) && !session.is_proving();
    let mut state = session.state();
    if due {
        let session = Arc::clone(session);
        errands.push(Box::pin(async move {
            if let Err(error) = session.prove().await {
                tracing::debug!(%error, "the session could not be proved");
            }
            None
        }));
    }
    for (owner, claimed) in &mut state.claims {
        let (Some(hold), false) = (claimed.hold, claimed.ending) else { continue };
        if now >= hold.ends {
            claimed.ending = true;
            errands.push(Box::pin(end(Arc::clone(session), owner.clone(), hold.ends + session.lasts)));
        } else if let (false, Some(node)) = (claimed.watched, &claimed.node)
            && now >= hold.since + TICK
        {
            claimed.watched = true;
            errands.push(Box::pin(watch(Arc::clone(session), owner.clone(), node.clone())));
        }
    }
    state.idle = state.claims.is_empty();
    !state.idle
}

/// Releases a hold whose lease is over. The one way that is left if no server does it is to end the session.
async fn end(session: Arc<Session>, owner: OwnerId, late: lock_core::Instant) -> Option<OwnerId> {
    while session.life() == Life::Alive {
        match release::release(&session, &owner).await {
            Ok(_) => break,
            Err(error) if session.now() < late => {
                tracing::debug!(%error, "a lease is over, and its node could not be deleted yet");
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                tracing::warn!(%error, "a lease is over, and its node cannot be deleted: its session is closed");
                session.close();
                break;
            }
        }
    }
    None
}

/// Ends when the node of a hold is gone, or was written to, which nobody does who locks.
async fn watch(session: Arc<Session>, owner: OwnerId, node: String) -> Option<OwnerId> {
    let path = &node;
    let watching = |client: Arc<Client>| async move { client.check_and_watch_stat(path).await };
    let gone = match session.ask(watching).await {
        Ok((Some(_), watcher)) => watcher.changed().await.event_type != EventType::Session,
        Ok((None, _)) => true,
        Err(_) => {
            // Tried again at the next look.
            session.update(&owner, |claimed| claimed.watched = false);
            false
        }
    };
    gone.then_some(owner)
}

/// Has the servers end a session that ended for us: a request of it may still be on its way to them.
async fn bury(session: &Session) {
    while !session.state().claims.is_empty() && !session.abandoned.load(Ordering::Relaxed) {
        let settings = &session.settings;
        let Ok(connector) = settings.connector() else { return };
        let connector = connector.with_session(session.info.clone()).with_session_timeout(session.lasts);
        let connecting = settings.open(connector.with_fail_eagerly());
        match tokio::time::timeout(settings.timeout, connecting).await {
            Ok(Ok(client)) => {
                let mut states = client.state_watcher();
                drop(client);
                let closing = async { while !is_over(states.changed().await) {} };
                if tokio::time::timeout(settings.timeout, closing).await.is_ok() {
                    return;
                }
            }
            Ok(Err(ZkError::SessionExpired)) => return,
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ZookeeperLock;
    use lock_core::{Claim, DistributedLock, LockName, Unlocked};
    use test_servers::ZookeeperServers;

    /// 40. The servers end the holder's session, by another client that has its password: told at once, and the next
    /// acquisition has a session of its own.
    #[tokio::test]
    async fn a_session_that_the_servers_end_is_lost_at_once() {
        let servers = ZookeeperServers::start();
        let lock = ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap();
        let notices = lock.notices();
        let claim =
            |owner| Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), Duration::from_secs(300));
        let held = claim("holder");
        let before = lock.try_lock(&held).await.unwrap().unwrap();
        let session = lock.sessions.with_claim(&held.owner).pop().unwrap();
        // Both want the session: until it has it for long enough to close it.
        while session.life() == Life::Alive {
            let other = session.settings.connector().unwrap().with_session(session.info.clone());
            drop(session.settings.open(other).await);
        }
        // Its connection breaks first.
        let mut told = std::pin::pin!(notices.filter(|told| std::future::ready(matches!(told, Notice::NotHeld(_)))));
        let told = tokio::time::timeout(Duration::from_secs(20), told.next()).await.unwrap().unwrap();
        assert_eq!(told, Notice::NotHeld(held.owner.clone()));
        assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::NotHeld);
        let again = lock.try_lock(&claim("next")).await.unwrap().unwrap();
        assert!(again.token > before.token);
    }
}
