//! How a lock is held, and what must be true of those who believe that they hold it.

/// A token, or its place among all tokens there are.
pub(crate) type Token = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// By one alone.
    Alone,
    /// By any number at the same time, and by nobody alone meanwhile.
    Shared,
    /// As some of the permits of a semaphore.
    Permits { take: u8, of: u8 },
}

impl Mode {
    /// May it be granted beside what is held?
    pub(crate) fn fits(self, mut held: impl Iterator<Item = Self>) -> bool {
        match self {
            Self::Alone => held.next().is_none(),
            Self::Shared => held.all(|mode| mode == Self::Shared),
            Self::Permits { take, of } => {
                let taken = |mode| if let Self::Permits { take, .. } = mode { take } else { of };
                held.map(taken).sum::<u8>() + take <= of
            }
        }
    }

    /// May all of these be held at the same time?
    pub(crate) fn all_fit(held: &[Self]) -> bool {
        (0..held.len()).all(|at| {
            let others = held.iter().enumerate().filter(|(other, _)| *other != at);
            held[at].fits(others.map(|(_, mode)| *mode))
        })
    }
}

/// Sees who begins to believe that the lock is its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Witness {
    /// The highest token that somebody had alone, and beside others.
    alone: Option<Token>,
    beside: Option<Token>,
    /// A token was not above that of an earlier holder whom it excludes.
    pub(crate) fell: bool,
}

impl Witness {
    pub(crate) fn begins(&mut self, mode: Mode, token: Token) {
        let is_alone = mode == Mode::Alone;
        let above = if is_alone { self.alone.max(self.beside) } else { self.alone };
        self.fell |= above.is_some_and(|above| token <= above);
        let own = if is_alone { &mut self.alone } else { &mut self.beside };
        *own = (*own).max(Some(token));
    }

    /// The tokens that count yet.
    pub(crate) fn tokens(&mut self) -> impl Iterator<Item = &mut Token> {
        self.alone.iter_mut().chain(&mut self.beside)
    }
}

/// Gives these tokens the lowest numbers that leave their order as it is: only that counts, and fewer states differ. Zero
/// stays what it is.
pub(crate) fn rank(mut tokens: Vec<&mut Token>) {
    tokens.sort_unstable();
    let (mut before, mut place) = (0, 0);
    for token in tokens {
        if *token != before {
            (before, place) = (*token, place + 1);
        }
        *token = place;
    }
}
