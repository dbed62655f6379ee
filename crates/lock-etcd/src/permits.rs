//! Semaphores: who has which permits, and whose turn it is.
//!
//! Those who want permits stand in one line, as for a lock. Whoever has enough permits left by all who are ahead of it, those
//! that wait included, may take them: so the line is first come, first served, and as those ahead only become fewer, what
//! was its turn stays so.
//!
//! How many permits there are, and who has which, is in one key without a lease. A holder is whoever is named there and
//! whose key is in the line; so a holder that dies has lost its permits with its key, and whoever writes next leaves it out.
//! Each write compares when that key was last put, and whether the own key is there: so no two have the same permit, and a
//! write that lands late does nothing. Tokens are counted from the revision of the put before, and rise with each grant.
//! Whoever comes while nobody is in line takes the first permits in the same request, by its own revision.
//!
//! The number of permits is that of who came first. Whoever stands in line has found the same number in the request that put
//! its key; `resize` changes it. The last who gives permits back deletes the key.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp, TxnResponse};
use lock_core::{Error, ErrorKind, LockName, Mode, Result, Slots, StoreToken};

use crate::Shared;
use crate::connection::Again;
use crate::error::nonsense;
use crate::follow::Followed;
use crate::keys::{end_of, stands_as};
use crate::requests::{Spot, found, get_key, is_there, line, nothing_between, revision, text, unchanged};
use crate::session::{Session, transact};
use crate::standing::Standing;
use crate::tokens::{Base, Tokens};
use crate::waiters::Entry;

/// What is known of the permits of a semaphore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permits {
    /// How many there are.
    pub(crate) of: u32,
    /// When this was put.
    pub(crate) put: i64,
    pub(crate) taken: Vec<Taken>,
}

/// Who has which of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) owner: String,
    pub(crate) slots: Slots,
    /// None: it is counted from when its key was created.
    pub(crate) token: Option<StoreToken>,
}

/// Who stands in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stands {
    pub(crate) entry: Entry,
    pub(crate) owner: String,
    /// How many permits it is for; all that there can be, if it is for none.
    pub(crate) weight: u32,
    pub(crate) has_lease: bool,
}

/// A line, and what was known of its permits at the same moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) at: i64,
    /// The first in line first.
    pub(crate) line: Vec<Stands>,
    pub(crate) permits: Option<Arc<Permits>>,
}

impl Permits {
    /// What is written there.
    pub(crate) fn read(key: &KeyValue) -> Result<Self> {
        let wrong = || {
            let wrong = format!("the key {:?} is not as it was written: remove it, with etcdctl del", text(key.key()));
            Error::new(ErrorKind::Refused, wrong)
        };
        let text = text(key.value());
        let mut lines = text.lines();
        let of = lines.next().and_then(|of| of.parse().ok()).ok_or_else(wrong)?;
        let taken = lines.map(|line| Taken::read(line).ok_or_else(wrong)).collect::<Result<_>>()?;
        Ok(Self { of, put: key.mod_revision(), taken })
    }

    fn text(&self) -> String {
        let lines = self.taken.iter().map(|taken| {
            let token = taken.token.map_or(0, StoreToken::get);
            format!("\n{} {token} {}", taken.slots, taken.owner)
        });
        std::iter::once(self.of.to_string()).chain(lines).collect()
    }

    /// Those whose keys are in the line, which was read at the same moment.
    pub(crate) fn holders(&self, line: &[Stands]) -> Vec<Taken> {
        let has_key = |taken: &&Taken| line.iter().any(|one| one.owner == taken.owner);
        self.taken.iter().filter(has_key).cloned().collect()
    }

    pub(crate) fn of_owner(&self, owner: &str) -> Option<&Taken> {
        self.taken.iter().find(|taken| taken.owner == owner)
    }
}

impl Taken {
    /// Nobody is given the same twice.
    pub(crate) fn id(&self) -> (String, Option<StoreToken>) {
        (self.owner.clone(), self.token)
    }

    fn read(line: &str) -> Option<Self> {
        let mut parts = line.splitn(3, ' ');
        let slots = parts.next()?.split(',').map(|slot| slot.parse().ok()).collect::<Option<Vec<u32>>>()?;
        let token = match parts.next()?.parse().ok()? {
            0 => None,
            token => Some(StoreToken::new(token).ok()?),
        };
        Some(Self { owner: parts.next()?.to_owned(), slots: Slots::new(slots), token })
    }
}

impl Stands {
    /// Whose key this is, in the line whose keys begin with that.
    fn of(line: &str, key: &KeyValue) -> Self {
        let entry = Entry::of(key);
        let standing = Standing::of(entry.key.strip_prefix(line).unwrap_or_default(), key, false);
        let weight = match standing.mode {
            Mode::Permits { take, .. } => take,
            _ => Mode::MOST_PERMITS,
        };
        Self { entry, owner: standing.owner.as_str().to_owned(), weight, has_lease: key.lease() != 0 }
    }
}

/// How many permits all of these are for.
pub(crate) fn weight<'a>(some: impl Iterator<Item = &'a Stands>) -> u32 {
    some.fold(0, |sum, stands| sum.saturating_add(stands.weight))
}

impl View {
    /// What a request that asked for it by [`view`] found last.
    pub(crate) fn of(line: &str, answer: &TxnResponse) -> Result<Self> {
        let mut found = found(answer)?;
        let (permits, keys) = (found.pop().ok_or_else(nonsense)?, found.pop().ok_or_else(nonsense)?);
        let permits = permits.first().map(Permits::read).transpose()?.map(Arc::new);
        Ok(Self { at: revision(answer)?, line: keys.iter().map(|key| Stands::of(line, key)).collect(), permits })
    }

    /// Might it take its permits at once, should it join the line now?
    pub(crate) fn has_room(&self, spot: &Spot) -> bool {
        let taken = weight(self.line.iter());
        let of = self.permits.as_ref().map_or(0, |permits| permits.of);
        taken.saturating_add(spot.mode.weight()) <= of
    }

    /// # Errors
    /// If others are in line for another kind.
    pub(crate) fn check_kind(&self, spot: &Spot) -> Result<()> {
        let Some(first) = self.line.iter().find(|one| one.entry.key != spot.place) else { return Ok(()) };
        match (stands_as(first.entry.key.strip_prefix(&spot.line).unwrap_or_default()), &self.permits) {
            (Mode::Permits { .. }, Some(permits)) => spot.mode.check_kind(Mode::Permits { take: 1, of: permits.of }),
            (Mode::Permits { .. }, None) => Err(nonsense()),
            (lock, _) => spot.mode.check_kind(lock),
        }
    }
}

/// What is put with the seat of a semaphore: the first permits are its own.
pub(crate) fn seated(spot: &Spot) -> Option<(String, String)> {
    let (key, Mode::Permits { of, .. }) = (spot.permits.as_ref()?, spot.mode) else { return None };
    let first = Taken { owner: spot.owner.as_str().to_owned(), slots: Slots::free(spot.mode, []), token: None };
    Some((key.clone(), Permits { of, put: 0, taken: vec![first] }.text()))
}

/// Asks for the line and the permits.
pub(crate) fn view(spot: &Spot) -> Vec<TxnOp> {
    [line(&spot.line)].into_iter().chain(spot.permits.as_deref().map(get_key)).collect()
}

/// Takes permits for whom it is the turn; else answers the base of tokens, the line and the permits. None: there are too few,
/// since there are fewer of them than there were.
pub(crate) fn take(
    spot: &Spot,
    own: &Entry,
    session: &Session,
    (tokens, base): (&Tokens, Base),
    line: &Followed,
) -> Result<Option<(Txn, Taken)>> {
    let (Some(key), Some(permits)) = (&spot.permits, line.permits()) else { return Err(nonsense()) };
    let Mode::Permits { take, .. } = spot.mode else { return Err(nonsense()) };
    let mut holders = line.holders();
    // What an earlier key of this owner had is no more than what is free.
    holders.retain(|taken| taken.owner != spot.owner.as_str());
    let slots = holders.iter().flat_map(|taken| taken.slots.as_slice());
    let slots = Slots::free(Mode::Permits { take, of: permits.of }, slots.copied());
    if slots.as_slice().len() < take as usize {
        return Ok(None);
    }
    let taken = Taken { owner: spot.owner.as_str().to_owned(), slots, token: Some(base.token(permits.put + 1)?) };
    holders.push(taken.clone());
    let after = Permits { of: permits.of, put: 0, taken: holders };
    let is_known = Compare::mod_revision(key.as_str(), CompareOp::Equal, permits.put);
    let txn = Txn::new()
        .when(is_there(own, session).into_iter().chain([is_known, tokens.is_present(base)]).collect::<Vec<_>>())
        .and_then([TxnOp::put(key.as_str(), after.text(), None)])
        .or_else([tokens.get()].into_iter().chain(self::view(spot)).collect::<Vec<_>>());
    Ok(Some((txn, taken)))
}

/// Ends the hold of who has this key, if it was last put at this revision; and forgets the semaphore if nobody else is in
/// line.
pub(crate) fn end(spot: &Spot, key: &str, put: i64) -> Txn {
    let after = [key.as_bytes(), &[0]].concat();
    let alone = [nothing_between(spot.line.as_str(), key), nothing_between(after, end_of(&spot.line))];
    let forget = spot.permits.iter().map(|permits| TxnOp::delete(permits.as_str(), None));
    let last = TxnOp::txn(Txn::new().when(alone).and_then(forget.collect::<Vec<_>>()));
    unchanged(key, put).and_then([TxnOp::delete(key, None), last])
}

impl Shared {
    /// How many permits there are where somebody is in line for some: the same as those who are.
    ///
    /// # Errors
    /// If this claim, which is not for permits, is of another kind than who has this key.
    pub(crate) async fn check_kind(&self, spot: &Spot, other: &KeyValue) -> Result<()> {
        let shown = text(other.key());
        if stands_as(shown.strip_prefix(&spot.line).unwrap_or_default()).is_kind_of(spot.mode) {
            return Ok(());
        }
        let asking =
            transact(&self.connection, Again::Yes, Txn::new().and_then([get_key(&self.keys.permits(&spot.line))]));
        let permits = found(&asking.await?)?.pop().and_then(|mut found| found.pop());
        match permits.as_ref().map(Permits::read).transpose()? {
            Some(permits) => spot.mode.check_kind(Mode::Permits { take: 1, of: permits.of }),
            // They have gone.
            None => Ok(()),
        }
    }

    pub(crate) async fn resize(&self, name: &LockName, permits: u32) -> Result<bool> {
        let prefix = self.keys.line(name);
        let key = self.keys.permits(&prefix);
        let view = [line(&prefix), get_key(&key)];
        let wanted = Mode::Permits { take: 1, of: permits };
        let asking = transact(&self.connection, Again::Yes, Txn::new().and_then(view.clone()));
        let mut view_now = View::of(&prefix, &asking.await?)?;
        loop {
            let Some(last) = view_now.line.last().map(|last| &last.entry) else { return Ok(false) };
            let other = view_now.line.iter().find_map(|one| {
                let mode = stands_as(one.entry.key.strip_prefix(&prefix).unwrap_or_default());
                mode.permits().is_none().then_some(mode)
            });
            other.map_or(Ok(()), |other| wanted.check_kind(other))?;
            let Some(known) = &view_now.permits else { return Err(nonsense()) };
            let holders = known.holders(&view_now.line);
            let waits = |one: &&Stands| !holders.iter().any(|holder| holder.owner == one.owner);
            let most = view_now.line.iter().filter(waits).map(|one| one.weight).max().unwrap_or_default();
            if most > permits {
                return Err(Mode::too_few(permits, most));
            }
            if known.of == permits {
                return Ok(true);
            }
            let after = Permits { of: permits, put: 0, taken: holders };
            // Nobody has joined since. And those who wait hear of it, since somebody's key is put once more.
            let nobody_new = Compare::mod_revision(prefix.as_str(), CompareOp::Less, view_now.at + 1);
            let tell = PutOptions::new().with_ignore_value().with_ignore_lease();
            let txn = Txn::new()
                .when([
                    Compare::mod_revision(key.as_str(), CompareOp::Equal, known.put),
                    nobody_new.with_range(end_of(&prefix)),
                    Compare::create_revision(last.key.as_str(), CompareOp::Equal, last.created),
                ])
                .and_then([TxnOp::put(key.as_str(), after.text(), None), TxnOp::put(last.key.as_str(), "", Some(tell))])
                .or_else(view.clone());
            let answer = transact(&self.connection, Again::Yes, txn).await?;
            if answer.succeeded() {
                return Ok(true);
            }
            view_now = View::of(&prefix, &answer)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let taken = |owner: &str, slots: &[u32], token: u64| Taken {
            owner: owner.to_owned(),
            slots: Slots::new(slots.iter().copied()),
            token: StoreToken::new(token).ok().filter(|_| token > 0),
        };
        let permits = Permits { of: 5, put: 0, taken: vec![taken("a b@c:1#2", &[0, 3], 0), taken("x", &[1], 77)] };
        assert_eq!(permits.text(), "5\n0,3 0 a b@c:1#2\n1 77 x");
        let lines: Vec<_> = permits.text().lines().skip(1).map(|line| Taken::read(line).unwrap()).collect();
        assert_eq!(lines, permits.taken);
        for bad in ["", "1", "1 2", "x 1 a", "1 x a"] {
            assert_eq!(Taken::read(bad), None, "{bad}");
        }
    }
}
