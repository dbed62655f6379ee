//! What settings of every store may be.

use std::time::Duration;

use crate::contract::{Error, ErrorKind, Result};

/// The longest prefix, in bytes: with a lock's name of 512 it still fits every store's keys.
const LONGEST_PREFIX: usize = 128;

/// Time-outs of requests. Servers count in whole milliseconds, and are told parts of ours: half of less than this could
/// be nothing, which to several of them means "without end".
const TIMEOUTS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60));

/// Can locks have this prefix? `refused` is what this store alone has against it, such as "it begins with a slash".
///
/// # Errors
/// [`ErrorKind::Invalid`] if something is refused, and for more than 128 bytes or a control character.
pub fn check_prefix(prefix: &str, refused: Option<&str>) -> Result<()> {
    let wrong = match refused {
        Some(wrong) => wrong,
        None if prefix.len() > LONGEST_PREFIX => "it has more than 128 bytes",
        None if prefix.chars().any(char::is_control) => "it has a control character",
        None => return Ok(()),
    };
    Err(Error::new(ErrorKind::Invalid, format!("the prefix {prefix:?} cannot be used: {wrong}; choose another")))
}

/// Can a request be given so long?
///
/// # Errors
/// [`ErrorKind::Invalid`] unless it is between 10 milliseconds and a minute.
pub fn check_timeout(timeout: Duration) -> Result<()> {
    if (TIMEOUTS.0..=TIMEOUTS.1).contains(&timeout) {
        return Ok(());
    }
    let wrong = format!("the time-out is {timeout:?}; it must be between 10 milliseconds and a minute");
    Err(Error::new(ErrorKind::Invalid, wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_short_and_without_control_characters() {
        for good in ["", "oarlock", "app/locks", &"a".repeat(LONGEST_PREFIX)] {
            check_prefix(good, None).unwrap();
        }
        for (bad, why) in [("a\n", "control"), (&*"a".repeat(LONGEST_PREFIX + 1), "128")] {
            let error = check_prefix(bad, None).unwrap_err();
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(why), "{error}");
        }
        assert!(check_prefix("/a", Some("it begins with a slash")).unwrap_err().to_string().contains("slash"));
    }

    #[test]
    fn timeouts_have_two_bounds() {
        for good in [TIMEOUTS.0, TIMEOUTS.1] {
            check_timeout(good).unwrap();
        }
        for bad in [Duration::ZERO, TIMEOUTS.0 - Duration::from_nanos(1), TIMEOUTS.1 + Duration::from_nanos(1)] {
            assert_eq!(check_timeout(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        }
    }
}
