//! What a backend author writes: one trait, and what its verbs answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};

use crate::contract::{
    Claim, Clock, Error, ErrorKind, Evidence, Finding, Holder, Instant, ListQuery, LockName, LockStatus, LockValue,
    Mode, Modes, OwnerId, Page, Reservation, Reserved, Result, Slots, StoreToken,
};

/// A store that grants locks. Backends implement this; applications use [`Locks`](crate::Locks), which adds what is the
/// same for every store: renewal, loss, clean-up, waiting limits.
///
/// # The contract
///
/// The suite in `conformance-tests` holds a backend to these rules:
///
/// 1. **Idempotent per owner.** Any verb may be repeated after a lost reply. [`try_lock`](Self::try_lock) by the owner
///    that already holds answers with the same grant; [`unlock`](Self::unlock) by an owner that holds nothing answers
///    [`Unlocked::NotHeld`] and changes nothing for anyone else.
/// 2. **Cancelled means gone.** Any future of this trait may be dropped at any await. The core then calls `unlock` with
///    the same claim, and once that answered, the owner holds nothing and waits for nothing, even if an earlier request
///    of it is still on its way and lands later.
/// 3. **`None` leaves nothing behind**, and so does every error whose
///    [`is_refused`](crate::Error::is_refused) is true. Every other error means *unknown*, and the core calls `unlock`.
/// 4. **The store decides who holds, by the store's clock.** No wall clock of the client takes part in a decision.
/// 5. **`valid_until` counts from the moment a request was sent that the store then confirmed by a committed write**:
///    never from a reply's or a message's arrival, and never from a ping, a keep-alive's answer or a read, all of which
///    stores were seen to answer after the lock had gone. It uses the lease that the store granted, not the one asked
///    for.
/// 6. **Tokens rise.** Over release, expiry, crash, eviction, restart and clean-up, a later grant of a name has a
///    higher token. A [shared](crate::Mode::Shared) grant's is above that of every earlier exclusive grant and below that of
///    every later one; among shared grants nothing is promised. Those of [permits](crate::Mode::Permits) rise for each slot.
/// 7. **Busy is not an error, an error is not busy.** A dead server, a wrong password and a full disk are errors with
///    their source inside.
/// 8. **Every request is bounded in time.** A server that accepts and never answers costs a bounded wait and yields an
///    error. (A wait for the lock itself has no bound of its own: the core drops it when its time is over.)
/// 9. **A kept hold belongs to nobody.** After [`keep`](Self::keep) the owner holds nothing: its `unlock` and its
///    `renew` answer that it does not, and change nothing. The lock is not free, though, until the time that was given
///    is over or somebody evicts the hold: neither the end of the process, nor of its session, nor a restart of the
///    store that other holds survive changes that. Whoever waits is granted the lock soon after, as after a lease.
/// 10. **A value stands and goes with its hold.** It is there from the grant on, only its owner changes it, and nobody
///    sees that of one who waits.
/// 11. **Modes keep apart what must be.** Nobody holds a lock beside an exclusive holder; the permits that are held are
///    never more than there are, and no two holders have the same slot. There is one line, in the order of arrival: who
///    cannot be granted yet stops those behind, and [`try_lock`](Self::try_lock) overtakes nobody. (A store that is not
///    [fair](Capabilities::fair) keeps the rest of this rule.) Each holder has a lease of its own, and no other's renewal
///    prolongs it. As long as somebody holds or waits, the name is of their [kind](crate::Mode::is_kind_of): to a claim of
///    another kind the answer is [`ErrorKind::Invalid`], from [`Mode::check_kind`](crate::Mode::check_kind). A claim asks only for
///    [`modes`](Capabilities::modes) that the store has; [`keep`](Self::keep) and values are exclusive holders'.
#[async_trait]
pub trait DistributedLock: fmt::Debug + Send + Sync + 'static {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// The clock whose instants [`Grant`] and [`Renewal`] carry. The core uses the same one.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Takes the lock now or not at all: `None` means that another owner holds it (or, where the store is fair, waits
    /// for it).
    ///
    /// # Errors
    /// Rule 3. A lost reply is an [`Unknown`](crate::ErrorKind::Unknown).
    ///
    /// # Cancel safety
    /// Rule 2: the caller then calls [`unlock`](Self::unlock).
    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>>;

    /// Takes all of these locks now or none, in one request. The claims are of different names, exclusive, and show no value.
    /// There are as many grants as claims, in their order. `None` means that one of the locks is not free as
    /// [`try_lock`](Self::try_lock) means it, or that the store cannot take these together at the moment: then the core
    /// asks for one after the other. It is never repeated with the same claims: after a lost reply, each of them is unlocked.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] unless [`Capabilities::takes_all`]. Else rule 3, for each of the claims: after any error
    /// that is not refused, the core calls [`unlock`](Self::unlock) with each.
    ///
    /// # Cancel safety
    /// Rule 2, for each of the claims.
    async fn try_lock_all(&self, _claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        Err(self.capabilities().cannot(TAKE_ALL))
    }

    /// Waits until the lock is granted, without end.
    ///
    /// # Errors
    /// Rule 3. A store that is down is an error within bounded time, not a longer wait.
    ///
    /// # Cancel safety
    /// Rule 2: the caller then calls [`unlock`](Self::unlock), which also leaves the queue.
    async fn lock(&self, claim: &Claim) -> Result<Grant>;

    /// Releases the lock, or leaves the queue for it.
    ///
    /// # Errors
    /// After any error the lock may still be held; the call may be repeated.
    async fn unlock(&self, claim: &Claim) -> Result<Unlocked>;

    /// Prolongs many leases with as few requests as the store allows, with one answer for each claim, in their order.
    ///
    /// # Errors
    /// An error is one claim's. It says nothing about the hold: only [`Renewal::NotHeld`] does.
    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>>;

    /// Lets the hold go on without its owner for `rest`, by the store's clock, from when the store does this: rule 9. Whether
    /// that is longer or shorter than the lease makes no difference.
    ///
    /// Repeated while the hold is kept, it changes nothing and answers the same.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] unless [`Capabilities::keeps`]. After any other error it may have been done, and the call may be
    /// repeated.
    async fn keep(&self, _claim: &Claim, _rest: Duration) -> Result<Kept> {
        Err(self.capabilities().cannot(KEEP))
    }

    /// Shows another value with the hold: rule 10. The claim was made with a value.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] unless [`Capabilities::values`]. After any other error it may have been done, and the call may be
    /// repeated.
    async fn proclaim(&self, _claim: &Claim, _value: &LockValue) -> Result<Proclaimed> {
        Err(self.capabilities().cannot(SHOW))
    }

    /// An item whenever another may hold this lock than before, or its value may have changed: then it is worth to ask
    /// [`holder`](Self::holder). Too many items cost a request each, and one that is missing costs time: whoever observes asks
    /// now and then in any case, the more seldom if [`Capabilities::tells_changes`].
    fn changes(&self, _name: &LockName) -> BoxStream<'static, ()> {
        stream::pending().boxed()
    }

    /// What the store says of holds without being asked, from now on. A store that says nothing has a stream without
    /// items. What is missed costs no safety: renewals tell it too.
    fn notices(&self) -> BoxStream<'static, Notice> {
        stream::pending().boxed()
    }

    /// Who holds the lock, and who waits.
    async fn inspect(&self, name: &LockName) -> Result<LockStatus>;

    /// Who holds the lock, whoever waits. Where that costs less than [`inspect`](Self::inspect), the backend has it: all whose
    /// waits are over at the same time ask it, and there may be thousands, each of which would read the whole line.
    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        Ok(self.inspect(name).await?.into_holder())
    }

    /// The locks that are held or waited for, in the order of their names, a page at a time.
    async fn list(&self, query: &ListQuery) -> Result<Page>;

    /// Ends a hold by force, whoever's it is, and answers whose it was. The owner learns of it as a loss. Of several holders
    /// all lose the lock, and the first is answered.
    async fn evict(&self, name: &LockName) -> Result<Option<Holder>>;

    /// Ends the hold of this owner by force, and no other's: of several who hold a lock together only this one loses it. To be
    /// written by stores with other modes; without them a lock has one holder, whom [`evict`](Self::evict) ends.
    async fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        match self.holder(name).await? {
            Some(holder) if holder.owner == *owner && holder.mode == Mode::Exclusive => self.evict(name).await,
            Some(holder) if holder.mode != Mode::Exclusive => {
                Err(self.capabilities().cannot("end the hold of one of several"))
            }
            _ => Ok(None),
        }
    }

    /// Every claim that is made after this has answered gets a token above `above`, if it is granted; and where
    /// [`Capabilities::numbers_grants`], so does every claim that is granted after this has answered. A store that counts
    /// for many names at once may raise the tokens of all of them. What stands already above it stays. A holder keeps
    /// the token of its grant; a store with one number for each name may show it with the raised one until its hold ends.
    ///
    /// It may be repeated after a lost reply.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] unless the backend can do it, and then [`Capabilities::raises_tokens`] says so. After any other error it may have been done.
    async fn raise_tokens(&self, _name: &LockName, _above: StoreToken) -> Result<()> {
        Err(self.capabilities().cannot(RAISE))
    }

    /// Makes the permits of a semaphore that is in use so many: more are granted at once to those who wait, and fewer are
    /// left to those who hold more. From then on it is of that kind, also for those who wait. `false`: it is not in use,
    /// and the first who asks for it says how many there are.
    ///
    /// It may be repeated after a lost reply.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for what is in use as a lock, and for fewer permits than somebody waits for;
    /// [`ErrorKind::Unsupported`] unless the store has [permits](crate::Modes::permits).
    async fn resize(&self, _name: &LockName, _permits: u32) -> Result<bool> {
        Err(self.capabilities().cannot(RESIZE))
    }

    /// Reserves time in the line of a rate limiter, by the store's clock: see [`Reservation`]. One number for each name is
    /// all that the store keeps, and it may forget that when it has passed. The names of limiters are apart from those of locks.
    ///
    /// Repeated after a lost reply, it reserves once more: less is used then than the rate allows, never more.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] unless [`Capabilities::limits_rates`]. After any other error it may have been done.
    async fn reserve(&self, _name: &LockName, _wanted: &Reservation) -> Result<Reserved> {
        Err(self.capabilities().cannot(LIMIT))
    }

    /// Settings of the store that void a promise.
    async fn doctor(&self) -> Result<Vec<Finding>>;

    /// Closes connections. Later calls may fail with [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    async fn close(&self) -> Result<()>;
}

/// What not every store can do.
pub(crate) const KEEP: &str = "keep a lock for an owner that has gone";
pub(crate) const SHOW: &str = "show a value with a lock";
const RESIZE: &str = "count permits: it has no semaphores";
const RAISE: &str = "raise its tokens";
pub(crate) const TAKE_ALL: &str = "take several locks in one request";
pub(crate) const LIMIT: &str =
    "limit a rate: that needs a store whose writes are cheap, such as redis, postgres, mysql, sqlite or memory";

/// How far a lock of a store reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// The tasks of one process.
    Process,
    /// The processes of one host.
    Host,
    /// Every host that reaches the store.
    Network,
}

/// What a store can do. A backend makes it by [`Capabilities::new`] and sets what it can do besides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The backend's name, as in its URL.
    pub backend: &'static str,
    /// How far its locks reach.
    pub scope: Scope,
    /// Are claims that ask for it (see [`Claim::fair`]) granted first come, first served?
    pub fair: bool,
    /// Does it know [`raise_tokens`](DistributedLock::raise_tokens)?
    pub raises_tokens: bool,
    /// Does a grant get its number when it is granted, and not when its claim joins the line? Then the number to which tokens
    /// are [raised](DistributedLock::raise_tokens) is a floor for every grant after that, also of a claim made before.
    pub numbers_grants: bool,
    /// Does it know [`keep`](DistributedLock::keep)?
    pub keeps: bool,
    /// Does it know values, and [`proclaim`](DistributedLock::proclaim)?
    pub values: bool,
    /// In which modes can it be held besides [`Mode::Exclusive`](crate::Mode::Exclusive)?
    pub modes: Modes,
    /// Does it know [`try_lock_all`](DistributedLock::try_lock_all)?
    pub takes_all: bool,
    /// Does it know [`reserve`](DistributedLock::reserve)?
    pub limits_rates: bool,
    /// Does it tell [`changes`](DistributedLock::changes), so that whoever observes need not ask so often?
    pub tells_changes: bool,
    /// Is an eviction noticed at once, not only at the next renewal?
    pub prompt_loss: bool,
    /// The shortest lease it can give: a millisecond unless set.
    pub min_lease: Duration,
    /// The longest lease it can give; `None`: any.
    pub max_lease: Option<Duration>,
    /// How long a request may go without an answer. What takes several times as long and then fails stood in line
    /// meanwhile, so that the store was there.
    pub answers_within: Duration,
    /// Which setting of this backend can do more, such as `mode=row`: for the error of what it cannot do.
    pub more_with: Option<&'static str>,
}

impl Capabilities {
    /// A store of this name whose locks reach so far, and that can do nothing besides.
    pub fn new(backend: &'static str, scope: Scope) -> Self {
        let min_lease = Duration::from_millis(1);
        let (fair, raises_tokens, numbers_grants, prompt_loss) = (false, false, false, false);
        let (keeps, values, tells_changes) = (false, false, false);
        let (takes_all, limits_rates) = (false, false);
        let (max_lease, answers_within, more_with) = (None, Duration::ZERO, None);
        Self {
            backend,
            scope,
            fair,
            raises_tokens,
            numbers_grants,
            keeps,
            values,
            modes: Modes::NONE,
            takes_all,
            limits_rates,
            tells_changes,
            prompt_loss,
            min_lease,
            max_lease,
            answers_within,
            more_with,
        }
    }

    /// The error of what this store cannot do.
    pub(crate) fn cannot(&self, what: &str) -> Error {
        let message = match self.more_with {
            None => format!("{} cannot {what}", self.backend),
            Some(more) => format!("{} by this setting cannot {what}; see what it can with {more}", self.backend),
        };
        Error::new(ErrorKind::Unsupported, message)
    }
}

/// The store granted the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Higher than in any earlier grant of the name: rule 6 of the [contract](DistributedLock#the-contract).
    pub token: StoreToken,
    /// Until when the store cannot grant it to another, unless renewed: rule 5 of the
    /// [contract](DistributedLock#the-contract). The core takes a margin off it.
    pub valid_until: Instant,
    /// Which permits were granted, as many as were asked for; none of a lock.
    pub slots: Slots,
    /// All of what in the store stands as long as this grant, where there is such a thing.
    pub evidence: Vec<Evidence>,
}

impl Grant {
    /// A grant with this token, until then.
    pub fn new(token: StoreToken, valid_until: Instant) -> Self {
        Self { token, valid_until, slots: Slots::default(), evidence: Vec::new() }
    }

    /// Of these permits.
    #[must_use]
    pub fn with_slots(mut self, slots: Slots) -> Self {
        self.slots = slots;
        self
    }

    /// With what in the store stands as long as it, besides what it has already.
    #[must_use]
    pub fn with_evidence(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// Still held, until then: see [`Grant::valid_until`].
    Held {
        /// Until when.
        valid_until: Instant,
    },
    /// Not held any more. Final.
    NotHeld,
}

/// What a store says of holds without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The owner does not hold its lock any more. Final.
    NotHeld(OwnerId),
    /// The connection over which the owner's lease is renewed broke.
    AtRisk(OwnerId),
    /// Something happened by which the store may have lost holds, a restart perhaps: the core renews all of them at
    /// once, and so learns which are gone.
    Doubt,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unlocked {
    /// It was held until now.
    Released,
    /// It was not held any more: what was done under it may have overlapped with another holder.
    NotHeld,
}

/// The answer to [`keep`](DistributedLock::keep).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kept {
    /// It was held until now, and goes on.
    Kept,
    /// It was not held any more, and nothing was changed.
    NotHeld,
}

/// The answer to [`proclaim`](DistributedLock::proclaim).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proclaimed {
    /// Whoever looks sees the new value.
    Shown,
    /// The lock was not held any more, and nothing was changed.
    NotHeld,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_setting_lacks_names_the_one_that_has_it() {
        let mut can = Capabilities::new("postgres", Scope::Network);
        assert_eq!(can.cannot("count").to_string(), "unsupported: postgres cannot count");
        can.more_with = Some("mode=row");
        assert!(can.cannot("count").to_string().ends_with("see what it can with mode=row"));
    }
}
