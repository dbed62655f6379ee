//! How permits of a semaphore are taken: through the line, and from its head. `permits.rs` says why that is safe.

use std::sync::Arc;

use futures_util::future::try_join3;
use lock_core::{Claim, Grant, Mode, OwnerId, Result, Slots, StoreToken};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult};

use crate::acquire::{Attempt, LOOK, Place, Turn, reached, removed, silence};
use crate::claims::Hold;
use crate::error::{of_request, stray};
use crate::kept::Stands;
use crate::keys::{Ahead, ahead, name_of};
use crate::nodes::{base, owner_prefix};
use crate::permits::{View, check_folder, find, lease_name, leases, locks, slots, view, waiting_prefix, weight};
use crate::release::release;
use crate::session::{Life, Session};

/// Enters the line, waits in it if so wanted, and takes permits.
pub(crate) async fn stand(session: &Session, client: Arc<Client>, claim: &Claim, wait: bool) -> Result<Attempt> {
    let Mode::Permits { take, of } = claim.mode else { return Ok(Attempt::Busy) };
    let folder = session.settings.keys.folder(&claim.name);
    let entering = timeout(session.settings.timeout, enter(session, &client, claim, &folder)).await;
    let (node, alone) = entering.unwrap_or_else(|_| Err(of_request(ZkError::Timeout)))?;
    // Kept over a wait, it would keep the session open.
    drop(client);
    let look = Arc::default();
    session.update(&claim.owner, |claimed| {
        claimed.node = Some(node.clone());
        claimed.look = Arc::clone(&look);
    });
    let mut place = Place { session, claim, folder: locks(&folder), node, look, own: None, now: None };
    let mut seen = view(session, &folder).await.map_err(of_request)?;
    let mut fits = seen.check_kind(claim.mode);
    if fits.is_ok() && !alone {
        let children = session.list(&folder).await.map_err(of_request)?.unwrap_or_default();
        fits = check_folder(session, claim, &children).await;
    }
    // Those ahead who can all be served are out of the way soon.
    let late = Instant::now() + session.settings.timeout;
    loop {
        let Some(Ahead { predecessor, .. }) = ahead(&seen.line, place.name()) else { return Err(removed()) };
        let of = seen.of().unwrap_or(of);
        if let Err(error) = fits.and_then(|()| if take > of { Err(Mode::too_few(of, take)) } else { Ok(()) }) {
            release(session, &claim.owner).await?;
            return Err(error);
        }
        fits = Ok(());
        let ahead: u32 = seen.line.iter().take_while(|other| *other != place.name()).map(|other| weight(other)).sum();
        let has_room = (seen.leases.len() as u32).saturating_add(ahead).saturating_add(take) <= of;
        if !wait && (!has_room || Instant::now() >= late) {
            return release(session, &claim.owner).await.map(|_| Attempt::Busy);
        }
        match predecessor {
            None if has_room => {
                if let Some(grant) = taken(session, claim, &place.node, &seen, (take, of)).await? {
                    return Ok(Attempt::Granted(grant));
                }
            }
            None => room((session, &place.claim.owner), (&place.node, &place.look), &folder, &seen).await?,
            Some(predecessor) => {
                let turn = place.turn(predecessor, Stands::Endless);
                // One who tries looks once more when its time is over, and goes.
                let turn = if wait { turn.await? } else { timeout_at(late, turn).await.unwrap_or(Ok(Turn::Look))? };
                if matches!(turn, Turn::Stray) {
                    let path = format!("{}/{predecessor}", place.folder);
                    release(session, &claim.owner).await?;
                    return Err(stray(&path));
                }
            }
        }
        seen = view(session, &folder).await.map_err(of_request)?;
    }
}

/// Makes the node in the line; and tells whether nothing but a semaphore is in the folder.
async fn enter(session: &Session, client: &Client, claim: &Claim, folder: &str) -> Result<(String, bool)> {
    let Mode::Permits { take, of } = claim.mode else { return Err(removed()) };
    let mode = CreateMode::EphemeralSequential.with_acls(session.settings.acls());
    loop {
        let tokens = session.tokens().await.map_err(of_request)?;
        let sent = session.now();
        let making = async {
            let mut writer = client.new_multi_writer();
            let node = format!("{}/{}", locks(folder), waiting_prefix(&claim.owner, tokens.base, (take, of)));
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
                let (found, _) = find(session, &claim.owner, &claim.name).await.map_err(of_request)?;
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

/// Waits until fewer permits are held, or there are more of them, or something else happens.
async fn room(
    (session, owner): (&Session, &OwnerId),
    (own, look): (&str, &Notify),
    folder: &str,
    seen: &View,
) -> Result<()> {
    let leases = &leases(folder);
    session.update(owner, |claimed| claimed.predecessor = None);
    let watching = |client: Arc<Client>| async move {
        let (held, data) = (client.list_and_watch_children(leases), client.get_and_watch_data(leases));
        try_join3(held, data, client.check_and_watch_stat(own)).await
    };
    let ((held, left), (_, stat, changed), (standing, gone)) = match session.ask(watching).await {
        Err(ZkError::NoNode) => return Ok(()),
        watched => watched.map_err(of_request)?,
    };
    let mut before = seen.leases.clone();
    let mut now = held;
    before.sort_unstable();
    now.sort_unstable();
    if before != now || Some(stat.version) != seen.version || standing.is_none() {
        return Ok(());
    }
    let clock = &session.settings.clock;
    tokio::select! {
        biased;
        () = session.reached(Life::Over) => Err(of_request(ZkError::SessionExpired)),
        _ = left.changed() => Ok(()),
        _ = changed.changed() => Ok(()),
        _ = gone.changed() => Ok(()),
        () = look.notified() => Ok(()),
        // Should an event be lost: only the first in line asks.
        () = reached(&**clock, Some(clock.now() + LOOK)) => Ok(()),
        () = silence(session) => Err(of_request(ZkError::Timeout)),
    }
}

/// Takes the permits, and leaves the line. None: something changed meanwhile.
async fn taken(
    session: &Session,
    claim: &Claim,
    waiting: &str,
    seen: &View,
    (take, of): (u32, u32),
) -> Result<Option<Grant>> {
    let path = leases(&session.settings.keys.folder(&claim.name));
    let Some(version) = seen.version else {
        return session.make_folder(&path).await.map(|()| None).map_err(of_request);
    };
    let held = slots(seen.leases.iter().map(String::as_str));
    let own = Slots::free(Mode::Permits { take, of }, held.as_slice().iter().copied());
    if own.as_slice().len() < take as usize {
        return Ok(None);
    }
    let tokens = session.tokens().await.map_err(of_request)?;
    let name = |slot: &u32| lease_name(&claim.owner, tokens.base, (*slot, of), name_of(waiting));
    let nodes: Vec<_> = own.as_slice().iter().map(|slot| format!("{path}/{}", name(slot))).collect();
    let (client, sent) = (session.connected().await?, session.now());
    let taking = async {
        let mode = CreateMode::Ephemeral.with_acls(session.settings.acls());
        let mut writer = client.new_multi_writer();
        let checks = tokens.check(&mut writer, &session.settings.keys)?;
        // Nobody else took any, and their number is as it was.
        writer.add_set_data(&path, of.to_string().as_bytes(), Some(version))?;
        writer.add_delete(waiting, None)?;
        for node in &nodes {
            writer.add_create(node, claim.owner.as_str().as_bytes(), &mode)?;
        }
        match writer.commit().await {
            Ok(written) => match written.get(checks) {
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
    let hold = Hold { token, since: session.now(), ends: valid_until, waited: false };
    session.update(&claim.owner, |claimed| {
        let mut nodes = nodes.into_iter();
        claimed.node = nodes.next();
        claimed.more = nodes.collect();
        claimed.hold = Some(hold);
        claimed.predecessor = None;
    });
    Ok(Some(Grant::new(token, valid_until).with_slots(slots)))
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
