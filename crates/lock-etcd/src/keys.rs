//! Which keys a lock has: those directly under its name, its *line*.
//!
//! They begin with what the claim is for, its *way*: `write/`, `read/` or `permit/`. Go's `recipes.RWMutex` has the first
//! two.
//!
//! One is the *seat*, `name/write/0`, which anybody may put while nobody is in line. Whoever waits puts a *place*, which is
//! named by its lease in hexadecimal digits, as Go's `concurrency.Mutex` names its keys; further claims of one client
//! for one lock have `.1`, `.2` and so on after it. These keys are used again and again: etcd keeps every key that was
//! deleted in its index until it is compacted, and passes over all those of a line when it looks at the line. So what
//! a lock costs depends on how many clients there were, and not on how many locks.
//!
//! The value of either key is the owner; of a permit's, how many permits it takes, and the owner. A claim that shows a
//! value has a place that is named `1a~owner`, without a way: there the value is what it shows, and nothing else, as Go's
//! `concurrency.Election` and `etcdctl elect` have it. Such a name does not come again, so an election costs a name each
//! time that somebody stands for it.
//!
//! A hold that was *kept* has its key still, created when it was, and on a lease of its own, which nobody prolongs. Its
//! owner is `kept#` and the former one; where the owner is in the name, the key is kept if its lease is not the one that
//! the name begins with.
//!
//! Whoever had a place and gives the lock back puts a *mark*, `%passed/` and so on, for the next in line. How many permits
//! a semaphore has, and who has which, is in `%permits/name` while somebody has one: see `permits`.
//!
//! `etcdctl lock` and Go's `concurrency.Mutex` take whatever begins with `name/` for the line of `name`. So a `/`
//! inside a name is written `%2F`, and a `%` as `%25`: then no lock lies under another. A `%` before anything else is
//! in no name, and begins the keys that are not a lock's.

use lock_core::{Claim, LockName, Mode, Result, check_prefix};

/// The ways of those who read, of those who hold alone, and of those who take permits.
const READS: &str = "read/";
const WRITES: &str = "write/";
const TAKES: &str = "permit/";

/// Who has this has nobody ahead.
const SEAT: &str = "0";

/// Stands between the place and the owner of a claim that shows a value.
const SHOWS: char = '~';

/// So many marks a session has at most.
const MARKS: u64 = 64;

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

    /// What a client calls one of its claims. It is no key.
    pub(crate) fn id(&self, claim: &Claim) -> String {
        format!("{}{}", self.line(&claim.name), claim.owner.as_str())
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

    /// The key that is put when who had this place gives the lock back, with the place in it. A session has a few of
    /// them for all its places, since they stay for as long as it does.
    pub(crate) fn mark(&self, place: &str) -> String {
        let lease = place.rsplit('/').next().and_then(|own| own.split(['.', SHOWS]).next()).unwrap_or_default();
        // FNV-1a: whoever waits has to come to the same.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = place.bytes().fold(0xcbf2_9ce4_8422_2325, step);
        format!("{}{lease}/{}", self.marks(), hash % MARKS)
    }

    /// The key that says how many permits there are of the semaphore with this line, and who has which.
    pub(crate) fn permits(&self, line: &str) -> String {
        let name = line.strip_prefix(&self.prefix).unwrap_or(line);
        format!("{}%permits/{}", self.prefix, name.trim_end_matches('/'))
    }

    pub(crate) fn is_mark(&self, key: &str) -> bool {
        key.starts_with(&self.marks())
    }

    fn marks(&self) -> String {
        format!("{}%passed/", self.prefix)
    }

    /// The line that this key stands in, if it stands in one.
    pub(crate) fn line_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        let name = key.strip_prefix(&self.prefix)?.find('/')?;
        key.get(..=self.prefix.len() + name)
    }

    /// The lock that this key stands in line for, if it is such a key, and what comes after its name.
    pub(crate) fn parse<'a>(&self, key: &'a str) -> Option<(LockName, &'a str)> {
        let (name, rest) = key.strip_prefix(&self.prefix)?.split_once('/')?;
        Some((LockName::new(&unescaped(name)?).ok()?, rest))
    }
}

fn way(mode: Mode) -> &'static str {
    match mode {
        Mode::Shared => READS,
        Mode::Permits { .. } => TAKES,
        _ => WRITES,
    }
}

/// In which mode a key stands in line, without what all keys of its line begin with: if for permits, in which it is does not
/// say how many.
pub(crate) fn stands_as(rest: &str) -> Mode {
    if rest.starts_with(READS) {
        return Mode::Shared;
    }
    if rest.starts_with(TAKES) { Mode::Permits { take: 1, of: 1 } } else { Mode::Exclusive }
}

/// What the keys of all who read begin with.
pub(crate) fn readers(line: &str) -> String {
    format!("{line}{READS}")
}

/// What the keys of all who take permits begin with.
pub(crate) fn takers(line: &str) -> String {
    format!("{line}{TAKES}")
}

/// The key of whoever comes in this mode while nobody is in line.
pub(crate) fn seat(line: &str, mode: Mode) -> String {
    format!("{line}{}{SEAT}", way(mode))
}

/// The key of who waits: of the first claim of its client for this lock, or of one of the others.
pub(crate) fn place(line: &str, mode: Mode, lease: i64, number: usize) -> String {
    numbered(format!("{line}{}{lease:x}", way(mode)), number)
}

/// The place of a claim that shows a value.
pub(crate) fn showing(line: &str, lease: i64, number: usize, owner: &str) -> String {
    numbered(format!("{line}{lease:x}"), number) + &format!("{SHOWS}{}", escaped(owner))
}

fn numbered(place: String, number: usize) -> String {
    if number == 0 { place } else { format!("{place}.{number}") }
}

/// Does who has this key, and gives the lock back, tell that it held? Who has the seat has nobody to wait for, and of
/// several who hold together none can say that nobody else does.
pub(crate) fn tells(line: &str, key: &str) -> bool {
    let rest = key.strip_prefix(line).unwrap_or_default();
    shown_by(rest).is_some() || rest.strip_prefix(WRITES).is_some_and(|place| place != SEAT)
}

/// The lease and the owner that such a place is named by, without what all keys of its line begin with.
pub(crate) fn shown_by(rest: &str) -> Option<(i64, String)> {
    let (place, owner) = rest.split_once(SHOWS)?;
    let lease = i64::from_str_radix(place.split('.').next()?, 16).ok()?;
    Some((lease, unescaped(owner)?))
}

/// Is it a key that we put on this lease, or Go's `concurrency.Mutex` or `recipes.RWMutex` does? Without what all keys of
/// its line begin with.
pub(crate) fn is_a_waiters(rest: &str, lease: i64) -> bool {
    let place = [READS, WRITES, TAKES].iter().find_map(|way| rest.strip_prefix(way));
    // Go names these by the time.
    let is_of_go =
        |place: &str| !rest.starts_with(TAKES) && !place.is_empty() && place.bytes().all(|c| c.is_ascii_digit());
    if place.is_some_and(|place| place == SEAT || is_of_go(place)) {
        return true;
    }
    let place = place.or_else(|| shown_by(rest).and(rest.split(SHOWS).next())).unwrap_or(rest);
    let (named_by, number) = place.split_once('.').unwrap_or((place, "1"));
    named_by == format!("{lease:x}") && number.parse().is_ok_and(|number: u32| number > 0)
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
    use super::*;

    #[test]
    fn names_are_read_back_and_lie_side_by_side() {
        let keys = Keys::new("app/locks").unwrap();
        let names =
            ["a", "a/b", "a%2Fb", "%", "%25", "/", "..", "a/", "%session", "😀"].map(|n| LockName::new(n).unwrap());
        for name in &names {
            let line = keys.line(name);
            let (alone, reads, takes) = (Mode::Exclusive, Mode::Shared, Mode::Permits { take: 2, of: 5 });
            for (found, rest) in [
                (seat(&line, alone), "write/0"),
                (place(&line, alone, 26, 0), "write/1a"),
                (place(&line, reads, 26, 3), "read/1a.3"),
                (place(&line, takes, 26, 0), "permit/1a"),
            ] {
                assert_eq!(keys.parse(&found), Some((name.clone(), rest)), "{found}");
                for other in names.iter().filter(|other| *other != name) {
                    assert!(!found.starts_with(&keys.line(other)), "{found}");
                }
            }
        }
        assert_eq!(keys.line(&names[1]), "app/locks/a%2Fb/");
    }

    #[test]
    fn a_key_of_another_kind_is_known() {
        for number in [0, 1, 25] {
            for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { take: 1, of: 1 }] {
                let rest = place("x/", mode, 26, number).strip_prefix("x/").unwrap().to_owned();
                assert!(is_a_waiters(&rest, 26) && stands_as(&rest) == mode, "{rest}");
            }
        }
        for ours in ["write/0", "permit/0", "1a~me", "1a.2~me", "1a", "read/1763942400000000000"] {
            assert!(is_a_waiters(ours, 26), "{ours}");
        }
        let others = ["", "0", "1b", "1a.", "1a.0", "1a.x", "00", "somebody@host", "1a/1", "1b~me", "1a~%", "1a.0~me"];
        for other in others.into_iter().chain(["read/", "write/x", "permit/1763942400", "read/1a~me"]) {
            assert!(!is_a_waiters(other, 26), "{other}");
        }
    }

    #[test]
    fn who_waited_alone_tells_that_it_held() {
        for (rest, tells) in
            [("write/0", false), ("write/1a.2", true), ("1a~me", true), ("1a", false), ("read/1a", false)]
        {
            assert_eq!(super::tells("x/", &format!("x/{rest}")), tells, "{rest}");
        }
    }

    #[test]
    fn who_shows_a_value_is_read_back() {
        let keys = Keys::new("app").unwrap();
        let line = keys.line(&LockName::new("a/b").unwrap());
        for owner in ["a/%~b@host:1#2", "~", "x"] {
            for number in [0, 3] {
                let shows = showing(&line, 26, number, owner);
                let (_, rest) = keys.parse(&shows).unwrap();
                assert_eq!(shown_by(rest), Some((26, owner.to_owned())), "{shows}");
                assert_eq!(keys.line_of(&shows), Some(&*line));
                assert!(keys.mark(&shows).starts_with("app/%passed/1a/"), "{}", keys.mark(&shows));
            }
        }
        for other in ["0", "1a", "1a.2", "~x", "x~y", "1a~%"] {
            assert_eq!(shown_by(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_locks_key_is_none() {
        let keys = Keys::new("app").unwrap();
        for key in ["app", "app/", "app/a", "other/a/b", "app//x", "app/%2fa/x"] {
            assert_eq!(keys.parse(key), None, "{key}");
        }
        assert_eq!(keys.parse(&keys.beacon(7)), None);
        let line = keys.line(&LockName::new("a").unwrap());
        assert_eq!((keys.parse(&keys.permits(&line)), keys.permits(&line).as_str()), (None, "app/%permits/a"));
        let place = place(&line, Mode::Exclusive, 26, 1);
        assert!(keys.parse(&keys.mark(&place)).is_none() && keys.is_mark(&keys.mark(&place)) && !keys.is_mark(&place));
        assert!(Keys::new("/x").is_err() && Keys::new("x/").is_err() && Keys::new("a\n").is_err());
        assert_eq!(Keys::new("").unwrap().line(&LockName::new("job").unwrap()), "job/");
    }

    #[test]
    fn ranges_end_after_their_last_key() {
        assert_eq!(end_of("a/"), b"a0");
        assert_eq!(end_of(""), [0]);
    }
}
