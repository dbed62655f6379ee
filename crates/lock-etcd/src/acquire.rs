//! How a lock is taken, at once or in line.

use std::sync::Arc;

use etcd_client::{KeyValue, Txn, TxnResponse};
use lock_core::{Claim, Error, Grant, Instant, Result};

use crate::Shared;
use crate::connection::Again;
use crate::error::{Failure, in_doubt, nonsense, stray};
use crate::ledger::{Entry, Place};
use crate::requests::{Spot, found, join, look, revision, take, text};
use crate::session::{Session, epoch_of, transact, transact_surely};
use crate::tokens::Base;

/// Where a claim stands.
enum Turn {
    /// It is the first, with this create revision.
    First(i64),
    /// With this create revision it is behind that key.
    Behind(i64, KeyValue),
    /// Nowhere.
    Gone,
}

impl Shared {
    pub(crate) async fn try_lock(self: &Arc<Self>, claim: &Claim) -> Result<Option<Grant>> {
        let (key, line) = (self.keys.own(claim), self.keys.line(&claim.name));
        let spot = Spot { key: &key, line: &line, owner: claim.owner.as_str() };
        loop {
            let session = self.session(claim.lease).await?;
            let (sent, base) = (self.connection.clock.now(), self.tokens.present());
            let place = self.ledger.enter(&key, &line, &claim.owner, claim.lease, &session);
            let Some((mut place, answer)) =
                self.ask_for(place, &session, take(&spot, &session, &self.tokens, base)).await?
            else {
                continue;
            };
            if answer.succeeded() {
                let grant = granted(&mut place, claim, &session, base, revision(&answer)?, sent)?;
                if grant.is_none() {
                    // Somebody has deleted it already.
                    self.leave_nothing(place, &spot).await?;
                }
                return Ok(grant);
            }
            let (own, first) = self.refused(&spot, &session, &answer).await?;
            if let Some(own) = own {
                // Of an earlier request: it holds if it is the first.
                let created = own.create_revision();
                if first.is_some_and(|first| first.key() == own.key()) {
                    let base = self.base_of(created, &mut None).await.map_err(in_doubt)?;
                    return granted(&mut place, claim, &session, base, created, sent);
                }
                place.waits(created);
                return Ok(None);
            }
            self.leave_nothing(place, &spot).await?;
            if let Some(first) = first {
                return if first.lease() == 0 { Err(stray(&text(first.key()))) } else { Ok(None) };
            }
        }
    }

    pub(crate) async fn lock(self: &Arc<Self>, claim: &Claim) -> Result<Grant> {
        let (key, line) = (self.keys.own(claim), self.keys.line(&claim.name));
        let spot = Spot { key: &key, line: &line, owner: claim.owner.as_str() };
        loop {
            let session = self.session(claim.lease).await?;
            let place = self.ledger.enter(&key, &line, &claim.owner, claim.lease, &session);
            let (mut sent, mut base) = (self.connection.clock.now(), self.tokens.present());
            let mut ask = self.ledger.ask(&line);
            let Some((mut place, answer)) =
                self.ask_for(place, &session, join(&spot, &session, &self.tokens, base)).await?
            else {
                continue;
            };
            let mut turn = match answer.succeeded() {
                true => joined(&spot, &answer)?,
                false => match self.refused(&spot, &session, &answer).await?.0 {
                    Some(own) => {
                        base = self.base_of(own.create_revision(), &mut None).await.map_err(in_doubt)?;
                        self.turn(&spot, own.create_revision(), &session).await?
                    }
                    None => Turn::Gone,
                },
            };
            loop {
                match turn {
                    // Its key ends soon, if it has not yet.
                    Turn::First(_) if session.is_lost() => turn = Turn::Gone,
                    Turn::First(revision) => {
                        if !session.is_fresh(HALF, self.connection.clock.now()) {
                            self.renew_session(&session, &[]).await.map_err(in_doubt)?;
                        }
                        if let Some(grant) = granted(&mut place, claim, &session, base, revision, sent)? {
                            return Ok(grant);
                        }
                        turn = self.turn(&spot, revision, &session).await?;
                    }
                    Turn::Gone if session.is_lost() => {
                        drop(place);
                        self.release(&key, &line).await.map_err(in_doubt)?;
                        break;
                    }
                    Turn::Gone => {
                        place.give_up();
                        break;
                    }
                    Turn::Behind(_, ahead) if ahead.lease() == 0 => {
                        drop(place);
                        // A refusal leaves nothing behind.
                        self.release(&key, &line).await.map_err(in_doubt)?;
                        return Err(stray(&text(ahead.key())));
                    }
                    Turn::Behind(revision, ahead) => {
                        place.waits(revision);
                        ask.wait_for(Entry::of(&ahead), &mut place);
                        place.news().await?;
                        sent = self.connection.clock.now();
                        ask = self.ledger.ask(&line);
                        turn = self.next_turn(&spot, revision, &session, &place, ask.since).await?;
                    }
                }
            }
        }
    }

    /// Asks for a place; `None`: nothing was done, and it is to be asked anew.
    async fn ask_for(&self, place: Place, session: &Session, txn: Txn) -> Result<Option<(Place, TxnResponse)>> {
        match transact_surely(&self.connection, Again::Yes, txn).await {
            Ok(answer) => {
                if answer.unsure {
                    place.unsure();
                }
                Ok(Some((place, answer.value)))
            }
            Err(Failure::LeaseGone) => {
                // Whatever is on its way names that lease, too.
                place.forget();
                self.lose(session);
                Ok(None)
            }
            Err(failure) => {
                let error = Error::from(failure);
                if error.is_refused() {
                    // A refusal leaves nothing behind, and nothing on its way.
                    let unsure = place.is_unsure();
                    place.give_up();
                    return Err(if unsure { in_doubt(error) } else { error });
                }
                Err(error)
            }
        }
    }

    /// Whoever was not granted leaves nothing behind, and nothing on its way.
    async fn leave_nothing(&self, place: Place, spot: &Spot<'_>) -> Result<()> {
        if place.is_unsure() {
            drop(place);
            self.release(spot.key, spot.line).await.map_err(in_doubt)?;
        } else {
            place.give_up();
        }
        Ok(())
    }

    /// A place was refused: because the own key is there already, or the session or the base of tokens is not what we
    /// took it for. Answers the own key, and who is the first in line, if that was asked.
    async fn refused(
        &self,
        spot: &Spot<'_>,
        session: &Session,
        answer: &TxnResponse,
    ) -> Result<(Option<KeyValue>, Option<KeyValue>)> {
        if !session.saw_epochs(&[epoch_of(spot.key)], answer)? {
            self.lose(session);
        }
        let mut rest = found(answer)?.into_iter().skip(2).map(|found| found.into_iter().next());
        let (base, own) = (rest.next().ok_or_else(nonsense)?, rest.next().ok_or_else(nonsense)?);
        let settling = self.tokens.settle(&self.connection, base, revision(answer)?);
        settling.await.map_err(in_doubt)?;
        Ok((own, rest.next().flatten()))
    }

    /// Whose turn it is, by the leader's word. It also shows that the own key is there, on its lease.
    async fn turn(&self, spot: &Spot<'_>, own: i64, session: &Session) -> Result<Turn> {
        let (_, ahead) = self.look(spot, own, session, false).await?;
        Ok(ahead.map_or(Turn::Gone, |ahead| behind(own, ahead.into_iter().next())))
    }

    /// The same, now that the end of the key ahead was heard of, and by the member's own word if that will do: the
    /// leader answers only after the write that it is at. Who is ahead is never put there later, so that nobody being
    /// ahead stays true, however old the answer. Else it has to be no older than what was heard of before it was asked
    /// for.
    async fn next_turn(&self, spot: &Spot<'_>, own: i64, session: &Session, place: &Place, since: i64) -> Result<Turn> {
        let (at, ahead) = self.look(spot, own, session, true).await?;
        match ahead {
            Some(ahead) if at >= own => {
                let mut left = ahead.into_iter().skip_while(|ahead| place.outlived(&Entry::of(ahead)));
                match left.next() {
                    Some(_) if at < since => self.turn(spot, own, session).await,
                    first => Ok(behind(own, first)),
                }
            }
            None if at >= own => Ok(Turn::Gone),
            _ => self.turn(spot, own, session).await,
        }
    }

    /// One look: its revision, and if the own key is there, who is ahead of it.
    async fn look(
        &self,
        spot: &Spot<'_>,
        own: i64,
        session: &Session,
        by_itself: bool,
    ) -> Result<(i64, Option<Vec<KeyValue>>)> {
        let asking = transact(&self.connection, Again::Yes, look(spot, own, session, by_itself));
        let answer = asking.await.map_err(|failure| in_doubt(failure.into()))?;
        let at = revision(&answer).map_err(in_doubt)?;
        let ahead = found(&answer).map_err(in_doubt)?.pop();
        if answer.succeeded() != ahead.is_some() {
            return Err(nonsense());
        }
        Ok((at, ahead))
    }

    /// A lease is over.
    pub(crate) fn lose(&self, session: &Session) {
        session.lose();
        self.ledger.lost(session);
    }
}

/// A waiter that is granted has at least half of its lease before it.
const HALF: u32 = 2;

/// Where a claim stands that has just joined the line.
fn joined(spot: &Spot<'_>, answer: &TxnResponse) -> Result<Turn> {
    let last_two = found(answer)?.pop().ok_or_else(nonsense)?;
    let mut last_two = last_two.into_iter();
    let own = last_two.next().filter(|own| own.key() == spot.key.as_bytes()).ok_or_else(nonsense)?;
    let revision = own.create_revision();
    Ok(behind(revision, last_two.next()))
}

fn behind(own: i64, ahead: Option<KeyValue>) -> Turn {
    ahead.map_or(Turn::First(own), |ahead| Turn::Behind(own, ahead))
}

/// `None`: its end was heard of meanwhile, or somebody else's that it waited for.
fn granted(
    place: &mut Place,
    claim: &Claim,
    session: &Arc<Session>,
    base: Base,
    revision: i64,
    sent: Instant,
) -> Result<Option<Grant>> {
    let token = base.token(revision)?;
    let valid_until = session.valid_until().min(sent + claim.lease);
    Ok(place.holds(revision, valid_until).then_some(Grant::new(token, valid_until)))
}
