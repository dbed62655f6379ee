//! How permits of a semaphore are taken: through the line, and from its head. `permits.rs` says why that is safe.
//!
//! Requests are counted here. Who finds permits makes its node, looks, and takes them. Who waits behind somebody
//! watches the node of that one alone; the first in line watches the folder of the permits, and a list of them comes
//! with each watch. Permits that are named after the node that was waited for say that this was the first in line,
//! without another look.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use lock_core::{Claim, Grant, Mode, Result, Slots, StoreToken};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use zookeeper_client::{
    Client, CreateMode, Error as ZkError, EventType, MultiWriteError, MultiWriteResult, WatchedEvent,
};

use crate::acquire::{Attempt, LOOK, reached, removed, silence};
use crate::claims::Hold;
use crate::error::{of_request, stray};
use crate::keys::{Ahead, ahead, name_of};
use crate::nodes::{base, owner_prefix};
use crate::permits::{View, check_folder, find, is_of, lease_name, leases, locks, slots, view, waiting_prefix};
use crate::release::release;
use crate::session::{Life, Session};

/// Our node in the line of a semaphore.
struct Place<'a> {
    session: &'a Session,
    claim: &'a Claim,
    folder: &'a str,
    node: String,
    look: Arc<Notify>,
    /// What happens in the folder of the permits. It is kept until they are taken: our own write to it ends it, and
    /// nobody has to ask the server for that.
    watch: Option<BoxFuture<'static, WatchedEvent>>,
}

/// What was waited for.
enum Event {
    /// The node ahead has gone.
    Gone,
    /// Anything else: only another look tells.
    Look,
    /// The node ahead hangs on no session.
    Stray,
}

/// Enters the line, waits in it if so wanted, and takes permits. `known` is how many there were when this claim last
/// stood in line, in an earlier session: it comes back as one of those who stood there when their number was changed.
pub(crate) async fn stand(
    session: &Session,
    client: Arc<Client>,
    claim: &Claim,
    wait: bool,
    known: &mut Option<u32>,
) -> Result<Attempt> {
    let Mode::Permits { take, of } = claim.mode else { return Ok(Attempt::Busy) };
    let folder = &session.settings.keys.folder(&claim.name);
    let is_back = known.is_some();
    let named = match *known {
        Some(known) => view(session, folder).await.map_err(of_request)?.of().unwrap_or(known),
        None => of,
    };
    let entering = enter(session, &client, claim, (take, named), folder);
    let entered = timeout(session.settings.timeout, entering).await;
    let (node, alone) = entered.unwrap_or_else(|_| Err(of_request(ZkError::Timeout)))?;
    // Kept over a wait, it would keep the session open.
    drop(client);
    let look = Arc::default();
    session.update(&claim.owner, |claimed| {
        claimed.node = Some(node.clone());
        claimed.look = Arc::clone(&look);
    });
    let mut place = Place { session, claim, folder, node, look, watch: None };
    let mut seen = view(session, folder).await.map_err(of_request)?;
    let mut fits = if is_back { Ok(()) } else { seen.check_kind(claim.mode) };
    if fits.is_ok() && !alone {
        let children = session.list(folder).await.map_err(of_request)?.unwrap_or_default();
        fits = check_folder(session, claim, &children).await;
    }
    // Those ahead who can all be served are out of the way soon.
    let late = Instant::now() + session.settings.timeout;
    loop {
        let Some(Ahead { predecessor, count, .. }) = ahead(&seen.line, place.name()) else { return Err(removed()) };
        let of = seen.of().unwrap_or(named);
        if let Err(error) = fits.and_then(|()| if take > of { Err(Mode::too_few(of, take)) } else { Ok(()) }) {
            release(session, &claim.owner).await?;
            return Err(error);
        }
        fits = Ok(());
        *known = Some(of);
        let has_room = seen.has_room(place.name(), take, of);
        if !wait && (!has_room || Instant::now() >= late) {
            return release(session, &claim.owner).await.map(|_| Attempt::Busy);
        }
        let Some(predecessor) = predecessor.map(str::to_owned) else {
            seen = match has_room {
                true => match place.taken(&seen, (take, of)).await? {
                    Some(grant) => return Ok(Attempt::Granted(grant)),
                    None => view(session, folder).await.map_err(of_request)?,
                },
                false => place.room(seen).await?,
            };
            continue;
        };
        let waiting = place.behind(&predecessor);
        // One who tries looks once more when its time is over, and goes.
        let event = if wait { waiting.await? } else { timeout_at(late, waiting).await.unwrap_or(Ok(Event::Look))? };
        seen = match event {
            Event::Gone => place.moved(seen, &predecessor, count == 1).await?,
            Event::Look => view(session, folder).await.map_err(of_request)?,
            Event::Stray => {
                let path = format!("{}/{predecessor}", locks(folder));
                release(session, &claim.owner).await?;
                return Err(stray(&path));
            }
        };
    }
}

/// Makes the node in the line; and tells whether nothing but a semaphore is in the folder.
async fn enter(
    session: &Session,
    client: &Client,
    claim: &Claim,
    permits: (u32, u32),
    folder: &str,
) -> Result<(String, bool)> {
    let mode = CreateMode::EphemeralSequential.with_acls(session.settings.acls());
    loop {
        let tokens = session.tokens().await.map_err(of_request)?;
        let sent = session.now();
        let making = async {
            let mut writer = client.new_multi_writer();
            let node = format!("{}/{}", locks(folder), waiting_prefix(&claim.owner, tokens.base, permits));
            writer.add_create(&node, claim.owner.as_str().as_bytes(), &mode)?;
            writer.add_set_data(folder, b"", None)?;
            match writer.commit().await.map_err(ZkError::from)?.as_slice() {
                [MultiWriteResult::Create { path, .. }, MultiWriteResult::SetData { stat }] => {
                    Ok((path.clone(), stat.num_children <= 2))
                }
                _ => Err(ZkError::MarshallingError),
            }
        };
        match session.answer(making).await {
            Ok(made) => {
                session.proved(sent);
                return Ok(made);
            }
            // The server may remove them again before we are in it.
            Err(ZkError::NoNode) => {
                for part in [locks(folder), leases(folder)] {
                    session.make_folder(&part).await.map_err(of_request)?;
                }
            }
            Err(ZkError::ConnectionLoss | ZkError::Custom(_)) => {
                let found = find(session, &claim.owner, &claim.name).await.map_err(of_request)?;
                for path in &found {
                    let stat = session.ask(|client| async move { client.check_stat(path).await }).await;
                    if stat.map_err(of_request)?.is_some_and(|stat| stat.ephemeral_owner == session.info.id().0) {
                        return Ok((path.clone(), false));
                    }
                }
            }
            Err(error) => return Err(of_request(error)),
        }
    }
}

impl Place<'_> {
    fn name(&self) -> &str {
        name_of(&self.node)
    }

    async fn view(&mut self) -> Result<View> {
        view(self.session, self.folder).await.map_err(of_request)
    }

    /// Ends when something other than the awaited event does happen.
    async fn else_happens(&mut self) -> Result<Event> {
        let (session, look) = (self.session, Arc::clone(&self.look));
        tokio::select! {
            over = self.over() => over,
            // Such as that our own node is gone.
            () = look.notified() => Ok(Event::Look),
            () = silence(session) => Err(of_request(ZkError::Timeout)),
        }
    }

    /// Ends when the end of the session is noted: by that, its claims enter the line in another one.
    async fn over<T>(&mut self) -> Result<T> {
        self.session.reached(Life::Over).await;
        Err(of_request(ZkError::SessionExpired))
    }

    /// Waits until the node ahead is gone.
    async fn behind(&mut self, predecessor: &str) -> Result<Event> {
        let path = &format!("{}/{predecessor}", locks(self.folder));
        self.session.update(&self.claim.owner, |claimed| claimed.predecessor = Some(path.clone()));
        loop {
            let watching = |client: Arc<Client>| async move { client.check_and_watch_stat(path).await };
            let (standing, event) = self.session.ask(watching).await.map_err(of_request)?;
            match standing {
                None => return Ok(Event::Gone),
                Some(stat) if stat.ephemeral_owner == 0 => return Ok(Event::Stray),
                Some(_) => {}
            }
            tokio::select! {
                biased;
                other = self.else_happens() => return other,
                event = event.changed() => match event.event_type {
                    EventType::Session => return self.over().await,
                    EventType::NodeDeleted => return Ok(Event::Gone),
                    // Somebody wrote to it.
                    _ => {}
                },
            }
        }
    }

    /// What there is when the node ahead has gone: it took permits, or it gave up its wait behind others. If it was the
    /// only one ahead, or has permits, nobody is ahead of us, and nobody took any since then.
    async fn moved(&mut self, seen: View, predecessor: &str, was_first: bool) -> Result<View> {
        let now = self.listed(seen).await?;
        let had = was_first || now.leases.iter().any(|lease| is_of(lease, predecessor));
        match now.from(self.name()).filter(|_| had) {
            Some(now) => Ok(now),
            // The line is read before the permits: the list that is there is too old.
            None => self.view().await,
        }
    }

    /// Waits until other permits are held, or there are more of them.
    async fn room(&mut self, seen: View) -> Result<View> {
        self.session.update(&self.claim.owner, |claimed| claimed.predecessor = None);
        let Some(mut watch) = self.watch.take() else { return self.listed(seen).await };
        let clock = &self.session.settings.clock;
        let late = reached(&**clock, Some(clock.now() + LOOK));
        tokio::select! {
            biased;
            other = self.else_happens() => {
                other?;
            }
            event = &mut watch => return match event.event_type {
                EventType::Session => self.over().await,
                _ => self.listed(seen).await,
            },
            // Should an event be lost: only the first in line asks.
            () = late => {}
        }
        self.watch = Some(watch);
        self.view().await
    }

    /// The same line, with the permits that are held now, and a watch on them.
    async fn listed(&mut self, seen: View) -> Result<View> {
        let path = &leases(self.folder);
        let listing = |client: Arc<Client>| async move { client.get_and_watch_children(path).await };
        match self.session.ask(listing).await {
            Ok((held, stat, event)) => {
                self.watch = Some(event.changed().boxed());
                match seen.with_leases(held, stat.version) {
                    Some(now) => Ok(now),
                    None => self.view().await,
                }
            }
            Err(ZkError::NoNode) => self.view().await,
            Err(error) => Err(of_request(error)),
        }
    }

    /// Takes the permits, and leaves the line. None: something changed meanwhile.
    async fn taken(&mut self, seen: &View, (take, of): (u32, u32)) -> Result<Option<Grant>> {
        let (session, claim, path) = (self.session, self.claim, leases(self.folder));
        let Some(version) = seen.version else {
            return session.make_folder(&path).await.map(|()| None).map_err(of_request);
        };
        let held = slots(seen.leases.iter().map(String::as_str));
        let own = Slots::free(Mode::Permits { take, of }, held.as_slice().iter().copied());
        if own.as_slice().len() < take as usize {
            return Ok(None);
        }
        let tokens = session.tokens().await.map_err(of_request)?;
        let (own_name, base) = (name_of(&self.node), tokens.base);
        let name = |slot: &u32| lease_name(&claim.owner, base, (*slot, of), own_name);
        let nodes: Vec<_> = own.as_slice().iter().map(|slot| format!("{path}/{}", name(slot))).collect();
        let (client, sent) = (session.connected().await?, session.now());
        session.update(&claim.owner, |claimed| claimed.taking = true);
        let taking = async {
            let mode = CreateMode::Ephemeral.with_acls(session.settings.acls());
            let mut writer = client.new_multi_writer();
            let checks = tokens.check(&mut writer, &session.settings.keys)?;
            // Their number is as it was.
            match seen.written == Some(of) {
                true => writer.add_check_version(&path, version)?,
                false => writer.add_set_data(&path, of.to_string().as_bytes(), Some(version))?,
            }
            // By what it answers, the transaction has a number.
            writer.add_set_data(&locks(self.folder), b"", None)?;
            writer.add_delete(&self.node, None)?;
            for node in &nodes {
                writer.add_create(node, claim.owner.as_str().as_bytes(), &mode)?;
            }
            match writer.commit().await {
                Ok(written) => match written.get(checks + 1) {
                    Some(MultiWriteResult::SetData { stat }) => Ok(Some(stat.mzxid)),
                    _ => Err(ZkError::MarshallingError),
                },
                Err(MultiWriteError::OperationFailed { index, source: ZkError::NoNode | ZkError::BadVersion }) => {
                    if index < checks {
                        session.settings.tokens.refused(tokens);
                    }
                    Ok(None)
                }
                Err(error) => Err(error.into()),
            }
        };
        let written = match session.answer(taking).await {
            Ok(Some(zxid)) => Some((tokens.base.token(zxid)?, nodes)),
            Ok(None) => None,
            Err(ZkError::ConnectionLoss | ZkError::Custom(_)) => had(session, claim, &path, take).await?,
            Err(error) => return Err(of_request(error)),
        };
        drop(client);
        let Some((token, nodes)) = written else { return Ok(None) };
        session.proved(sent);
        session.sure(claim.lease).await.map_err(of_request)?;
        let valid_until = session.valid_until(claim.lease);
        let slots = slots(nodes.iter().map(|node| name_of(node)));
        let grant = Grant::new(token, valid_until).with_evidence(session.settings.evidence(&nodes, token));
        let hold = Hold { token, since: session.now(), ends: valid_until, waited: false };
        session.update(&claim.owner, |claimed| {
            let mut nodes = nodes.into_iter();
            claimed.node = nodes.next();
            claimed.more = nodes.collect();
            claimed.hold = Some(hold);
            claimed.predecessor = None;
        });
        Ok(Some(grant.with_slots(slots)))
    }
}

/// What a request took whose answer was lost: all or nothing.
async fn had(session: &Session, claim: &Claim, folder: &str, take: u32) -> Result<Option<(StoreToken, Vec<String>)>> {
    let prefix = owner_prefix(&claim.owner);
    let mut own = session.list_now(folder).await.map_err(of_request)?.unwrap_or_default();
    own.retain(|child| child.starts_with(&prefix));
    let nodes: Vec<_> = own.iter().map(|child| format!("{folder}/{child}")).collect();
    let Some(path) = nodes.first().filter(|_| nodes.len() == take as usize) else { return Ok(None) };
    let stat = session.ask(|client| async move { client.check_stat(path).await }).await.map_err(of_request)?;
    // One of an earlier session goes with it.
    let Some(stat) = stat.filter(|stat| stat.ephemeral_owner == session.info.id().0) else { return Ok(None) };
    let Some(base) = base(name_of(path)) else { return Ok(None) };
    Ok(Some((base.token(stat.czxid)?, nodes)))
}

#[cfg(all(test, feature = "_servers"))]
mod tests {
    use std::time::Duration;

    use lock_core::{DistributedLock, LockName, OwnerId, Unlocked};
    use test_servers::ZookeeperServers;

    use super::*;
    use crate::ZookeeperLock;

    fn claim(owner: &str, take: u32, of: u32) -> Claim {
        let name = LockName::new("x").unwrap();
        let mut claim = Claim::new(name, OwnerId::from_store(owner), Duration::from_secs(300));
        claim.mode = Mode::Permits { take, of };
        claim
    }

    async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let waiting = async {
            while !is_so().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("not in time: {what}"));
    }

    /// The session of a waiter ends, after their number was changed. It comes back, and with it the number that all know.
    #[tokio::test]
    async fn who_comes_back_knows_the_number_of_all() {
        let servers = ZookeeperServers::start();
        let connect = async || Arc::new(ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap());
        let (ours, other) = (connect().await, connect().await);
        let held = claim("holder", 2, 2);
        ours.lock(&held).await.unwrap();
        let waits = claim("waits", 2, 2);
        let waiting = tokio::spawn({
            let (other, waits) = (Arc::clone(&other), waits.clone());
            async move { other.lock(&waits).await }
        });
        let in_line = async || ours.inspect(&waits.name).await.unwrap().waiters.len() == 1;
        until("it waits", in_line).await;
        assert!(ours.resize(&waits.name, 3).await.unwrap());
        let session = other.sessions.with_claim(&waits.owner).pop().unwrap();
        session.close();
        session.reached(Life::Over).await;
        let is_back = async || other.sessions.with_claim(&waits.owner).iter().any(|now| now.life() == Life::Alive);
        until("it is back", async || is_back().await && in_line().await).await;
        // None of ours holds any more: what its own node says counts.
        assert_eq!(ours.unlock(&held).await.unwrap(), Unlocked::Released);
        let grant = timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap().unwrap();
        assert_eq!(grant.slots.as_slice(), [0, 1]);
        assert!(ours.try_lock(&claim("third", 1, 3)).await.unwrap().is_some());
        assert_eq!(ours.try_lock(&claim("fourth", 1, 3)).await.unwrap(), None);
    }
}
