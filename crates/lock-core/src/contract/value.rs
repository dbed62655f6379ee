//! What a holder shows to everybody who looks.

use std::fmt;
use std::sync::Arc;

use crate::contract::{Error, ErrorKind, Result};

/// The longest value, in bytes.
const LONGEST: usize = 4096;

/// A text that stands with a hold, for everybody to see: the address of a leader, say. 1 to 4096 bytes, without the
/// character NUL. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockValue(Arc<str>);

impl LockValue {
    /// # Errors
    /// [`ErrorKind::Invalid`] for a text that is empty, too long or has a NUL in it.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        let wrong = match () {
            () if text.is_empty() => "a value cannot be empty".to_owned(),
            () if text.len() > LONGEST => format!("a value of {} bytes is too long: at most {LONGEST}", text.len()),
            () if text.contains('\0') => "a value cannot have the character NUL in it".to_owned(),
            () => return Ok(Self(text.into())),
        };
        Err(Error::new(ErrorKind::Invalid, wrong))
    }

    /// A value as found in a store, if there is one. What is no UTF-8 is replaced by U+FFFD.
    pub fn from_store(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self(String::from_utf8_lossy(bytes).into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl TryFrom<&str> for LockValue {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

impl TryFrom<String> for LockValue {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_short_text() {
        assert_eq!(LockValue::new("http://a:1\n").unwrap().as_str(), "http://a:1\n");
        LockValue::new("x".repeat(LONGEST)).unwrap();
        for (wrong, why) in [(String::new(), "empty"), ("x".repeat(LONGEST + 1), "4097"), ("a\0b".to_owned(), "NUL")] {
            let error = LockValue::new(wrong).unwrap_err();
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(why), "{error}");
        }
        assert_eq!(LockValue::from_store(b"a\xffb").unwrap().as_str(), "a\u{fffd}b");
        assert_eq!(LockValue::from_store(b""), None);
    }
}
