//! How a lock is held: by one alone, by many who only read, or as some of a number of permits.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::contract::{Error, ErrorKind, Result};

/// How a lock is held or wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// By one alone.
    #[default]
    Exclusive,
    /// By any number at the same time, and by nobody alone meanwhile.
    Shared,
    /// As some of the permits of a semaphore.
    Permits {
        /// How many of them: at least one.
        take: u32,
        /// How many there are: at most [`Mode::MOST_PERMITS`].
        of: u32,
    },
}

impl Mode {
    /// The most permits of a semaphore.
    pub const MOST_PERMITS: u32 = 1024;

    /// How many permits there are, if this is some of them.
    pub fn permits(self) -> Option<u32> {
        match self {
            Self::Permits { of, .. } => Some(of),
            Self::Exclusive | Self::Shared => None,
        }
    }

    /// How many permits it takes; one, if it takes none.
    pub fn weight(self) -> u32 {
        if let Self::Permits { take, .. } = self { take } else { 1 }
    }

    /// Can one name be held or waited for in both ways? A lock is not a semaphore, nor a semaphore of five one of six.
    pub fn is_kind_of(self, other: Self) -> bool {
        self.permits() == other.permits()
    }

    /// May it be granted beside what is `held` of the same kind?
    pub fn fits(self, held: impl IntoIterator<Item = Self>) -> bool {
        let mut held = held.into_iter();
        match self {
            Self::Exclusive => held.next().is_none(),
            Self::Shared => held.all(|mode| mode == Self::Shared),
            Self::Permits { take, of } => held.map(Self::weight).sum::<u32>() + take <= of,
        }
    }

    /// # Errors
    /// [`ErrorKind::Invalid`], naming both kinds, if a name that is in use as `found` is asked for in this way.
    pub fn check_kind(self, found: Self) -> Result<()> {
        if self.is_kind_of(found) {
            return Ok(());
        }
        let (ours, found) = (self.kind(), found.kind());
        let wrong = format!(
            "it is in use as {found}, and was asked for as {ours}: take another name, or the same kind as the others"
        );
        Err(Error::new(ErrorKind::Invalid, wrong))
    }

    /// Why a semaphore cannot have so few permits: somebody waits for so many.
    pub fn too_few(permits: u32, waited_for: u32) -> Error {
        let wrong =
            format!("somebody waits for {waited_for} permits: let there be as many at least, and not {permits}");
        Error::new(ErrorKind::Invalid, wrong)
    }

    /// # Errors
    /// [`ErrorKind::Invalid`] for a semaphore without permits, with too many, or of which more are wanted than there are.
    pub(crate) fn check(self) -> Result<()> {
        let Self::Permits { take, of } = self else { return Ok(()) };
        let wrong = if of == 0 || of > Self::MOST_PERMITS {
            format!("a semaphore has 1 to {} permits, and not {of}", Self::MOST_PERMITS)
        } else if take == 0 || take > of {
            format!("{take} of {of} permits can never be granted: ask for 1 to {of}")
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Invalid, wrong))
    }

    fn kind(self) -> Kind {
        Kind(self.permits())
    }
}

/// What sets names apart that can never be held together: its number of permits, if it is a semaphore.
struct Kind(Option<u32>);

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("a lock"),
            Some(of) => write!(f, "a semaphore of {of}"),
        }
    }
}

impl fmt::Display for Mode {
    /// `exclusive`, `shared`, or how many permits: `2 of 5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permits { take, of } => write!(f, "{take} of {of}"),
        }
    }
}

/// Which modes a store knows besides [`Mode::Exclusive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Modes {
    /// [`Mode::Shared`].
    pub shared: bool,
    /// [`Mode::Permits`].
    pub permits: bool,
}

impl Modes {
    /// None besides.
    pub const NONE: Self = Self { shared: false, permits: false };

    /// All there are.
    pub const ALL: Self = Self { shared: true, permits: true };

    /// What is missing for this mode, if something is.
    pub(crate) fn lacks(self, mode: Mode) -> Option<&'static str> {
        match mode {
            Mode::Shared if !self.shared => Some("let several hold a lock at once: it has no read-write locks"),
            Mode::Permits { .. } if !self.permits => Some("count permits: it has no semaphores"),
            _ => None,
        }
    }
}

/// The numbers of the permits that one holder has, in rising order; none of a lock. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots(Option<Arc<[u32]>>);

impl Slots {
    /// These.
    pub fn new(slots: impl IntoIterator<Item = u32>) -> Self {
        let mut slots: Vec<_> = slots.into_iter().collect();
        slots.sort_unstable();
        Self((!slots.is_empty()).then(|| slots.into()))
    }

    /// The lowest that nobody has, as many as this mode takes; none for a lock.
    pub fn free(mode: Mode, taken: impl IntoIterator<Item = u32>) -> Self {
        let Mode::Permits { take, of } = mode else { return Self::default() };
        let mut free = vec![true; of as usize];
        for slot in taken {
            if let Some(free) = free.get_mut(slot as usize) {
                *free = false;
            }
        }
        Self::new((0..of).filter(|slot| free[*slot as usize]).take(take as usize))
    }

    /// These, as they are [displayed](fmt::Display).
    pub fn from_store(text: &str) -> Self {
        Self::new(text.split(',').filter_map(|slot| slot.parse().ok()))
    }

    /// As numbers.
    pub fn as_slice(&self) -> &[u32] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Slots {
    /// With commas between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, slot) in self.as_slice().iter().enumerate() {
            write!(f, "{}{slot}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn permits(take: u32, of: u32) -> Mode {
        Mode::Permits { take, of }
    }

    #[test]
    fn readers_share_writers_do_not_and_permits_add_up() {
        assert!(Mode::Exclusive.fits([]) && !Mode::Exclusive.fits([Mode::Shared]));
        assert!(Mode::Shared.fits([Mode::Shared; 9]) && !Mode::Shared.fits([Mode::Exclusive]));
        assert!(permits(2, 5).fits([permits(1, 5), permits(2, 5)]));
        assert!(!permits(3, 5).fits([permits(1, 5), permits(2, 5)]));
    }

    #[test]
    fn another_kind_is_an_error_that_names_both() {
        Mode::Shared.check_kind(Mode::Exclusive).unwrap();
        permits(1, 5).check_kind(permits(4, 5)).unwrap();
        for (ours, found, names) in [
            (Mode::Shared, permits(1, 5), ["a lock", "a semaphore of 5"]),
            (permits(2, 6), permits(1, 5), ["a semaphore of 6", "a semaphore of 5"]),
        ] {
            let error = ours.check_kind(found).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(names.iter().all(|name| error.message().contains(name)), "{error}");
        }
    }

    #[test]
    fn only_permits_that_can_be_granted_are_asked_for() {
        for bad in [permits(0, 5), permits(6, 5), permits(1, 0), permits(1, 1025)] {
            assert_eq!(bad.check().unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
        permits(1024, 1024).check().unwrap();
    }

    #[test]
    fn slots_are_the_lowest_that_are_free() {
        assert_eq!(Slots::free(permits(2, 5), [0, 2, 9]).as_slice(), [1, 3]);
        assert_eq!(Slots::free(Mode::Shared, []).as_slice(), []);
        for slots in [Slots::default(), Slots::new([7]), Slots::new([3, 1])] {
            assert_eq!(Slots::from_store(&slots.to_string()), slots);
        }
    }
}
