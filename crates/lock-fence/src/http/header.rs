//! The header of a token. It is not one of RFC 9651's structured fields: their numbers end at 15 digits.

use http::{HeaderName, HeaderValue};
use lock_core::LockName;

use crate::Access;

/// The header in which a client sends its token.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");

/// The header of a refusal, with the highest token that the server has seen.
pub const NEWEST_TOKEN: HeaderName = HeaderName::from_static("fencing-token-newest");

/// What to send in the header [`FENCING_TOKEN`] under this lock.
///
/// ```
/// use lock_fence::{Access, http::value};
///
/// let access = Access::new("orders/42", 7_u64)?;
/// assert_eq!(value(access.clone()), "7");
/// assert_eq!(value(access.clone().shared()), "7;shared");
/// assert_eq!(value(access.with_slots([2, 3])), "7;slot=2;slot=3");
/// # Ok::<_, lock_core::Error>(())
/// ```
pub fn value(access: impl Into<Access>) -> HeaderValue {
    let access = access.into();
    let mut text = access.token().to_string();
    if access.is_shared() {
        text.push_str(";shared");
    }
    for slot in access.slots() {
        text.push_str(&format!(";slot={slot}"));
    }
    HeaderValue::try_from(text).expect("letters and digits")
}

/// The access that this header tells of.
pub(super) fn read(name: &LockName, value: &HeaderValue) -> Option<Access> {
    let mut parts = value.to_str().ok()?.split(';').map(|part| part.trim_matches([' ', '\t']));
    let access = Access::new(name, number::<u64>(parts.next()?)?).ok()?;
    let (mut shared, mut slots) = (false, Vec::new());
    for part in parts {
        match part.split_once('=') {
            None if part == "shared" && !shared => shared = true,
            Some(("slot", slot)) => slots.push(number(slot)?),
            _ => return None,
        }
    }
    match (shared, slots.is_empty()) {
        (true, true) => Some(access.shared()),
        (false, _) => Some(access.with_slots(slots)),
        // Nobody has both.
        (true, false) => None,
    }
}

/// Digits alone: `parse` would take a sign too.
pub(super) fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Access> {
        super::read(&LockName::new("a").unwrap(), &HeaderValue::from_bytes(text.as_bytes()).unwrap())
    }

    #[test]
    fn what_is_written_is_read() {
        let access = Access::new("a", Access::MAX_TOKEN).unwrap();
        for access in
            [access.clone(), access.clone().shared(), access.clone().with_slots([2]), access.with_slots([0, 9])]
        {
            assert_eq!(read(value(access.clone()).to_str().unwrap()), Some(access));
        }
        assert_eq!(read("7 ; slot=2;\tslot=3"), Some(Access::new("a", 7_u64).unwrap().with_slots([2, 3])));
    }

    #[test]
    fn what_is_malformed_is_no_access() {
        for text in [
            "",
            "x",
            "-7",
            "+7",
            "7.0",
            "0x7",
            "7, 8",
            "\"7\"",
            "9223372036854775808",
            "18446744073709551616",
            "7;",
            "7;Shared",
            "7;shared;shared",
            "7;shared=1",
            "7;slot",
            "7;slot=",
            "7;slot=-1",
            "7;slot=4294967296",
            "7;shared;slot=2",
            "7;other=1",
            "7\u{e9}",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
