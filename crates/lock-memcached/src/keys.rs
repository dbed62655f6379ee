//! Which keys a lock has. A key is 250 bytes at most, without blanks and control characters.

use std::fmt::Write as _;

use lock_core::{LockName, Result, check_prefix};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::{Digest, Sha256};

/// The longest key that memcached takes, in bytes.
const LONGEST: usize = 250;

/// What stands for itself in a key, beside letters and digits. The server's list of keys has these unchanged, too.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Between the prefix and the name. No part has it in itself.
const NAME: &str = ":";

/// Between the prefix and the digest of a name that is too long.
const DIGEST: &str = "::";

/// Behind the prefix: the item with what tokens are counted from.
const TOKENS: &str = "::tokens";

/// Makes keys of names.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// Encoded.
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Result<Self> {
        let encoded = utf8_percent_encode(prefix, ENCODED).to_string();
        let is_long = encoded.len() + DIGEST.len() + 2 * 32 > LONGEST;
        check_prefix(prefix, is_long.then_some("it has too many characters that keys cannot have as they are"))?;
        Ok(Self { prefix: encoded })
    }

    /// The lock's only key.
    pub(crate) fn of(&self, name: &LockName) -> String {
        let key = format!("{}{NAME}{}", self.prefix, utf8_percent_encode(name.as_str(), ENCODED));
        if key.len() <= LONGEST {
            return key;
        }
        let mut key = format!("{}{DIGEST}", self.prefix);
        for byte in Sha256::digest(name.as_str()) {
            // Writing to a string cannot fail.
            let _ = write!(key, "{byte:02x}");
        }
        key
    }

    /// The item with what tokens are counted from.
    pub(crate) fn tokens(&self) -> String {
        format!("{}{TOKENS}", self.prefix)
    }

    /// What the keys of all locks begin with, as the server's list of keys shows them.
    pub(crate) fn listed(&self) -> String {
        // There, what has a percent sign is encoded once more.
        format!("{}{}", in_list(&self.prefix), in_list(NAME))
    }

    /// The key in a line of the server's list, if it may be a lock's: whose, its value says.
    pub(crate) fn in_line(&self, line: &str) -> Option<String> {
        let key = percent_decode_str(line.split(' ').next()?).decode_utf8().ok()?.into_owned();
        (key.starts_with(&self.prefix) && key != self.tokens()).then_some(key)
    }
}

fn in_list(part: &str) -> String {
    utf8_percent_encode(part, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(prefix: &str, name: &str) -> String {
        Keys::new(prefix).unwrap().of(&LockName::new(name).unwrap())
    }

    #[test]
    fn every_name_has_a_key_of_its_own_that_memcached_takes() {
        let long = ["x".repeat(512), format!("{}y", "x".repeat(511)), "\u{1f600}".repeat(128)];
        let names = ["a", "A", " ", "a b", "a:b", "a%3Ab", ":", "::tokens", ":tokens", "tokens", "..", "\u{df}"];
        let mut keys: Vec<_> =
            names.into_iter().chain(long.iter().map(String::as_str)).map(|name| key("oarlock", name)).collect();
        keys.push(Keys::new("oarlock").unwrap().tokens());
        for key in &keys {
            assert!(key.len() <= LONGEST && key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
        }
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        assert_eq!(key("oarlock", "orders/42"), "oarlock:orders%2F42");
    }

    #[test]
    fn prefixes_keep_locks_apart_and_fit() {
        assert_ne!(key("a", "b:c"), key("a:b", "c"));
        assert_ne!(key("", "a"), key("a", "a"));
        assert!(Keys::new(&"\u{df}".repeat(60)).is_err() && Keys::new("a\n").is_err());
    }

    #[test]
    fn the_servers_list_is_read() {
        let keys = Keys::new("a/b").unwrap();
        assert_eq!(keys.listed(), "a%252Fb%3A");
        let lock = keys.of(&LockName::new("x/y").unwrap());
        for (line, key) in
            [("a%252Fb%3Ax%252Fy exp=1 cas=2", Some(lock)), ("a%252Fb%3A%3Atokens exp=1", None), ("other exp=1", None)]
        {
            assert_eq!(keys.in_line(line), key, "{line}");
        }
    }
}
