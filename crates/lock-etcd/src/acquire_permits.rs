//! How permits of a semaphore are taken, at once or in line. `permits` says why that is safe; `acquire`, what is the same as
//! of a lock.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Claim, Grant, Instant, Result, Slots, StoreToken};

use crate::Shared;
use crate::connection::Again;
use crate::crowd::Listener;
use crate::error::{in_doubt, nonsense, stray};
use crate::follow::{Followed, Turn};
use crate::permits::{Taken, View, take};
use crate::place::{Ask, Place};
use crate::requests::{Joined, Joining, Spot, found, joined, revision, taken};
use crate::session::{Session, transact};
use crate::waiters::Entry;

/// For so long whoever could take its permits lets those ahead take theirs first. They do so at once, unless they are stopped.
const SOON: Duration = Duration::from_millis(20);

impl Shared {
    /// Takes permits, or waits for them. None: they cannot be had without waiting.
    pub(crate) async fn take_permits(self: &Arc<Self>, claim: &Claim, waits: bool) -> Result<Option<Grant>> {
        let mut joins = waits;
        loop {
            let session = self.session(claim.lease).await?;
            let (sent, base) = (self.connection.clock.now(), self.tokens.present());
            let place = self.enter(claim, &session);
            let (spot, ask) = (Arc::clone(&place.spot), self.ledger.ask(&place.spot.line));
            let joining = Joining { spot: &spot, session: &session, tokens: &self.tokens, base };
            // What happens after the answer has to be heard from before that is asked for.
            let listener = if joins { self.crowds.hear(&spot.line) } else { None };
            let asked = tokio::time::Instant::now();
            let asking = if joins { joining.join(false) } else { joining.take() };
            let Some((mut place, answer)) = self.ask_for(place, &session, asking).await? else { continue };
            let at = revision(&answer)?;
            let mut is_new = false;
            let (own, asked, view) = match if joins { joined(&spot, answer, false)? } else { taken(answer) } {
                Joined::Seat => {
                    let own = Entry { key: spot.seat.clone(), created: at };
                    let first = (base.token(at)?, Slots::free(claim.mode, []));
                    let grant = has(&mut place, &ask, claim, &session, &own, first, sent);
                    if grant.is_some() {
                        return Ok(grant);
                    }
                    // Somebody has deleted it already.
                    self.leave_nothing(place).await?;
                    continue;
                }
                Joined::Place(_) => return Err(nonsense()),
                Joined::Among(answer) => {
                    let (own, view) = (Entry { key: spot.place.clone(), created: at }, View::of(&spot.line, &answer)?);
                    if let Err(another_kind) = view.check_kind(&spot) {
                        self.delete_own(&own).await?;
                        self.leave_nothing(place).await?;
                        return Err(another_kind);
                    }
                    is_new = true;
                    (own, asked, Arc::new(view))
                }
                Joined::Refused(answer) => {
                    let refused = self.refused(&spot, &session, &answer, at).await?;
                    if let Some(own) = &refused.own {
                        let (asked, view) = self.view(&spot).await?;
                        (Entry::of(own), asked, view)
                    } else {
                        if refused.occupied {
                            place.spoil();
                        }
                        self.leave_nothing(place).await?;
                        let view = View::of(&spot.line, &answer)?;
                        view.check_kind(&spot)?;
                        if !waits && !view.line.is_empty() && !view.has_room(&spot) {
                            return Ok(None);
                        }
                        joins = true;
                        continue;
                    }
                }
            };
            drop(ask);
            let line = Followed::new(view, asked);
            let earlier = line.taken_by(spot.owner.as_str()).filter(|_| is_new).cloned();
            let stood = self.stand(claim, &session, place, (&own, earlier), (line, listener), waits).await?;
            match stood {
                Stood::Granted(grant) => return Ok(Some(grant)),
                Stood::Busy => return Ok(None),
                Stood::Gone => {}
            }
        }
    }

    /// A claim whose key is in the line, as that was seen, and heard of since. An earlier key of the same owner, which is gone, had
    /// some permits perhaps.
    async fn stand(
        self: &Arc<Self>,
        claim: &Claim,
        session: &Arc<Session>,
        mut place: Place,
        (own, earlier): (&Entry, Option<Taken>),
        (mut line, mut listener): (Followed, Option<Listener>),
        waits: bool,
    ) -> Result<Stood> {
        let (spot, mut soon) = (Arc::clone(&place.spot), None);
        place.waits(own);
        loop {
            let (sent, base) = (self.connection.clock.now(), self.tokens.present());
            let ask = self.ledger.ask(&spot.line);
            let asked = tokio::time::Instant::now();
            match line.turn(&spot, own, earlier.as_ref()) {
                _ if session.is_lost() => {
                    self.let_go(place).await?;
                    return Ok(Stood::Gone);
                }
                Turn::Gone => {
                    self.delete_own(own).await?;
                    self.leave_nothing(place).await?;
                    return Ok(Stood::Gone);
                }
                Turn::Stray(key) => {
                    // A refusal leaves nothing behind.
                    self.let_go(place).await?;
                    return Err(stray(&key));
                }
                Turn::Has(Taken { slots, token, .. }) => {
                    // The answer to an earlier request was lost.
                    let token = match token {
                        Some(token) => token,
                        None => self.base_of(own).await?.token(own.created)?,
                    };
                    self.refresh(session).await?;
                    let grant = has(&mut place, &ask, claim, session, own, (token, slots), sent);
                    match grant {
                        Some(grant) => return Ok(Stood::Granted(grant)),
                        None => line = self.seen(&spot).await?,
                    }
                }
                Turn::Take
                    if listener.is_some() && line.others_take(own) && asked < *soon.get_or_insert(asked + SOON) =>
                {
                    self.wait_in_line(&mut place, own, &mut listener, &mut line, soon).await?;
                }
                Turn::Take => {
                    self.refresh(session).await?;
                    let Some((txn, taken)) = take(&spot, own, session, (&self.tokens, base), &line)? else {
                        // Somebody has some of whom nothing was heard. Or there are fewer than there were, and those who
                        // have them were asked for none back.
                        if line.has_news() {
                            line = self.seen(&spot).await?;
                        } else if waits {
                            self.wait_in_line(&mut place, own, &mut listener, &mut line, None).await?;
                        } else {
                            return self.let_go(place).await.map(|()| Stood::Busy);
                        }
                        continue;
                    };
                    let asking = transact(&self.connection, Again::Yes, txn).await;
                    let answer = asking.map_err(|failure| in_doubt(failure.into()))?;
                    if answer.succeeded() {
                        let Taken { slots, token, .. } = taken;
                        let with = (token.ok_or_else(nonsense)?, slots);
                        if let Some(grant) = has(&mut place, &ask, claim, session, own, with, sent) {
                            return Ok(Stood::Granted(grant));
                        }
                        line = self.seen(&spot).await?;
                        continue;
                    }
                    let at = revision(&answer).map_err(in_doubt)?;
                    let base = found(&answer).map_err(in_doubt)?.into_iter().next().and_then(|mut base| base.pop());
                    self.tokens.settle(&self.connection, base, at).await.map_err(in_doubt)?;
                    line = Followed::new(Arc::new(View::of(&spot.line, &answer).map_err(in_doubt)?), asked);
                }
                Turn::Wait if waits => self.wait_in_line(&mut place, own, &mut listener, &mut line, None).await?,
                Turn::Wait => return self.let_go(place).await.map(|()| Stood::Busy),
            }
        }
    }

    /// Ends when something happened in the line, or by then.
    async fn wait_in_line(
        &self,
        place: &mut Place,
        own: &Entry,
        listener: &mut Option<Listener>,
        line: &mut Followed,
        by: Option<tokio::time::Instant>,
    ) -> Result<()> {
        let listener = listener.get_or_insert_with(|| self.crowds.join(&self.changes, &place.spot));
        self.hear_of_line(place, own, listener, line, by).await
    }

    async fn seen(&self, spot: &Spot) -> Result<Followed> {
        let (asked, view) = self.view(spot).await?;
        Ok(Followed::new(view, asked))
    }
}

/// What became of a claim in line.
enum Stood {
    Granted(Grant),
    Busy,
    /// It has no place any more, and nothing of it is on its way.
    Gone,
}

/// None: its end was heard of meanwhile.
fn has(
    place: &mut Place,
    ask: &Ask,
    claim: &Claim,
    session: &Session,
    own: &Entry,
    (token, slots): (StoreToken, Slots),
    sent: Instant,
) -> Option<Grant> {
    let valid_until = session.valid_until().min(sent + claim.lease);
    place
        .holds(ask, own, valid_until)
        .then(|| Grant::new(token, valid_until).with_slots(slots).with_evidence([own.evidence()]))
}
