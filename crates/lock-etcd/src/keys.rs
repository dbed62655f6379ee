//! Which keys a lock has: those directly under its name, one for each claim.
//!
//! `etcdctl lock` and Go's `concurrency.Mutex` take whatever begins with `name/` for the line of `name`. So a `/`
//! inside a name is written `%2F`, and a `%` as `%25`: then no lock lies under another. A `%` before anything else is
//! in no name, and begins the keys that are not a lock's.

use lock_core::{Claim, LockName, Result, check_prefix};

/// Makes keys of names and back.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// With the separator; empty if there is none.
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Result<Self> {
        let refused = prefix.starts_with('/') || prefix.ends_with('/');
        check_prefix(prefix, refused.then_some("it begins or ends with a `/`"))?;
        Ok(Self { prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") } })
    }

    /// What all keys begin with; empty if that is nothing.
    pub(crate) fn all(&self) -> &str {
        &self.prefix
    }

    /// What all keys of a lock begin with: its line.
    pub(crate) fn line(&self, name: &LockName) -> String {
        format!("{}{}/", self.prefix, escaped(name.as_str()))
    }

    /// The key of a claim.
    pub(crate) fn own(&self, claim: &Claim) -> String {
        format!("{}{}", self.line(&claim.name), escaped(claim.owner.as_str()))
    }

    /// The key that shows that the client with this lease lives.
    pub(crate) fn beacon(&self, lease: i64) -> String {
        format!("{}{lease:x}", self.beacons())
    }

    /// What all of these begin with.
    pub(crate) fn beacons(&self) -> String {
        format!("{}%session/", self.prefix)
    }

    /// The key that says how far tokens are above revisions.
    pub(crate) fn tokens(&self) -> String {
        format!("{}%tokens", self.prefix)
    }

    /// The lock that this key stands in line for, if it is such a key, and what comes after its name.
    pub(crate) fn parse<'a>(&self, key: &'a str) -> Option<(LockName, &'a str)> {
        let (name, rest) = key.strip_prefix(&self.prefix)?.split_once('/')?;
        Some((LockName::new(&unescaped(name)?).ok()?, rest))
    }
}

/// The end of the range of the keys that begin with this, as etcd counts.
pub(crate) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // Text has no byte 0xff, so there is always a next one.
    match end.last_mut() {
        Some(last) => *last += 1,
        // To the end of everything.
        None => end.push(0),
    }
    end
}

fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

/// `None` if [`escaped`] makes no such text.
fn unescaped(text: &str) -> Option<String> {
    let name = text.replace("%2F", "/").replace("%25", "%");
    (escaped(&name) == text).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::OwnerId;

    use super::*;

    #[test]
    fn names_are_read_back_and_lie_side_by_side() {
        let keys = Keys::new("app/locks").unwrap();
        let names =
            ["a", "a/b", "a%2Fb", "%", "%25", "/", "..", "a/", "%session", "😀"].map(|n| LockName::new(n).unwrap());
        for name in &names {
            let claim = Claim::new(name.clone(), OwnerId::from_store("x@h:1#%/u"), Duration::ZERO);
            let (found, rest) = (keys.own(&claim), "x@h:1#%25%2Fu");
            assert_eq!(keys.parse(&found), Some((name.clone(), rest)), "{found}");
            for other in names.iter().filter(|other| *other != name) {
                assert!(!found.starts_with(&keys.line(other)), "{found}");
            }
        }
        assert_eq!(keys.line(&names[1]), "app/locks/a%2Fb/");
    }

    #[test]
    fn what_is_no_locks_key_is_none() {
        let keys = Keys::new("app").unwrap();
        for key in ["app", "app/", "app/a", "other/a/b", "app//x", "app/%2fa/x"] {
            assert_eq!(keys.parse(key), None, "{key}");
        }
        assert_eq!(keys.parse(&keys.beacon(7)), None);
        assert!(Keys::new("/x").is_err() && Keys::new("x/").is_err() && Keys::new("a\n").is_err());
        assert_eq!(Keys::new("").unwrap().line(&LockName::new("job").unwrap()), "job/");
    }

    #[test]
    fn ranges_end_after_their_last_key() {
        assert_eq!(end_of("a/"), b"a0");
        assert_eq!(end_of(""), [0]);
    }
}
