//! A view of a hold: whether it is held is a question to the clock, and a loss is final.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::{Error, ErrorKind, Evidence, FencingToken, LockName, Mode, OwnerId, Result};
use crate::engine::hold::{End, Hold};

/// The three states of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseState {
    /// The lease runs, and its renewals are on time.
    Held,
    /// A renewal failed or is late; the lease still runs. A good time to stop starting things.
    AtRisk,
    /// Not held any more: lost, or released. Final.
    Lost,
}

/// A view of a hold: cheap to clone and to hand to other tasks. It does not keep the lock; the
/// [`LockGuard`](crate::LockGuard) does.
#[derive(Clone)]
pub struct Lease {
    pub(crate) hold: Arc<Hold>,
    /// Which of the turns that the grant is handed to.
    pub(crate) turn: u8,
}

impl Lease {
    /// Is the lock held at this moment, by the clock? After a pause that the [clock](crate::SystemClock) counted, however
    /// long, the first answer is right already. It does not count every pause: see there.
    pub fn is_held(&self) -> bool {
        self.hold.turn(self.turn, self.hold.now()).is_some()
    }

    /// The same as an error, for sections that check it between their steps.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`], saying why.
    pub fn check(&self) -> Result<()> {
        if self.is_held() { Ok(()) } else { Err(Error::new(ErrorKind::Lost, self.loss())) }
    }

    /// The state at this moment.
    pub fn state(&self) -> LeaseState {
        match self.hold.turn(self.turn, self.hold.now()) {
            None => LeaseState::Lost,
            Some((_, true)) => LeaseState::AtRisk,
            Some((_, false)) => LeaseState::Held,
        }
    }

    /// How long the lock is held from now on, if no renewal comes.
    pub fn remaining(&self) -> Duration {
        let now = self.hold.now();
        let until = self.hold.turn(self.turn, now).map(|(until, _)| until);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// The fencing token of this acquisition. It stays readable after the loss, so that a late write is refused by what
    /// checks it, not let pass without.
    pub fn fencing_token(&self) -> FencingToken {
        self.hold.token(self.turn)
    }

    /// How the lock is held. It decides what a resource does with the [fencing token](Self::fencing_token): a shared holder's
    /// is refused if it is lower than the highest that an exclusive holder has shown, and raises nothing itself; a holder
    /// of permits shows its token for each of its [slots](Self::slots).
    pub fn mode(&self) -> Mode {
        self.hold.claim.mode
    }

    /// The permits that are held, of a semaphore's: numbers below that of all permits, in rising order, which nobody else
    /// has at the same time. None of a lock.
    pub fn slots(&self) -> &[u32] {
        self.hold.slots()
    }

    /// The first of the [slots](Self::slots): the only one of who takes a permit alone. A place in a pool, a file or a port
    /// can have that number.
    pub fn slot(&self) -> Option<u32> {
        self.slots().first().copied()
    }

    /// What in the store stands as long as the hold, where there is such a thing: in etcd and ZooKeeper. Of several
    /// permits there may be one each, and of a lock in two stores there is that of both. Like the token, it is the same
    /// from the grant on, and stays readable after the loss.
    pub fn evidence(&self) -> &[Evidence] {
        self.hold.evidence()
    }

    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.hold.claim.name
    }

    /// The owner that the store knows. Tasks of a process between which a lock is handed over have the same one, one
    /// after the other, each with a fencing token of its own.
    pub fn owner(&self) -> &OwnerId {
        &self.hold.claim.owner
    }

    /// Ends when the lock is not held any more: at a loss, before the store can grant it to another, or at its release.
    ///
    /// # Cancel safety
    /// May be dropped and called again at any time.
    pub async fn lost(&self) {
        loop {
            let changed = self.hold.changed.notified();
            // Asked after the notification is armed, so that none falls in between; and by the clock, so that it does
            // not matter whether the keeper still runs.
            let Some((until, _)) = self.hold.turn(self.turn, self.hold.now()) else { return };
            tokio::select! {
                () = changed => {}
                () = self.hold.sleep_until(until) => {}
            }
        }
    }

    /// Ends at the next news of the hold, from this call on, whenever it is polled first: a renewal that was confirmed or
    /// failed, or the end. A lease that runs out while nobody looks is no news: wait for [`lost`](Self::lost) beside.
    ///
    /// With it [`remaining`](Self::remaining) can be told elsewhere, to another process say, as soon as it is longer.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + '_ {
        self.hold.changed.notified()
    }

    /// The same as a future of its own, which another task or a `select!` in a loop can keep.
    ///
    /// # Cancel safety
    /// As [`Lease::lost`].
    pub async fn into_lost(self) {
        self.lost().await;
    }

    /// Why it is not held any more.
    pub(crate) fn loss(&self) -> &'static str {
        // A turn that is over while the hold runs was handed over.
        self.hold.ended().unwrap_or(End::Released).reason()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("owner", self.owner())
            .field("token", &self.fencing_token())
            .field("state", &self.state())
            .finish()
    }
}
