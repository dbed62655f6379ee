//! What can be chosen for an acquisition, checked once.

use std::time::Duration;

use crate::{Capabilities, Error, ErrorKind, Result};

/// The longest lease, hold or wait: long enough for anybody, short enough that no arithmetic overflows.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

/// What can be chosen for an acquisition. [`Locks`](crate::Locks) has defaults, a [`Mutex`](crate::Mutex) its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockOptions {
    /// How long the store keeps the lock for a holder that it does not hear of.
    pub(crate) lease: Duration,
    /// How long an acquisition may take in all; `None`: without end.
    pub(crate) wait: Option<Duration>,
    /// Never renew: the lock is lost after this time.
    pub(crate) hold_for: Option<Duration>,
    /// Renew no longer than this in all.
    pub(crate) max_hold: Option<Duration>,
    /// First come, first served across processes.
    pub(crate) fair: bool,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self { lease: Duration::from_secs(30), wait: None, hold_for: None, max_hold: None, fair: false }
    }
}

impl LockOptions {
    /// The lease that the store is asked for.
    pub(crate) fn asked_lease(&self) -> Duration {
        self.hold_for.unwrap_or(self.lease)
    }

    /// # Errors
    /// [`ErrorKind::Invalid`] naming the option; [`ErrorKind::Unsupported`] where the backend cannot do it.
    pub(crate) fn check(&self, backend: &Capabilities) -> Result<()> {
        let named = [
            ("lease", Some(self.lease)),
            ("wait", self.wait),
            ("hold_for", self.hold_for),
            ("max_hold", self.max_hold),
        ];
        for (option, value) in named {
            let Some(value) = value else { continue };
            let days = MAX_DURATION.as_secs() / 86_400;
            if value > MAX_DURATION {
                return Err(Error::new(ErrorKind::Invalid, format!("{option} is longer than {days} days")));
            }
            if option != "wait" && value < backend.min_lease {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!(
                        "{option} is {value:?}, shorter than {:?}, the shortest of {}",
                        backend.min_lease, backend.backend
                    ),
                ));
            }
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
}
