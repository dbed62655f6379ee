//! What the answers of several stores come to. All of it is a matter of counting, over the whole set of stores.

use lock_core::{Error, ErrorKind, Grant, Instant, Renewal, Result, StoreToken, Unlocked};

/// How many of so many are a majority.
pub(crate) const fn majority(stores: usize) -> usize {
    stores / 2 + 1
}

/// What became of an attempt to take the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// A majority granted it.
    Granted,
    /// A majority answered, and too few granted it.
    Busy,
    /// No majority answered.
    Failed,
    /// Not to be told yet.
    Open,
}

/// What has become of it; with `all`, no more answers will come.
pub(crate) fn attempt(answers: &[Option<Result<Option<Grant>>>], all: bool) -> Attempt {
    let majority = majority(answers.len());
    let count = |what: fn(&Option<Result<Option<Grant>>>) -> bool| answers.iter().filter(|answer| what(answer)).count();
    let granted = count(|answer| matches!(answer, Some(Ok(Some(_)))));
    let denied = count(|answer| matches!(answer, Some(Ok(None))));
    let open = if all { 0 } else { count(Option::is_none) };
    if granted >= majority {
        Attempt::Granted
    } else if granted + open >= majority || (granted + denied < majority && granted + denied + open >= majority) {
        Attempt::Open
    } else if granted + denied >= majority {
        Attempt::Busy
    } else {
        Attempt::Failed
    }
}

/// The end of the majority that ends last: the smallest of theirs. `None`: they are no majority.
pub(crate) fn until(stores: usize, ends: impl IntoIterator<Item = Instant>) -> Option<Instant> {
    let mut ends: Vec<_> = ends.into_iter().collect();
    ends.sort_unstable_by(|one, other| other.cmp(one));
    ends.get(majority(stores) - 1).copied()
}

/// The highest of these tokens.
pub(crate) fn highest(grants: &[(usize, Grant)]) -> Option<StoreToken> {
    grants.iter().map(|(_, grant)| grant.token).max()
}

/// What a release comes to; `None`: not to be told yet. Whether a majority held it to the end is what is asked.
/// `held`: we know by ourselves that it did when this was sent.
pub(crate) fn unlocked(answers: &[Option<Result<Unlocked>>], held: bool, all: bool) -> Option<Result<Unlocked>> {
    let majority = majority(answers.len());
    let count = |what: fn(&Option<Result<Unlocked>>) -> bool| answers.iter().filter(|answer| what(answer)).count();
    let released = count(|answer| matches!(answer, Some(Ok(Unlocked::Released))));
    let not_held = count(|answer| matches!(answer, Some(Ok(Unlocked::NotHeld))));
    let open = answers.len() - released - not_held;
    if released >= majority {
        return Some(Ok(Unlocked::Released));
    }
    if not_held >= majority {
        return Some(Ok(Unlocked::NotHeld));
    }
    if !all && answers.iter().any(Option::is_none) {
        return None;
    }
    Some(if released + not_held < majority {
        Err(failed("too few stores answered the release", answers, ErrorKind::Unknown))
    } else if held && released + open >= majority {
        Ok(Unlocked::Released)
    } else {
        Ok(Unlocked::NotHeld)
    })
}

/// What one claim's renewals come to; `None`: not to be told yet.
pub(crate) fn renewed(answers: &[Option<Result<Renewal>>], all: bool) -> Option<Result<Renewal>> {
    let stores = answers.len();
    let ends = answers.iter().filter_map(|answer| match answer {
        Some(Ok(Renewal::Held { valid_until })) => Some(*valid_until),
        _ => None,
    });
    if let Some(valid_until) = until(stores, ends) {
        return Some(Ok(Renewal::Held { valid_until }));
    }
    let gone = answers.iter().filter(|answer| matches!(answer, Some(Ok(Renewal::NotHeld)))).count();
    if gone >= majority(stores) {
        return Some(Ok(Renewal::NotHeld));
    }
    let is_open = !all && answers.iter().any(Option::is_none);
    (!is_open).then(|| Err(failed("too few stores renewed the lease", answers, ErrorKind::Unknown)))
}

/// The error of too many stores. Of the stores' own kind if that is one, and nothing was done.
pub(crate) fn refused<T>(what: &str, answers: &[Option<Result<T>>]) -> Error {
    let mut kinds: Vec<_> = errors(answers).map(Error::kind).collect();
    kinds.dedup();
    let kind = if let [kind] = kinds[..] { kind } else { ErrorKind::Unavailable };
    failed(what, answers, kind)
}

/// The same, of this kind.
pub(crate) fn failed<T>(what: &str, answers: &[Option<Result<T>>], kind: ErrorKind) -> Error {
    let (answered, all) = (answers.iter().filter(|answer| matches!(answer, Some(Ok(_)))).count(), answers.len());
    let (mut wrong, mut source) = (format!("{what}: {answered} of {all} stores answered"), None);
    if let Some(first) = errors(answers).next() {
        wrong = format!("{wrong}; {first}");
        source = Some(first.clone());
    }
    let error = Error::new(kind, wrong);
    match source {
        Some(source) => error.with_source(source),
        None => error,
    }
}

fn errors<T>(answers: &[Option<Result<T>>]) -> impl Iterator<Item = &Error> {
    answers.iter().filter_map(|answer| answer.as_ref()?.as_ref().err())
}

#[cfg(test)]
mod tests;
