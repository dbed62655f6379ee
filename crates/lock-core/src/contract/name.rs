//! The name of a lock, parsed once.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::contract::{Error, ErrorKind, Result};

/// The name of a lock: 1 to 512 bytes of UTF-8 without control characters.
///
/// Names are compared byte by byte: `Job`, `job` and `Jöb` in its two Unicode forms are different locks on every
/// backend. Nothing in a name has a meaning, `/` and `..` included. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 512;

    /// Parses a name.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is empty, longer than [`LockName::MAX_LEN`] bytes or has a control character.
    pub fn new(name: &str) -> Result<Self> {
        let wrong = if name.is_empty() {
            "it is empty".to_owned()
        } else if name.len() > Self::MAX_LEN {
            format!("it has {} bytes", name.len())
        } else if let Some(control) = name.chars().find(|c| c.is_control()) {
            format!("it has the control character {control:?}")
        } else {
            return Ok(Self(name.into()));
        };
        Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "this cannot be the name of a lock: {wrong}; a name has 1 to 512 bytes of UTF-8 without control characters"
            ),
        ))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<&str> for LockName {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<&String> for LockName {
    type Error = Error;

    fn try_from(name: &String) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<String> for LockName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::new(&name)
    }
}

impl From<&LockName> for LockName {
    fn from(name: &LockName) -> Self {
        name.clone()
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_or_kept_as_they_are() {
        for good in ["a", "orders/42", "..", "{x}", " ", "a b", "😀", "Job", "job", &"x".repeat(512)] {
            assert_eq!(LockName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a\0b", "a\nb", "\u{7f}", "\u{85}", &"x".repeat(513)] {
            assert_eq!(LockName::new(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        }
    }

    #[test]
    fn unicode_forms_stay_apart() {
        assert_ne!(LockName::new("J\u{f6}b").unwrap(), LockName::new("Jo\u{308}b").unwrap());
    }
}
