//! What a holder shows to a resource.

use lock_core::{Error, ErrorKind, FencingToken, Lease, LockGuard, LockName, Mode, Result, Slots};

use crate::Stale;

/// An access to what a lock protects: the lock's name, and the holder's fencing token.
///
/// Every check takes one, or what one can be made of: a lease, a guard, or a pair of a name and a token that came over a
/// network. How the lock is held decides what becomes of the mark, the highest token that was seen:
///
/// - **Alone**: a token lower than the mark is refused, any other becomes the mark.
/// - **[Shared](Access::shared)**: a token lower than the mark is refused, and none raises it. The tokens of readers are
///   in no order, so otherwise they would fence each other off. In return, a reader's access does not stop a writer that
///   held before it and was paused.
/// - **[Permits](Access::with_slots)**: each slot has a mark of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    name: LockName,
    token: u64,
    shared: bool,
    slots: Slots,
}

impl Access {
    /// The highest token: it fits a signed 64-bit column.
    pub const MAX_TOKEN: u64 = i64::MAX as u64;

    /// An access under this lock with this token.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for what is no lock's name, and for a token above [`Access::MAX_TOKEN`].
    pub fn new<N>(name: N, token: impl Into<u64>) -> Result<Self>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        let token = token.into();
        if token > Self::MAX_TOKEN {
            let message = format!("{token} is no fencing token: the highest is {}", Self::MAX_TOKEN);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self::alone(name.try_into()?, token))
    }

    fn alone(name: LockName, token: u64) -> Self {
        Self { name, token, shared: false, slots: Slots::default() }
    }

    /// The same, of a reader.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// The same, of who has these permits of a semaphore.
    #[must_use]
    pub fn with_slots(mut self, slots: impl IntoIterator<Item = u32>) -> Self {
        self.slots = Slots::new(slots);
        self
    }

    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// The holder's token.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Is it a reader's?
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// The permits of a semaphore that its holder has, in rising order; none of a lock.
    pub fn slots(&self) -> &[u32] {
        self.slots.as_slice()
    }

    /// What the marks of this access are called: as the lock, or for each slot with its number behind. No lock has such a
    /// name, since names have no control characters.
    pub(crate) fn marks(&self) -> Vec<String> {
        match self.slots() {
            [] => vec![self.name.as_str().to_owned()],
            slots => slots.iter().map(|slot| format!("{}\u{1f}{slot}", self.name)).collect(),
        }
    }

    /// The rule of every check: a token lower than the mark, the highest that was seen, is refused. Answers the mark as
    /// it is after this access.
    ///
    /// A resource of your own reads its mark, calls this, and writes the mark with its data, in one step. For permits, it
    /// does so for each slot.
    ///
    /// ```
    /// use lock_fence::Access;
    ///
    /// let access = Access::new("orders/42", 7_u64)?;
    /// assert_eq!(access.check(5), Ok(7));
    /// assert_eq!(access.check(7), Ok(7));
    /// let stale = access.check(9).unwrap_err();
    /// assert_eq!(stale.to_string(), "orders/42: fencing token 7 is stale: 9 was seen already");
    /// # Ok::<_, lock_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Stale`], which names the lock and both tokens.
    pub fn check(&self, mark: u64) -> std::result::Result<u64, Stale> {
        if self.token < mark {
            return Err(self.late(mark));
        }
        Ok(if self.shared { mark } else { self.token })
    }

    /// The same of a mark that may not be there yet. A reader leaves none: then there is none afterwards either.
    pub(crate) fn mark_after(&self, found: Option<u64>) -> std::result::Result<Option<u64>, Stale> {
        let mark = self.check(found.unwrap_or_default())?;
        Ok((found.is_some() || !self.shared).then_some(mark))
    }

    /// Why it is refused where this token was seen.
    pub(crate) fn late(&self, newest: u64) -> Stale {
        Stale { resource: self.name.as_str().to_owned(), presented: self.token, newest }
    }
}

impl From<&Access> for Access {
    fn from(access: &Access) -> Self {
        access.clone()
    }
}

impl From<&Lease> for Access {
    fn from(lease: &Lease) -> Self {
        let access = Self::from((lease.name(), lease.fencing_token())).with_slots(lease.slots().iter().copied());
        if lease.mode() == Mode::Shared { access.shared() } else { access }
    }
}

impl From<&LockGuard> for Access {
    fn from(guard: &LockGuard) -> Self {
        (&**guard).into()
    }
}

impl From<(&LockName, FencingToken)> for Access {
    fn from((name, token): (&LockName, FencingToken)) -> Self {
        // Never above the highest: see `FencingToken`.
        Self::alone(name.clone(), token.get())
    }
}

impl TryFrom<(&str, u64)> for Access {
    type Error = Error;

    fn try_from((name, token): (&str, u64)) -> Result<Self> {
        Self::new(name, token)
    }
}

impl TryFrom<(&str, FencingToken)> for Access {
    type Error = Error;

    fn try_from((name, token): (&str, FencingToken)) -> Result<Self> {
        Self::new(name, token)
    }
}

#[cfg(test)]
mod tests {
    use lock_core::{Locks, memory::MemoryLock};

    use super::*;

    #[test]
    fn only_a_lower_token_is_stale() {
        let access = Access::new("a", 7_u64).unwrap();
        assert_eq!((access.check(0), access.check(7)), (Ok(7), Ok(7)));
        assert_eq!(access.check(8), Err(Stale { resource: "a".to_owned(), presented: 7, newest: 8 }));
    }

    #[test]
    fn a_reader_is_refused_after_a_later_writer_and_raises_nothing() {
        let reader = Access::new("a", 7_u64).unwrap().shared();
        assert_eq!((reader.check(0), reader.check(7)), (Ok(0), Ok(7)));
        assert_eq!(reader.check(8), Err(Stale { resource: "a".to_owned(), presented: 7, newest: 8 }));
    }

    #[test]
    fn what_is_no_access_is_refused() {
        for (name, token) in [("", 1), ("a\nb", 1), ("a", u64::MAX), ("a", Access::MAX_TOKEN + 1)] {
            assert_eq!(Access::new(name, token).unwrap_err().kind(), ErrorKind::Invalid, "{name:?} {token}");
        }
        assert!(Access::new("a", Access::MAX_TOKEN).is_ok());
    }

    #[tokio::test]
    async fn a_guard_and_its_lease_are_the_same_access() {
        let locks = Locks::new(std::sync::Arc::new(MemoryLock::new()));
        let guard = locks.mutex("orders/42").lock().await.unwrap();
        let access = Access::from(&guard);
        assert_eq!((access.name().as_str(), access.token()), ("orders/42", guard.fencing_token().get()));
        assert_eq!(access, Access::from(&guard.lease()));
        assert_eq!(access, Access::try_from(("orders/42", guard.fencing_token())).unwrap());
    }

    #[tokio::test]
    async fn an_access_says_how_the_lock_is_held() {
        let locks = Locks::new(std::sync::Arc::new(MemoryLock::new()));
        let reader = locks.rw_lock("catalog").unwrap().read().await.unwrap();
        assert!(Access::from(&reader).is_shared());
        let two = locks.semaphore("exports", 5).unwrap().acquire_many(2).await.unwrap();
        assert_eq!((Access::from(&two).slots(), Access::from(&two).is_shared()), (two.slots(), false));
        assert_eq!(two.slots(), [0, 1]);
    }
}
