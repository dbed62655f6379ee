//! The task beside a session: it keeps the session proved, releases what is over, watches what is held, and
//! sees to it that a session that ended is ended on the servers too.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, select_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use lock_core::{Notice, OwnerId};
use tokio::sync::broadcast;
use tokio::time::Instant;
use zookeeper_client::{Client, Error as ZkError, EventType, MultiReadResult, SessionState, StateWatcher};

use crate::claims::{Claimed, Lost};
use crate::release;
use crate::session::{Life, Session, Watch, is_over};

/// How often the claims are looked at, while there are any; and how long a hold lasts, at least, that is watched.
const TICK: Duration = Duration::from_millis(100);

/// For how long a session stays that nobody uses.
const IDLE: Duration = Duration::from_secs(60);

/// The pause before the servers are asked again to end a session.
const PAUSE: Duration = Duration::from_millis(500);

/// How often the nodes of all claims are looked at, should a watch event be lost: so long it may cost.
const LOOK: Duration = Duration::from_secs(5);

/// How many nodes one request asks for: an answer has its bounds.
const AT_ONCE: usize = 200;

/// What goes on meanwhile. The answer is the nodes of holds that were ended from outside.
type Errands = FuturesUnordered<BoxFuture<'static, Vec<Gone>>>;

/// A claim, and its node, which is gone.
type Gone = (OwnerId, String);

/// Runs until the session is over and nothing of it is left on the servers.
pub(crate) async fn supervise(session: Arc<Session>, notices: broadcast::Sender<Notice>) {
    if let Ok(client) = session.client() {
        let mut states = client.state_watcher();
        // Kept here, it would keep the session open.
        drop(client);
        serve(&session, &mut states, &notices).await;
        end_here(&session, &notices);
        // Where the servers do not answer, there is another way.
        let _ = tokio::time::timeout(session.settings.timeout, ended(&mut states)).await;
    }
    bury(&session).await;
}

/// The same for a session whose runtime is gone, and with it all that served it.
pub(crate) async fn mourn(session: Arc<Session>, notices: broadcast::Sender<Notice>) {
    end_here(&session, &notices);
    bury(&session).await;
}

/// Until the session ends, is closed, or was not used for long.
async fn serve(session: &Arc<Session>, states: &mut StateWatcher, notices: &broadcast::Sender<Notice>) {
    let mut errands = Errands::new();
    let mut used = session.now();
    let mut asked = None;
    // Chores walk over all claims: at their time, and not whenever something happens.
    let Some(mut watches) = session.watches_to_keep.lock().unwrap_or_else(PoisonError::into_inner).take() else {
        return;
    };
    let (mut chores_at, mut look_at) = (Instant::now(), Instant::now() + LOOK);
    while session.client().is_ok() {
        if Instant::now() >= chores_at {
            let busy = chores(session, &mut errands, &mut asked);
            if busy {
                used = session.now();
            } else if session.retired.load(Ordering::Relaxed) || session.now() >= used + IDLE {
                return;
            }
            chores_at = Instant::now() + if busy { TICK } else { IDLE.min(session.lasts / 6) };
        }
        if Instant::now() >= look_at {
            errands.push(Box::pin(look(Arc::clone(session))));
            look_at = Instant::now() + LOOK;
        }
        tokio::select! {
            state = states.changed() => match state {
                SessionState::Disconnected => at_risk(session, notices),
                state if is_over(state) => return,
                _ => {}
            },
            Some(gone) = errands.next() => for (owner, node) in gone {
                let Some(lost) = session.lose(&owner, &node) else { continue };
                let _ = notices.send(Notice::NotHeld(owner.clone()));
                if matches!(lost, Lost::Some) {
                    // Nobody has these permits any more.
                    let late = session.now() + session.lasts;
                    errands.push(Box::pin(end(Arc::clone(session), owner, late)));
                }
            },
            Some(watch) = watches.recv() => errands.push(Box::pin(keep(Arc::clone(session), watch))),
            () = session.wake.notified() => chores_at = Instant::now(),
            () = tokio::time::sleep_until(chores_at.min(look_at)) => {}
        }
    }
}

/// Nothing is asked over the session from here on, and nothing of it is held.
fn end_here(session: &Session, notices: &broadcast::Sender<Notice>) {
    let held: Vec<_> = {
        let state = session.state();
        // Under the lock, so that no claim comes in unseen; and first, so that who finds it closed finds it over.
        session.life.send_replace(Life::Over);
        state.claims.iter().filter(|(_, claimed)| claimed.hold.is_some()).map(|(owner, _)| owner.clone()).collect()
    };
    session.close();
    for owner in held {
        // It fails if nobody listens.
        let _ = notices.send(Notice::NotHeld(owner));
    }
}

/// Ends when the client crate has ended a session.
async fn ended(states: &mut StateWatcher) -> SessionState {
    let mut state = states.peek_state();
    while !is_over(state) {
        state = states.changed().await;
    }
    state
}

fn at_risk(session: &Session, notices: &broadcast::Sender<Notice>) {
    session.doubt();
    for (owner, _) in session.state().claims.iter().filter(|(_, claimed)| claimed.hold.is_some()) {
        let _ = notices.send(Notice::AtRisk(owner.clone()));
    }
}

/// Starts what is due. `asked` is when a proof was. Answers whether there are any claims.
fn chores(session: &Arc<Session>, errands: &mut Errands, asked: &mut Option<lock_core::Instant>) -> bool {
    let now = session.now();
    let due = session.proof().is_some_and(|proof| now > proof + session.lasts / 6) && !session.is_proving();
    let mut state = session.state();
    // One that fails at once is not asked for again at once.
    if due && asked.is_none_or(|asked| now >= asked + TICK) {
        *asked = Some(now);
        let session = Arc::clone(session);
        errands.push(Box::pin(async move {
            if let Err(error) = session.prove().await {
                tracing::debug!(%error, "the session could not be proved");
            }
            Vec::new()
        }));
    }
    for (owner, claimed) in &mut state.claims {
        // Others release what is given back: for as long as the session lasts, but not beyond that.
        let given_back = claimed.hold.is_none() || claimed.ending;
        let grace = if given_back { session.lasts } else { Duration::ZERO };
        if let Some(left) = claimed.is_left_since()
            && now >= left + grace
        {
            claimed.end_now(now);
            errands.push(Box::pin(end(Arc::clone(session), owner.clone(), left + grace + session.lasts)));
        } else if let (Some(hold), false, false) = (claimed.hold, claimed.ending, claimed.watched)
            && now >= hold.since + TICK
        {
            claimed.watched = true;
            // The first that is gone is told of, and with it goes the hold.
            let watching = claimed.nodes().map(|node| watch(Arc::clone(session), owner.clone(), node.clone()).boxed());
            errands.push(Box::pin(select_all(watching).map(|(gone, ..)| gone)));
        }
    }
    state.idle = state.claims.is_empty();
    !state.idle
}

/// Releases a claim that nobody holds any more. The one way that is left if no server does it is to end the session.
async fn end(session: Arc<Session>, owner: OwnerId, late: lock_core::Instant) -> Vec<Gone> {
    while session.life() == Life::Alive {
        match release::release(&session, &owner).await {
            Ok(_) => break,
            Err(error) if session.now() < late => {
                tracing::debug!(%error, "nobody holds a claim any more, and its node could not be deleted yet");
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                tracing::warn!(%error, "nobody holds a claim, and its node cannot be deleted: its session is closed");
                session.close();
                break;
            }
        }
    }
    Vec::new()
}

/// The same as [`watch`], with a watch that is there already.
async fn keep(session: Arc<Session>, kept: Watch) -> Vec<Gone> {
    match kept.event.await.event_type {
        EventType::Session => Vec::new(),
        EventType::NodeDeleted => vec![(kept.owner, kept.node)],
        _ => watch(session, kept.owner, kept.node).await,
    }
}

/// Ends when the node of a hold is gone. Somebody may write to it: that means nothing.
async fn watch(session: Arc<Session>, owner: OwnerId, node: String) -> Vec<Gone> {
    let path = &node;
    loop {
        let watching = |client: Arc<Client>| async move { client.check_and_watch_stat(path).await };
        match session.ask(watching).await {
            // Somebody may also have made another in its place.
            Ok((Some(stat), watcher)) if stat.ephemeral_owner == session.info.id().0 => {
                match watcher.changed().await.event_type {
                    EventType::Session => return Vec::new(),
                    EventType::NodeDeleted => break,
                    _ => {}
                }
            }
            Ok(_) => break,
            Err(_) => {
                tokio::time::sleep(TICK).await;
                // Tried again at the next look.
                session.update(&owner, |claimed| claimed.watched = false);
                return Vec::new();
            }
        }
    }
    vec![(owner, node)]
}

/// Looks, in one request of a few hundred nodes, whether the nodes of all claims are there, and those that they wait
/// for. An event that does not come would else be missed for ever.
async fn look(session: Arc<Session>) -> Vec<Gone> {
    let claims: Vec<(OwnerId, Claimed)> = {
        let state = session.state();
        let standing = state.claims.iter().filter(|(_, claimed)| !claimed.ending);
        standing.map(|(owner, claimed)| (owner.clone(), claimed.clone())).collect()
    };
    let paths: Vec<_> = claims
        .iter()
        .flat_map(|(_, claimed)| claimed.nodes().chain(&claimed.predecessor))
        .map(String::as_str)
        .collect();
    let mut missing = HashSet::new();
    for some in paths.chunks(AT_ONCE) {
        let reading = |client: Arc<Client>| async move {
            let mut reader = client.new_multi_reader();
            some.iter().try_for_each(|path| reader.add_get_data(path))?;
            reader.commit().await
        };
        let Ok(read) = session.ask(reading).await else { return Vec::new() };
        let is_gone = |read: &MultiReadResult| matches!(read, MultiReadResult::Error { err: ZkError::NoNode });
        missing.extend(some.iter().zip(&read).filter(|(_, read)| is_gone(read)).map(|(path, _)| *path));
    }
    let mut gone = Vec::new();
    for (owner, claimed) in &claims {
        let is_missing = |path: &&String| missing.contains(path.as_str());
        match claimed.nodes().find(is_missing) {
            Some(node) if claimed.hold.is_some() => gone.push((owner.clone(), node.clone())),
            None if claimed.predecessor.iter().all(|path| !is_missing(&path)) => {}
            _ => claimed.look.notify_one(),
        }
    }
    gone
}

/// Has the servers end a session that ended for us: a request of it may still be on its way to them.
async fn bury(session: &Session) {
    while !session.state().claims.is_empty() && !session.abandoned.load(Ordering::Relaxed) && !is_buried(session).await
    {
        tokio::time::sleep(PAUSE).await;
    }
    session.life.send_replace(Life::Buried);
}

/// Did a server say just now that the session is over?
async fn is_buried(session: &Session) -> bool {
    let settings = &session.settings;
    // It was built before.
    let Ok(connector) = settings.connector() else { return true };
    let connector = connector.with_session(session.info.clone()).with_session_timeout(session.lasts);
    match tokio::time::timeout(settings.timeout, settings.open(connector.with_fail_eagerly())).await {
        Ok(Ok(client)) => {
            let mut states = client.state_watcher();
            drop(client);
            let closing = tokio::time::timeout(settings.timeout, ended(&mut states));
            // Expired it is as well where only the client crate has waited for long enough.
            closing.await == Ok(SessionState::Closed)
        }
        Ok(Err(error)) => error == ZkError::SessionExpired,
        Err(_) => false,
    }
}

#[cfg(all(test, feature = "_servers"))]
mod tests {
    use super::*;
    use crate::session::beacon;
    use crate::{ZookeeperLock, ZookeeperOptions};
    use lock_core::{Claim, DistributedLock, LockName, ManualClock, Unlocked};
    use test_servers::ZookeeperServers;
    use zookeeper_client::{Acl, AuthId, Permission};

    const LEASE: Duration = Duration::from_secs(300);

    fn claim(owner: &str) -> Claim {
        Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), LEASE)
    }

    /// 281. A session ends in which somebody holds a lock, and somebody else asks for one. One was told of its loss, and
    /// the other goes on in another session: neither releases anything, and nothing is kept of this one.
    #[tokio::test]
    async fn a_session_that_has_ended_is_forgotten_with_its_claims() {
        let servers = ZookeeperServers::start();
        let lock = ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap();
        let asking = Claim::new(LockName::new("y").unwrap(), OwnerId::from_store("asking"), LEASE);
        lock.try_lock(&claim("holder")).await.unwrap().unwrap();
        let session = lock.sessions.of(LEASE).await.unwrap();
        assert!(session.begin(&asking));
        session.close();
        tokio::time::timeout(Duration::from_secs(20), session.reached(Life::Buried)).await.unwrap();
        let kept = Arc::downgrade(&session);
        drop(session);
        lock.try_lock(&claim("next")).await.unwrap().unwrap();
        assert!(kept.upgrade().is_none());
    }

    /// 40. The servers end the holder's session, by another client that has its password: told at once, and the next
    /// acquisition has a session of its own.
    #[tokio::test]
    async fn a_session_that_the_servers_end_is_lost_at_once() {
        let servers = ZookeeperServers::start();
        let lock = ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap();
        let notices = lock.notices();
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

    /// Ends a test that would otherwise never end, where a task keeps its runtime's only thread to itself.
    fn within_bounds<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(test());
            done.send(())
        });
        ended.recv_timeout(Duration::from_secs(40)).expect("it ends, and without a panic");
    }

    #[test]
    fn a_session_that_nobody_uses_ends_and_keeps_nobody_from_running() {
        within_bounds(async || {
            let servers = ZookeeperServers::start();
            let clock = ManualClock::new();
            let options = ZookeeperOptions::new(&servers.url()).unwrap().with_clock(Arc::new(clock.clone()));
            let lock = options.connect().await.unwrap();
            let session = lock.sessions.any().await.unwrap();
            // The task beside it may not have begun to count.
            while session.life() == Life::Alive {
                clock.advance(IDLE);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            session.reached(Life::Buried).await;
            assert!(lock.try_lock(&claim("next")).await.unwrap().is_some());
        });
    }

    /// Nobody may make the beacon any more: each attempt is answered with a refusal, at once.
    #[tokio::test]
    async fn a_proof_that_fails_at_once_is_not_asked_for_again_at_once() {
        let servers = ZookeeperServers::start();
        let lock = ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap();
        let session = lock.sessions.any().await.unwrap();
        let name = LockName::new("x").unwrap();
        let claim = Claim::new(name, OwnerId::from_store("holder"), session.lasts);
        lock.try_lock(&claim).await.unwrap().unwrap();
        let client = session.client().unwrap();
        let folder = session.settings.keys.beacons();
        let rights = [Acl::new(Permission::READ | Permission::DELETE, AuthId::anyone())];
        client.set_acl(&folder, &rights, None).await.unwrap();
        client.delete(&beacon(&folder, session.info.id().0), None).await.unwrap();
        let received = || {
            let answer = servers.ask(0, "srvr").unwrap();
            answer.lines().find_map(|line| line.strip_prefix("Received: ")?.parse::<u64>().ok()).unwrap()
        };
        tokio::time::sleep(session.lasts / 4).await;
        let (before, since) = (received(), std::time::Instant::now());
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Two requests each, and what others ask for.
        let most = since.elapsed().as_millis() / TICK.as_millis() * 2 + 50;
        assert!(u128::from(received() - before) < most, "{} requests, at most {most}", received() - before);
    }
}
