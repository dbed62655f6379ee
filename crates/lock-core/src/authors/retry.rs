//! What a task that works for waiters does when the store fails it.

use std::time::Duration;

use crate::contract::{Error, ErrorKind};

/// So many failures in a row, and the waiters are told: fewer are a connection that is made anew.
const TOLD_AT: u32 = 3;

/// Counts the failures in a row of a task that works for waiters, such as one that listens for their grants. It tries
/// again after [a pause](Self::PAUSE), without end; its waiters are told of each third failure, and of the end.
#[derive(Debug, Default)]
pub struct Failures(u32);

impl Failures {
    /// How long after a failure to try again.
    pub const PAUSE: Duration = Duration::from_millis(100);

    /// It went well: the next failure is the first.
    pub fn forget(&mut self) {
        self.0 = 0;
    }

    /// Counts this failure, and logs it. Is it time to tell the waiters? If so, with [`for_waiters`](Self::for_waiters).
    pub fn count(&mut self, error: &Error) -> bool {
        self.0 += 1;
        tracing::debug!(%error, failures = self.0, "the store cannot be asked for those who wait");
        let tell = self.0 >= TOLD_AT || error.kind() == ErrorKind::Closed;
        if tell {
            self.forget();
        }
        tell
    }

    /// The error of a task as each of its waiters gets it: of kind [`Unknown`](ErrorKind::Unknown), since the waiter
    /// may stand in line, which has to be undone. Only [`Closed`](ErrorKind::Closed) stays what it is.
    pub fn for_waiters(error: &Error) -> Error {
        let kind = if error.kind() == ErrorKind::Closed { ErrorKind::Closed } else { ErrorKind::Unknown };
        Error::new(kind, error.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_told_of_each_third_failure_in_a_row_and_of_the_end() {
        let (down, closed) = (Error::new(ErrorKind::Unavailable, "down"), Error::closed());
        let mut failures = Failures::default();
        assert_eq!([(); 6].map(|()| failures.count(&down)), [false, false, true, false, false, true]);
        assert!(!failures.count(&down) && failures.count(&closed));
        assert_eq!(Failures::for_waiters(&closed).kind(), ErrorKind::Closed);
        let told = Failures::for_waiters(&down);
        assert!(told.kind() == ErrorKind::Unknown && told.to_string().contains("down"));
        assert!(!failures.count(&down) && !failures.count(&down));
        failures.forget();
        assert!(!failures.count(&down));
    }
}
