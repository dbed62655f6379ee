//! Which keys a lock has.

use std::borrow::Cow;

use lock_core::{LockName, Result, check_prefix};

use super::slots::{number_in, slot, tag};

/// What all keys begin with that are not the lock's own.
const OURS: &str = "oarlock-";

/// What stands before a lock's key that would begin so itself, which without a prefix its name may.
const ESCAPE: &str = "oarlock-lock:";

/// The last token of all locks; in a cluster, of those in one slot.
const TOKENS: &str = "oarlock-tokens";

/// The pattern of the keys of all lines.
pub(crate) const LINES: &str = "oarlock-line*";

/// Makes keys of names.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// With the separator; empty if there is none.
    prefix: String,
    cluster: bool,
}

/// The keys of one lock, all in one hash slot of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockKeys {
    /// The owner, as any client of Redis writes it.
    pub(crate) lock: String,
    /// The token and the start of its grant.
    pub(crate) grant: String,
    /// Who waits.
    pub(crate) line: String,
    /// The last token of this and other locks.
    pub(crate) tokens: Cow<'static, str>,
    /// Where they are, in a cluster.
    pub(crate) slot: Option<u16>,
}

impl Keys {
    pub(crate) fn new(prefix: &str, cluster: bool) -> Result<Self> {
        check_prefix(prefix, prefix.starts_with(OURS).then_some("it begins with \"oarlock-\""))?;
        Ok(Self { prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}:") }, cluster })
    }

    pub(crate) fn of(&self, name: &LockName) -> LockKeys {
        let lock = format!("{}{name}", self.before(name.as_str()));
        // A key with a part in braces hashes by that part, else as a whole; what has only half of them cannot be such a
        // part.
        let companion = |kind: &str| match tag(&lock) {
            Some(_) => format!("{OURS}{kind}:{lock}"),
            None if lock.contains('}') => format!("{OURS}{kind}-in:{{{}}}:{lock}", number_in(slot(&lock))),
            None => format!("{OURS}{kind}-of:{{{lock}}}"),
        };
        let slot = self.cluster.then(|| slot(&lock));
        let tokens = slot.map_or(TOKENS.into(), |slot| format!("{TOKENS}:{{{}}}", number_in(slot)).into());
        LockKeys { grant: companion("grant"), line: companion("line"), tokens, slot, lock }
    }

    /// The key of the rate limiter of this name.
    pub(crate) fn rate(&self, name: &LockName) -> String {
        self.of(name).grant.replacen("grant", "rate", 1)
    }

    /// The name of the lock that has this key, or whose line it is.
    pub(crate) fn name(&self, key: &str) -> Option<LockName> {
        let lock = match key.strip_prefix(OURS) {
            Some(ours) if !key.starts_with(ESCAPE) => match ours.strip_prefix("line")?.split_once(':')? {
                ("", lock) => lock,
                ("-of", lock) => lock.strip_prefix('{')?.strip_suffix('}')?,
                ("-in", lock) => lock.split_once(':')?.1,
                _ => return None,
            },
            _ => key,
        };
        let name = lock.strip_prefix(if lock.starts_with(OURS) { ESCAPE } else { &self.prefix })?;
        let is_so_written = lock.strip_suffix(name) == Some(self.before(name));
        LockName::new(name).ok().filter(|_| is_so_written)
    }

    /// What a lock's key begins with, if its name begins with this.
    fn before(&self, name: &str) -> &str {
        if self.prefix.is_empty() && name.starts_with(OURS) { ESCAPE } else { &self.prefix }
    }

    /// The pattern of the keys of names with this prefix.
    pub(crate) fn pattern(&self, prefix: &str) -> String {
        let mut pattern = String::new();
        for c in self.before(prefix).chars().chain(prefix.chars()) {
            if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern.push('*');
        pattern
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str, name: &str) -> LockKeys {
        Keys::new(prefix, true).unwrap().of(&LockName::new(name).unwrap())
    }

    #[test]
    fn a_lock_is_found_where_others_look_for_it() {
        assert_eq!(keys("oarlock", "orders/42").lock, "oarlock:orders/42");
        assert_eq!(keys("", "orders/42").lock, "orders/42");
        // Else it would be the grant of `x`.
        assert_eq!(keys("", "oarlock-grant-of:{x}").lock, "oarlock-lock:oarlock-grant-of:{x}");
    }

    #[test]
    fn companions_share_the_slot_and_no_key() {
        assert_eq!(keys("", "a").line, "oarlock-line-of:{a}");
        assert_eq!(keys("", "{a}b").line, "oarlock-line:{a}b");
        let names = ["a", "{a}", "{}", "{}a", "a}", "}a{", "{a"];
        for name in names {
            let keys = keys("", name);
            let rate = Keys::new("", true).unwrap().rate(&LockName::new(name).unwrap());
            assert!(rate.starts_with("oarlock-rate") && Some(slot(&rate)) == keys.slot);
            let others = [keys.grant.as_str(), &keys.line, &keys.tokens];
            assert!(others.iter().all(|key| Some(slot(key)) == keys.slot), "{keys:?}");
            assert_eq!(Keys::new("", false).unwrap().name(&keys.tokens), None);
        }
        let mut all: Vec<_> = names.iter().map(|name| keys("", name)).flat_map(|k| [k.lock, k.grant, k.line]).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 3 * names.len());
    }

    #[test]
    fn names_are_read_back() {
        let keys = Keys::new("app", false).unwrap();
        assert_eq!(keys.name("app:a:b").unwrap().as_str(), "a:b");
        for foreign in ["app", "app:", "other:a", "oarlock-line-of:{other:a}", "oarlock-grant-of:{app:a}"] {
            assert_eq!(keys.name(foreign), None, "{foreign}");
        }
        for name in ["a", "{a}b", "{}", "{}a", "a}", "}a{", "{a"].map(|name| LockName::new(name).unwrap()) {
            assert_eq!(keys.name(&keys.of(&name).line), Some(name));
        }
        assert_eq!(keys.pattern("a*[b]"), "app:a\\*\\[b\\]*");
        assert!(Keys::new("oarlock-x", false).is_err() && Keys::new("a\n", false).is_err());
    }
}
