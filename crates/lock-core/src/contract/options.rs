//! What can be chosen for an acquisition, checked once.

use std::time::Duration;

use crate::contract::{Capabilities, Error, ErrorKind, FencingToken, Mode, Result, StoreToken};

/// The longest lease, hold or wait: long enough for anybody, short enough that no arithmetic overflows.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

/// What can be chosen for an acquisition. [`Locks`](crate::Locks) has defaults, a [`Mutex`](crate::Mutex) its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockOptions {
    /// How long the store keeps the lock for a holder that it does not hear of.
    pub(crate) lease: Duration,
    /// Somebody chose it; else it is no longer than the store can give.
    pub(crate) lease_chosen: bool,
    /// How long an acquisition may take in all; `None`: without end.
    pub(crate) wait: Option<Duration>,
    /// Never renew: the lock is lost after this time.
    pub(crate) hold_for: Option<Duration>,
    /// Renew no longer than this in all.
    pub(crate) max_hold: Option<Duration>,
    /// First come, first served across processes.
    pub(crate) fair: bool,
    /// How often a grant may be handed over inside the process.
    pub(crate) hand_overs: u8,
    /// How long after the store's grant that may go on.
    pub(crate) hand_over_for: Duration,
    /// How long a store may be away from whoever waits.
    pub(crate) outage: Duration,
    /// Every fencing token is above this.
    pub(crate) token_floor: u64,
    /// Not shared with others of this process: it asks the store itself, and nothing of it is handed over.
    pub(crate) alone: bool,
    /// How the lock is wanted.
    pub(crate) mode: Mode,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            lease_chosen: false,
            wait: None,
            hold_for: None,
            max_hold: None,
            fair: false,
            // As often as a fencing token can count; time is what other processes feel.
            hand_overs: u8::MAX,
            hand_over_for: Duration::from_millis(10),
            outage: Duration::from_secs(10),
            token_floor: 0,
            alone: false,
            mode: Mode::Exclusive,
        }
    }
}

impl LockOptions {
    /// This lease, and not the one that suits the store best.
    pub(crate) fn choose_lease(&mut self, lease: Duration) {
        (self.lease, self.lease_chosen) = (lease, true);
    }

    /// The lease that the store is asked for, if it can give no more than that at most.
    pub(crate) fn asked_lease(&self, longest: Option<Duration>) -> Duration {
        let longest = longest.filter(|_| !self.lease_chosen).unwrap_or(Duration::MAX);
        self.hold_for.unwrap_or(self.lease.min(longest))
    }

    /// The store's own number above which fencing tokens are above the floor.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if next to no token is above it.
    pub(crate) fn store_floor(&self) -> Result<StoreToken> {
        FencingToken::store_of(self.token_floor)
    }

    /// Is it not above the floor?
    pub(crate) fn is_too_low(&self, token: StoreToken) -> bool {
        self.token_floor > 0 && token.get() <= self.token_floor >> 8
    }

    /// The default, if nobody chose a lease, for a store that gives none below that.
    pub(crate) fn no_shorter_than(mut self, shortest: Duration) -> Self {
        if !self.lease_chosen {
            self.lease = self.lease.max(shortest);
        }
        self
    }

    /// Can a grant for one of them serve the other as well? A fixed hold has no time to give away.
    pub(crate) fn can_share(&self, other: &Self) -> bool {
        let alone = |options: &Self| options.fair || options.alone || options.hold_for.is_some();
        !alone(self) && *self == Self { wait: self.wait, outage: self.outage, ..*other }
    }

    /// # Errors
    /// [`ErrorKind::Invalid`] naming the option; [`ErrorKind::Unsupported`] where the backend cannot do it.
    pub(crate) fn check(&self, backend: &Capabilities) -> Result<()> {
        let bounded = |option, value| check_length(option, value, Some(backend));
        bounded("lease", Some(self.lease))?;
        check_length("wait", self.wait, None)?;
        bounded("hold_for", self.hold_for)?;
        bounded("max_hold", self.max_hold)?;
        check_length("hand_over_for", Some(self.hand_over_for), None)?;
        check_length("outage", Some(self.outage), None)?;
        self.check_mode(backend)?;
        self.store_floor()?;
        if self.token_floor > 0 && !backend.raises_tokens {
            let message = format!("{} cannot raise its tokens: leave `token_floor` off", backend.backend);
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if self.fair && !backend.fair {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{} is not first come, first served: leave `fair` off or choose another backend",
                    backend.backend
                ),
            ));
        }
        Ok(())
    }

    /// # Errors
    /// [`ErrorKind::Unsupported`] where the backend has no such mode; [`ErrorKind::Invalid`] for what no store could grant.
    pub(crate) fn check_mode(&self, backend: &Capabilities) -> Result<()> {
        match backend.modes.lacks(self.mode) {
            Some(what) => Err(backend.cannot(what)),
            None => self.mode.check(),
        }
    }
}

/// Is an option too long, or shorter than the shortest lease of the backend that bounds it?
fn check_length(option: &str, value: Option<Duration>, bounded_by: Option<&Capabilities>) -> Result<()> {
    let Some(value) = value else { return Ok(()) };
    if value > MAX_DURATION {
        let days = MAX_DURATION.as_secs() / 86_400;
        return Err(Error::new(ErrorKind::Invalid, format!("{option} is longer than {days} days")));
    }
    let Some(backend) = bounded_by.filter(|backend| value < backend.min_lease) else { return Ok(()) };
    Err(Error::new(
        ErrorKind::Invalid,
        format!(
            "{option} is {}, shorter than {}, the shortest of {}",
            humantime::format_duration(value),
            humantime::format_duration(backend.min_lease),
            backend.backend
        ),
    ))
}

/// The choices that [`Mutex`](crate::Mutex) and [`LocksBuilder`](crate::LocksBuilder) share, as methods of both.
macro_rules! setters {
    () => {
        /// How long the store keeps the lock for a holder that it does not hear of: the time after which a crashed
        /// holder's lock is free, and the longest outage that a hold survives. It is renewed at a third.
        ///
        /// Without a choice it is 30 s, or what comes nearest to that among those that the store gives.
        pub fn lease(mut self, lease: Duration) -> Self {
            self.options.choose_lease(lease);
            self
        }

        /// How long an acquisition may take in all: connection, pool and queue. With zero, [`Mutex::lock`](crate::Mutex::lock) tries once;
        /// with `None` it waits without end, whatever the default is.
        pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
            self.options.wait = wait.into();
            self
        }

        /// How long the store may be away from an acquisition that waits: 10 s by default, and never longer than its
        /// wait. It takes its place in line again, behind those who came meanwhile. With zero, the first failure is an
        /// error. What does not wait is told each failure.
        pub fn outage(mut self, outage: Duration) -> Self {
            self.options.outage = outage;
            self
        }

        /// Renew no longer than this in all: then the lock is lost. A bound for sections that hang. With `None` there is
        /// none, whatever the default is.
        pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
            self.options.max_hold = max_hold.into();
            self
        }

        /// First come, first served across processes, also where that costs speed: each acquisition stands in the
        /// store's line itself, and none is handed over inside the process.
        pub fn fair(mut self, fair: bool) -> Self {
            self.options.fair = fair;
            self
        }

        /// Every fencing token is above this number, the highest that the resource has seen: for what has seen tokens
        /// from where clocks do not reach, such as a store with a clock far ahead. Where a grant's token is not, the
        /// store is told to count from there on, and the lock is taken anew.
        pub fn token_floor(mut self, floor: u64) -> Self {
            self.options.token_floor = floor;
            self
        }

        /// How often a grant of the store may pass from task to task of this process before other processes get their
        /// turn: at most 255, the default; 0 switches it off.
        ///
        /// Only acquisitions with the same options share a grant, and none with [`Mutex::hold_for`](crate::Mutex::hold_for).
        /// Of a [read-write lock](crate::RwLock) it is so many readers that may share one with the first.
        pub fn hand_overs(mut self, times: u8) -> Self {
            self.options.hand_overs = times;
            self
        }

        /// How long after the store's grant it may still be passed on: 10 ms by default. Other processes wait that much
        /// longer, and one section. Readers share a grant no longer than 100 ms and a twentieth of the lease, whatever
        /// this is.
        pub fn hand_over_for(mut self, time: Duration) -> Self {
            self.options.hand_over_for = time;
            self
        }
    };
}

pub(crate) use setters;
