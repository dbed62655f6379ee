//! Locks that several hold at a time, as readers or with permits.
//!
//! Then the lock's owner is a mark, `shared#` or `permits#5`, until the end of the longest of their leases, and each has a row
//! in `holder`: so whoever wants the lock alone finds it held. Without the mark these rows mean nothing.
//!
//! A reader that finds the lock free has none: it takes, prolongs and releases the lock as its owner would alone, under the name
//! `shared#` and its own. It gets a row from whoever joins it. So whatever is done for a reader is tried first under that
//! name, and then by its row.
//!
//! Who may have it is decided here (`decide.rs`) by what one statement read, and written by a script on condition that the
//! lock's row is what it was; else it is read anew. Each such write, and each renewal, raises the row's `rev`. A write that
//! grants somebody in line demands that its place is there, and locks it; and one that leaves nobody in line, that nobody
//! else is: see `statements.rs`. The first in line is served by whoever frees the lock, and if that one wants it beside
//! others, in a second request, by what the first was answered. Whoever waits has its grant from the bell, as of a mutex.

use lock_core::{
    Claim, Error, ErrorKind, Grant, Holder, InLine, Instant, LockName, LockStatus, Mode, OwnerId, Renewal, Result,
    Slots, StoreToken, Unlocked, Waiter,
};
use sqlx::mysql::MySqlRow;

use super::acquire::{Seen, Turn};
use super::decide::{Asks, Held, State, Waits};
use super::hand_over::READ_AND_HANDED_OVER;
use super::line::Place;
use super::release::mark;
use super::{MySqlLock, arguments, changed, hex, inserted};
use crate::keys::{duration, holder, micros};
use crate::modes::{mode, only_reader, text};
use crate::server::{Again, Answer, Read, given_up};

impl MySqlLock {
    /// Takes it, if it can be had now. Who can enter the line finds out there what a reader is not told here.
    pub(super) async fn try_beside(&self, claim: &Claim, key: &str, may_enter: bool) -> Result<Option<Grant>> {
        self.sweep_if_due();
        if claim.mode == Mode::Shared {
            let grant = self.share(claim, key).await?;
            if grant.is_some() || may_enter {
                return Ok(grant);
            }
        }
        let (state, sent) = self.state(key, Some(&claim.owner)).await?;
        match self.settle(claim, key, state, sent, false).await? {
            Turn::Granted(grant) => Ok(Some(grant)),
            Turn::Waits(_) => Ok(None),
        }
    }

    /// Enters the line, unless it can be had now.
    pub(super) async fn enter_beside(&self, claim: &Claim, key: &str, client: i64) -> Result<Turn> {
        let is_new = self.line.place(&claim.owner).is_none();
        self.line.note(&claim.owner, Place::Waits);
        let owner = claim.owner.as_str();
        let another = match claim.mode {
            // Who keeps its place may find another number of permits.
            _ if !is_new => "FALSE".to_owned(),
            Mode::Permits { of, .. } => format!("owner <> {}", hex(&format!("permits#{of}"))),
            _ => "LEFT(owner, 8) = 'permits#'".to_owned(),
        };
        let values = [
            ("{key}", &hex(key)),
            ("{owner}", &hex(owner)),
            ("{only}", &hex(&only_reader(&claim.owner))),
            ("{another}", &another),
            ("{mark}", &hex(&mark(&claim.owner))),
            ("{lease}", &micros(claim.lease).to_string()),
            ("{client}", &client.to_string()),
            ("{mode}", &hex(&text(claim.mode))),
        ];
        loop {
            let on_its_way = self.unsettled.send(&claim.owner);
            let entered = self.run(&self.statements.enter_beside, values, 7, Again::Yes).await;
            let answer = on_its_way.answered(entered)?;
            if let Some(state) = read_state(&answer.rows)? {
                return self.settle(claim, key, state, answer.sent, is_new).await;
            }
            self.make(key).await?;
        }
    }

    /// Gives the lock to those in line who can have it by what was read, and behind them to this one.
    async fn settle(
        &self,
        claim: &Claim,
        key: &str,
        mut state: State,
        mut sent: Instant,
        has_entered: bool,
    ) -> Result<Turn> {
        let who = Waits {
            owner: claim.owner.as_str().to_owned(),
            mode: claim.mode,
            lease_us: micros(claim.lease),
            client: String::new(),
            rings: 0,
        };
        let was_in_line = self.line.place(&claim.owner).is_some() && !has_entered;
        loop {
            if state.gone {
                return Err(given_up());
            }
            if let Some(held) = state.together().find(|held| held.owner == who.owner) {
                return self.found(claim, held).await.map(Turn::Granted);
            }
            if let Some(kind) = state.kind(&who.owner).filter(|_| !was_in_line)
                && let Err(wrong) = claim.mode.check_kind(kind)
            {
                if has_entered {
                    self.leave(&claim.owner).await.map_err(Error::after_something_was_done)?;
                    self.line.forget(&claim.owner);
                }
                return Err(wrong);
            }
            let at = InLine { sent, store_us: state.now_us };
            let Some(change) = state.decide(&Asks::Wants(&who)) else {
                return Ok(Turn::Waits(Seen { left_us: Some(state.left_us()), token: state.token, at }));
            };
            let on_its_way = self.unsettled.send(&claim.owner);
            let answer = on_its_way.answered(self.ask_to_write(key, &state, &change, Some(&claim.owner)).await)?;
            if self.wrote(&answer, &change).await {
                let Some(held) = change.added.iter().find(|held| held.owner == who.owner) else {
                    let left_us = Some(change.expires_us - state.now_us);
                    return Ok(Turn::Waits(Seen { left_us, token: change.token, at }));
                };
                let grant = Grant::new(StoreToken::new(held.token as u64)?, sent + duration(held.lease_us));
                return Ok(Turn::Granted(grant.with_slots(held.slots.clone())));
            }
            // Where readers come and go all the time, the state is always another by the time that this writes.
            if claim.mode == Mode::Shared
                && !has_entered
                && let Some(grant) = self.share(claim, key).await?
            {
                return Ok(Turn::Granted(grant));
            }
            (state, sent) = self.state(key, Some(&claim.owner)).await?;
        }
    }

    /// Takes the lock to read, alone or with others, if nobody may be in line.
    async fn share(&self, claim: &Claim, key: &str) -> Result<Option<Grant>> {
        if let Some(grant) = self.grant(claim, &only_reader(&claim.owner), key, false).await? {
            return Ok(Some(grant));
        }
        let (lease_us, mark) = (micros(claim.lease), mark(&claim.owner));
        let values = [
            ("{key}", &hex(key)),
            ("{owner}", &hex(claim.owner.as_str())),
            ("{mark}", &hex(&mark)),
            ("{lease}", &lease_us.to_string()),
        ];
        let on_its_way = self.unsettled.send(&claim.owner);
        let answer = on_its_way.answered(self.run(&self.statements.share, values, 7, Again::Yes).await)?;
        if changed(&answer, 2) == 0 {
            return Ok(None);
        }
        Ok(Some(Grant::new(StoreToken::new(inserted(&answer, 2))?, answer.sent + duration(lease_us))))
    }

    /// The grant that was found to be ours: see `confirmed`.
    async fn found(&self, claim: &Claim, held: &Held) -> Result<Grant> {
        match self.renew_one_beside(claim).await {
            Ok(Renewal::Held { valid_until }) => {
                Ok(Grant::new(StoreToken::new(held.token as u64)?, valid_until).with_slots(held.slots.clone()))
            }
            Ok(_) => Err(Error::new(ErrorKind::Unknown, "its lease is over")),
            Err(error) => Err(error.after_something_was_done()),
        }
    }

    /// Ends the hold of this owner, who has the lock beside others.
    pub(super) async fn release_beside(&self, claim: &Claim, has_line: bool) -> Result<Unlocked> {
        let key = self.prefix.key(&claim.name);
        if !has_line && self.part(claim, &key).await? {
            return Ok(Unlocked::Released);
        }
        if claim.mode == Mode::Shared && self.end_reading(&claim.owner, &key).await? {
            return Ok(Unlocked::Released);
        }
        self.end_beside(&key, &[claim.owner.as_str().to_owned()]).await
    }

    /// Ends one of several holds, or that of the only reader, if nobody may be in line.
    async fn part(&self, claim: &Claim, key: &str) -> Result<bool> {
        // Sent again, these would say that the lock was not held.
        if claim.mode == Mode::Shared && self.free(key, &only_reader(&claim.owner)).await? == Some(Unlocked::Released) {
            return Ok(true);
        }
        let values = [("{key}", &hex(key)), ("{owner}", &hex(claim.owner.as_str()))];
        let answer = self.run(&self.statements.part, values, 6, Again::No).await?;
        Ok(changed(&answer, 3) > 0)
    }

    /// Ends the hold of a reader, and hands the lock to the first in line if it was the last.
    async fn end_reading(&self, owner: &OwnerId, key: &str) -> Result<bool> {
        let only = hex(&only_reader(owner));
        let values = [("{key}", &hex(key)), ("{owner}", &hex(owner.as_str())), ("{only}", &only)];
        let (done, first) = READ_AND_HANDED_OVER;
        let answer = self.run(&self.statements.end_reading, values, done, Again::No).await?;
        let has_it = changed(&answer, first) > 0;
        if has_it {
            self.serve_others(key, &answer).await;
        }
        Ok(has_it)
    }

    /// Ends these holds, and serves the line.
    async fn end_beside(&self, key: &str, owners: &[String]) -> Result<Unlocked> {
        loop {
            let (state, _) = self.state(key, None).await?;
            let held = state.together().any(|held| owners.contains(&held.owner));
            if let Some(change) = state.decide(&Asks::Leave(owners))
                && !self.write(key, &state, &change).await?
            {
                continue;
            }
            return Ok(if held { Unlocked::Released } else { Unlocked::NotHeld });
        }
    }

    /// After a hand-over, which serves only who wants the lock alone: hands it to those in line who can have it beside
    /// others.
    pub(super) async fn serve_beside(&self, key: &str, answer: &Answer<sqlx::MySql>) -> Result<()> {
        match answer.rows.first().map_or(Ok(0), |row| row.read::<i64, _>("beside"))? {
            0 => Ok(()),
            _ => self.end_beside(key, &[]).await.map(drop),
        }
    }

    pub(super) async fn renew_beside(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let mut renewals = Vec::with_capacity(claims.len());
        for claim in claims {
            renewals.push(self.renew_one_beside(claim).await?);
        }
        Ok(renewals)
    }

    async fn renew_one_beside(&self, claim: &Claim) -> Result<Renewal> {
        let key = self.prefix.key(&claim.name);
        let shares = claim.mode == Mode::Shared;
        // Who was in line has a row, but for a request of which a copy came late.
        if (!shares || self.line.place(&claim.owner).is_some())
            && let held @ Renewal::Held { .. } = self.renew_row(claim, &key).await?
        {
            return Ok(held);
        }
        if !shares {
            return Ok(Renewal::NotHeld);
        }
        let (lease_us, only) = (micros(claim.lease), only_reader(&claim.owner));
        let arguments = arguments!(lease_us, lease_us, key.as_str(), only.as_str());
        let answer = self.server.run(&self.statements.renew_one, arguments, Again::Yes).await?;
        if changed(&answer, 0) > 0 {
            return Ok(Renewal::Held { valid_until: answer.sent + duration(lease_us) });
        }
        // Somebody may just have joined it.
        self.renew_row(claim, &key).await
    }

    async fn renew_row(&self, claim: &Claim, key: &str) -> Result<Renewal> {
        let lease_us = micros(claim.lease);
        let values =
            [("{key}", &hex(key)), ("{owner}", &hex(claim.owner.as_str())), ("{lease}", &lease_us.to_string())];
        let answer = self.run(&self.statements.renew_beside, values, 6, Again::Yes).await?;
        let valid_until = answer.sent + duration(lease_us);
        Ok(if changed(&answer, 2) > 0 { Renewal::Held { valid_until } } else { Renewal::NotHeld })
    }

    /// Ends the holds of all who have the lock together, and answers the first; or of this owner alone.
    pub(super) async fn end_some(&self, name: &LockName, owner: Option<&OwnerId>) -> Result<Option<Holder>> {
        let key = self.prefix.key(name);
        loop {
            let (state, _) = self.state(&key, None).await?;
            let ended: Vec<_> =
                state.together().filter(|held| owner.is_none_or(|owner| held.owner == owner.as_str())).collect();
            let Some(first) = ended.first() else { return Ok(None) };
            let kind = state.held_as().unwrap_or_default();
            let first = held_as(first, kind, state.now_us)?;
            let owners: Vec<_> = ended.iter().map(|held| held.owner.clone()).collect();
            if let Some(change) = state.decide(&Asks::Leave(&owners))
                && self.write(&key, &state, &change).await?
            {
                return Ok(Some(first));
            }
        }
    }

    pub(super) async fn set_permits(&self, name: &LockName, permits: u32) -> Result<bool> {
        let key = self.prefix.key(name);
        loop {
            let (state, _) = self.state(&key, None).await?;
            let Some(kind) = state.kind("") else { return Ok(false) };
            if kind.permits().is_none() {
                return Mode::Permits { take: 1, of: permits }.check_kind(kind).map(|()| false);
            }
            let most = state.waiters.iter().map(|waits| waits.mode.weight()).max().unwrap_or_default();
            if most > permits {
                return Err(Mode::too_few(permits, most));
            }
            let change = state.decide(&Asks::Resize(permits));
            if let Some(change) = change
                && self.write(&key, &state, &change).await?
            {
                return Ok(true);
            }
        }
    }

    /// The lock as it is, and when that was asked.
    async fn state(&self, key: &str, asks: Option<&OwnerId>) -> Result<(State, lock_core::Instant)> {
        let mark = asks.map(mark).unwrap_or_default();
        loop {
            let arguments = arguments!(mark.as_str(), key, key, key);
            let answer = self.server.run(&self.statements.state, arguments, Again::Yes).await?;
            if let Some(state) = read_state(&answer.rows)? {
                return Ok((state, answer.sent));
            }
            self.make(key).await?;
        }
    }

    /// A lock with those who hold it together.
    pub(super) async fn status_beside(&self, name: &LockName) -> Result<LockStatus> {
        let (state, _) = self.state(&self.prefix.key(name), None).await?;
        let kind = state.held_as().unwrap_or_default();
        let holders = state.together().map(|held| held_as(held, kind, state.now_us)).collect::<Result<Vec<_>>>()?;
        let waiters = state.waiters.iter().map(|one| Waiter::new(OwnerId::from_store(&one.owner), one.mode));
        Ok(LockStatus::new(name.clone(), holders, waiters))
    }
}

fn held_as(held: &Held, kind: Mode, now_us: i64) -> Result<Holder> {
    let holder = holder(&held.owner, now_us - held.since_us, held.expires_us - now_us, held.token)?;
    Ok(holder.with_mode(kind, held.slots.clone()))
}

/// None: the lock has no row.
fn read_state(rows: &[MySqlRow]) -> Result<Option<State>> {
    let (mut state, mut waiters, mut is_there) = (State::default(), Vec::new(), false);
    for row in rows {
        let text = |column| {
            row.read::<Option<Vec<u8>>, _>(column)
                .map(|text| text.map(|text| String::from_utf8_lossy(&text).into_owned()))
        };
        let owner = text("owner")?;
        let number = |column| row.read::<i64, _>(column);
        let rest = text("text")?.unwrap_or_default();
        match number("what")? {
            0 => {
                is_there = true;
                (state.owner, state.token, state.expires_us) = (owner, number("a")?, number("b")?);
                (state.rev, state.since_us, state.now_us) = (number("c")?, number("d")?, number("e")?);
                state.gone = rest == "gone";
            }
            1 => state.holders.push(Held {
                owner: owner.unwrap_or_default(),
                token: number("a")?,
                expires_us: number("b")?,
                lease_us: number("c")?,
                since_us: number("d")?,
                slots: Slots::from_store(&rest),
            }),
            _ if number("d")? == 0 => state.absent.extend(owner),
            _ => {
                let (how, client) = rest.split_once(' ').unwrap_or_default();
                let waits = Waits {
                    owner: owner.unwrap_or_default(),
                    mode: mode(how),
                    lease_us: number("b")?,
                    client: client.to_owned(),
                    rings: number("c")?,
                };
                waiters.push((number("a")?, waits));
            }
        }
    }
    waiters.sort_by_key(|(ticket, _)| *ticket);
    state.waiters = waiters.into_iter().map(|(_, waits)| waits).collect();
    state.holders.sort_by_key(|held| held.token);
    state.has_only_reader();
    Ok(is_there.then_some(state))
}
