//! One opaque error: what kind it is, during which operation, on which backend, for which lock, and why.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::{Holder, LockName};

/// Shorthand for a result with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as far as a caller can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A name, an option, a URL or a config is wrong. Nothing was done.
    Invalid,
    /// The backend is not built in, or cannot do what was asked. Nothing was done.
    Unsupported,
    /// The wait was over before the lock was free. Nothing is held.
    Timeout,
    /// The lock was held and is not any more.
    Lost,
    /// The store answered and refused: rights, a full disk, data of another shape. Nothing was done.
    Refused,
    /// The store could not be reached. Nothing was done.
    Unavailable,
    /// The store may or may not have done it. After an acquisition the library cleans up; assume nothing.
    Unknown,
    /// The [`Locks`](crate::Locks) were shut down, or this is a fork of the process that made them. Nothing was done.
    Closed,
    /// What the lock protects has refused a fencing token, for it has seen a later one. Nothing was done.
    Stale,
    /// Another transaction was in the way of this one. Nothing was done: roll back, and begin the transaction again.
    Conflict,
}

impl ErrorKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::Timeout => "timed out",
            Self::Lost => "lost",
            Self::Refused => "refused by the store",
            Self::Unavailable => "store unavailable",
            Self::Unknown => "outcome unknown",
            Self::Closed => "closed",
            Self::Stale => "stale",
            Self::Conflict => "conflict",
        }
    }
}

/// The error of every operation. A clone has the same source.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    op: Option<&'static str>,
    backend: Option<&'static str>,
    name: Option<LockName>,
    holder: Option<Holder>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind. The message says what is wrong and the way out, and has no secret in it.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Inner { kind, message, op: None, backend: None, name: None, holder: None, source: None }))
    }

    /// With the error that caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into().into());
        self
    }

    /// With the operation, the backend and the lock that it is about. The core adds these, once for all backends.
    #[must_use]
    pub fn with_context(mut self, op: &'static str, backend: &'static str, name: Option<&LockName>) -> Self {
        self.0.op.get_or_insert(op);
        self.0.backend.get_or_insert(backend);
        self.0.name = self.0.name.or_else(|| name.cloned());
        self
    }

    pub(crate) fn timeout(waited: Duration, holder: Option<Holder>) -> Self {
        let waited = humantime::format_duration(Duration::from_millis(waited.as_millis() as u64));
        let mut message = format!("not granted within {waited}");
        if let Some(holder) = &holder {
            let in_words = |time: Duration| humantime::format_duration(Duration::from_millis(time.as_millis() as u64));
            message = match holder.held_for {
                _ if holder.kept => {
                    format!(
                        "{message}; {} has gone and keeps it for another {}",
                        holder.owner,
                        in_words(holder.remaining)
                    )
                }
                time if time < Duration::from_millis(1) => format!("{message}; {} holds it", holder.owner),
                time => format!("{message}; {} has held it for {}", holder.owner, in_words(time)),
            };
        }
        let mut error = Self::new(ErrorKind::Timeout, message);
        error.0.holder = holder;
        error
    }

    /// A wait is over, and nobody knows what the store did: it failed, or did not answer.
    pub(crate) fn unanswered(waited: Duration, why: Option<Self>) -> Self {
        let waited = humantime::format_duration(Duration::from_millis(waited.as_millis() as u64));
        match why {
            None => Self::new(ErrorKind::Unknown, format!("not granted within {waited}: the store does not answer")),
            Some(why) => Self::new(ErrorKind::Unknown, format!("not granted within {waited}: {}", why.message()))
                .with_source(why),
        }
    }

    pub(crate) fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    pub(crate) fn after_outage(mut self, away: Duration) -> Self {
        self.0.message = format!("for {} now: {}", humantime::format_duration(away), self.0.message);
        self
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Is it sure that the operation did nothing? Only of the kinds of which that is said.
    pub fn is_refused(&self) -> bool {
        use ErrorKind::{Conflict, Invalid, Refused, Stale, Unavailable, Unsupported};
        matches!(self.0.kind, Invalid | Unsupported | Refused | Unavailable | Stale | Conflict)
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// The operation: `lock`, `unlock`, `renew` and so on.
    pub fn op(&self) -> Option<&'static str> {
        self.0.op
    }

    /// The backend's name.
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// The lock that it is about.
    pub fn name(&self) -> Option<&LockName> {
        self.0.name.as_ref()
    }

    /// Who held the lock when a wait was over, if the store could tell in time.
    pub fn holder(&self) -> Option<&Holder> {
        self.0.holder.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        if let Some(op) = inner.op {
            write!(f, "{op}")?;
            if let Some(name) = &inner.name {
                write!(f, " {name:?}")?;
            }
            if let Some(backend) = inner.backend {
                write!(f, " on {backend}")?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{}: {}", inner.kind.as_str(), inner.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self}")?;
        let mut source = StdError::source(self);
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        f.write_str(")")
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_surely_not_done_is_refused() {
        use ErrorKind::*;
        let kinds = [Invalid, Unsupported, Timeout, Lost, Refused, Unavailable, Unknown, Closed, Stale, Conflict];
        let refused = kinds.into_iter().filter(|kind| Error::new(*kind, "").is_refused());
        assert_eq!(refused.collect::<Vec<_>>(), [Invalid, Unsupported, Refused, Unavailable, Stale, Conflict]);
    }
}
