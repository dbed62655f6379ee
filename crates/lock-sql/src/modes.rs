//! How modes stand in the tables, the same in all databases: of who waits, '' alone, 's' beside others, 'p2/5' with two of five
//! permits; and of a lock that several hold, `shared#` or `permits#5` in the place of its owner, or `shared#` and the owner of
//! the only reader.

#[cfg(any(feature = "mysql", feature = "sqlite"))]
use lock_core::OwnerId;
use lock_core::{Claim, Holder, Mode};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use lock_core::{Result, Slots};

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::keys::holder;

/// A mode as a waiter's row has it.
pub(crate) fn text(mode: Mode) -> String {
    match mode {
        Mode::Shared => "s".to_owned(),
        Mode::Permits { take, of } => format!("p{take}/{of}"),
        _ => String::new(),
    }
}

/// The mode of a waiter's row.
pub(crate) fn mode(text: &str) -> Mode {
    let numbers = text.strip_prefix('p').and_then(|numbers| numbers.split_once('/'));
    match numbers.and_then(|(take, of)| Some((take.parse().ok()?, of.parse().ok()?))) {
        Some((take, of)) => Mode::Permits { take, of },
        None if text == "s" => Mode::Shared,
        None => Mode::Exclusive,
    }
}

/// How the owner of a lock begins that readers hold.
const READERS: &str = "shared#";

/// Under which name a reader has the lock that found it free.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn only_reader(owner: &OwnerId) -> String {
    format!("{READERS}{}", owner.as_str())
}

/// Who has the lock under such a name.
pub(crate) fn as_only_reader(owner: &str) -> Option<&str> {
    owner.strip_prefix(READERS).filter(|reader| !reader.is_empty())
}

/// How several hold a lock, if that is what its owner says.
pub(crate) fn mark(owner: &str) -> Option<Mode> {
    let of = owner.strip_prefix("permits#").and_then(|of| of.parse().ok());
    of.map(|of| Mode::Permits { take: 1, of }).or(owner.starts_with(READERS).then_some(Mode::Shared))
}

/// Do several hold it, perhaps?
pub(crate) fn is_marked(holder: &Holder) -> bool {
    mark(holder.owner.as_str()).is_some()
}

/// Those who hold a lock of this kind together, of what a status has: owner, token, slots, and for how long it has held and will.
/// None: it is not of that form.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn together(kind: Mode, several: &str) -> Option<Result<Vec<Holder>>> {
    let several: Vec<(String, i64, Vec<u32>, i64, i64)> = serde_json::from_str(several).ok()?;
    let one = |(owner, token, slots, held_us, left_us): (String, i64, Vec<u32>, i64, i64)| {
        Ok(holder(&owner, held_us, left_us, token)?.with_mode(kind, Slots::new(slots)))
    };
    Some(several.into_iter().map(one).collect())
}

/// Claims to hold alone, and claims to hold beside others, are prolonged by different statements.
pub(crate) fn alike(claims: &[Claim]) -> impl Iterator<Item = &[Claim]> {
    claims.chunk_by(|one, next| (one.mode == Mode::Exclusive) == (next.mode == Mode::Exclusive))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_and_read() {
        for how in ["", "s", "p2/5"] {
            assert_eq!(text(mode(how)), how);
        }
        let permits = mark("permits#7").and_then(Mode::permits);
        assert_eq!((permits, mark("shared#"), mark("a@b:1#2")), (Some(7), Some(Mode::Shared), None));
        assert_eq!(mark("shared#a@b:1#2"), Some(Mode::Shared), "the only reader");
    }
}
