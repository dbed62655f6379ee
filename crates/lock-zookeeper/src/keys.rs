//! Where a lock is kept, and who is before whom in its line. Nothing here asks a server.

use lock_core::{LockName, Result, check_prefix};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// What a node's name cannot have, or would mean something: all beyond ASCII, too, much of which ZooKeeper refuses.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'/').add(b'%');

/// Makes paths of names.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// Below which all locks are: a path, or empty for the chroot itself.
    root: String,
}

impl Keys {
    /// The prefix is the path below which the locks are kept, with or without its first slash.
    pub(crate) fn new(prefix: &str) -> Result<Self> {
        let path = prefix.trim_matches('/');
        let bad = |part: &str| {
            let refused = |c: char| c.is_control() || ('\u{e000}'..='\u{f8ff}').contains(&c) || c >= '\u{fff0}';
            part.is_empty() || part == "." || part == ".." || part.chars().any(refused)
        };
        if path.is_empty() {
            return Ok(Self { root: String::new() });
        }
        let refused = path.split('/').any(bad) || path.split('/').next() == Some("zookeeper");
        check_prefix(prefix, refused.then_some("it is no path of a node as app/locks is"))?;
        Ok(Self { root: format!("/{path}") })
    }

    /// The node below which all locks are.
    pub(crate) fn root(&self) -> &str {
        if self.root.is_empty() { "/" } else { &self.root }
    }

    /// Where sessions show that they live.
    pub(crate) fn beacons(&self) -> String {
        if self.root.is_empty() { "/oarlock-sessions".to_owned() } else { format!("{}-sessions", self.root) }
    }

    /// The node whose making is where tokens are counted from.
    pub(crate) fn tokens(&self) -> String {
        if self.root.is_empty() { "/oarlock-tokens".to_owned() } else { format!("{}-tokens", self.root) }
    }

    /// The node whose children stand in line for the lock.
    pub(crate) fn folder(&self, name: &LockName) -> String {
        let name = match name.as_str() {
            "." => "%2E".to_owned(),
            ".." => "%2E%2E".to_owned(),
            // It is ZooKeeper's own.
            "zookeeper" if self.root.is_empty() => "%7Aookeeper".to_owned(),
            name @ ("oarlock-sessions" | "oarlock-tokens") if self.root.is_empty() => name.replacen('o', "%6F", 1),
            name => utf8_percent_encode(name, ESCAPED).to_string(),
        };
        format!("{}/{name}", self.root)
    }

    /// The lock whose folder is this child of the root, if it is a lock's.
    pub(crate) fn name(&self, child: &str) -> Option<LockName> {
        let name = LockName::new(&percent_decode_str(child).decode_utf8().ok()?).ok()?;
        let is_so_written = self.folder(&name).strip_prefix(&self.root)?.strip_prefix('/')? == child;
        is_so_written.then_some(name)
    }
}

/// The last part of a path.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// What stands between a node's own name and its number: Curator's mutex's and ours, its read-write lock's, and kazoo's.
const MARKS: [&str; 5] = ["lock-", "__WRIT__", "__READ__", "__lock__", "__rlock__"];

/// Before the mark of a reader that takes part where Curator's mutex does.
pub(crate) const READS: &str = "-read-";

/// The last of these in a node's name, and what is before and after it.
fn parted(child: &str) -> Option<(&str, &'static str, &str)> {
    let last = |mark: &'static str| child.rfind(mark).map(|at| (at + mark.len(), at, mark));
    let (end, at, mark) = MARKS.into_iter().filter_map(last).max()?;
    Some((&child[..at], mark, &child[end..]))
}

/// The number that ZooKeeper gave to a node in the line; `None` for a node that is not in it.
///
/// It counts on from 2³¹−1 with the lowest negative number, in a later server perhaps with more digits: the low 32 bits
/// are the same.
fn number(child: &str) -> Option<i32> {
    let (_, _, digits) = parted(child)?;
    digits.parse::<i64>().ok().filter(|_| digits.len() >= 10).map(|number| number as i32)
}

/// Does it stand in line for a lock? Other recipes have nodes of another kind.
pub(crate) fn is_in_line(child: &str) -> bool {
    number(child).is_some()
}

/// Does it stand there only to read?
pub(crate) fn reads(child: &str) -> bool {
    match parted(child) {
        Some((before, "lock-", _)) => before.ends_with(READS),
        Some((_, mark, _)) => ["__READ__", "__rlock__"].contains(&mark),
        None => false,
    }
}

/// Is it in the line of Curator's read-write lock? None: Curator has no part in it.
pub(crate) fn is_of_read_write_lock(child: &str) -> Option<bool> {
    match parted(child)?.1 {
        "lock-" => Some(false),
        "__READ__" | "__WRIT__" => Some(true),
        _ => None,
    }
}

/// So many of those in line hold the lock together, the first first.
pub(crate) fn holding<'a>(line: impl IntoIterator<Item = &'a str>) -> usize {
    let mut line = line.into_iter();
    match line.next() {
        Some(first) if reads(first) => 1 + line.take_while(|child| reads(child)).count(),
        first => first.into_iter().count(),
    }
}

/// For whom a node waits: all that stand before it, and of those that only read a reader for none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ahead<'a> {
    pub(crate) count: usize,
    /// The last of them.
    pub(crate) predecessor: Option<&'a str>,
    /// The first of them.
    pub(crate) first: Option<&'a str>,
}

/// For whom this node waits; `None` if it is not in the line itself.
pub(crate) fn ahead<'a>(children: &'a [String], own: &str) -> Option<Ahead<'a>> {
    let mine = number(own).filter(|_| children.iter().any(|child| child == own))?;
    let waits_for = |child: &&String| !(reads(own) && reads(child));
    // A difference is right also where the numbers wrap.
    let before =
        |child: &'a String| Some((mine.wrapping_sub(number(child)?), child.as_str())).filter(|(by, _)| *by > 0);
    let (mut count, mut last, mut first) = (0, None, None);
    for one in children.iter().filter(waits_for).filter_map(before) {
        count += 1;
        last = last.into_iter().chain([one]).min();
        first = first.max(Some(one));
    }
    let name = |(_, child): (i32, &'a str)| child;
    Some(Ahead { count, predecessor: last.map(name), first: first.map(name) })
}

/// The line, the first first.
pub(crate) fn in_line(children: Vec<String>) -> Vec<String> {
    let mut line: Vec<_> = children.into_iter().filter_map(|child| Some((number(&child)?, child))).collect();
    if let Some(&(any, _)) = line.first() {
        line.sort_by_key(|(number, _)| number.wrapping_sub(any));
    }
    line.into_iter().map(|(_, child)| child).collect()
}

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;

    use super::*;

    fn names(prefix: &str) -> Keys {
        Keys::new(prefix).unwrap()
    }

    #[test]
    fn names_are_escaped_and_read_back() {
        let names = names("oarlock");
        for name in ["a", "a/b", "..", ".", "...", "%2E", "a b", "J\u{f6}b", "\u{1f600}", "%", "zookeeper"] {
            let name = LockName::new(name).unwrap();
            let folder = names.folder(&name);
            let child = folder.strip_prefix("/oarlock/").unwrap();
            assert!(child.is_ascii() && !child.contains('/') && !matches!(child, "." | ".."), "{child}");
            assert_eq!(names.name(child), Some(name));
        }
        for foreign in ["a%2e", "%41", "%FF", "%00"] {
            assert_eq!(names.name(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn prefixes_are_paths() {
        assert_eq!(names("/app/locks/").folder(&LockName::new("x").unwrap()), "/app/locks/x");
        let bare = names("");
        assert_eq!((bare.root(), bare.folder(&LockName::new("x").unwrap()).as_str()), ("/", "/x"));
        for own in ["zookeeper", "oarlock-sessions", "oarlock-tokens"] {
            assert_eq!(bare.name(own), None);
            assert_ne!(bare.folder(&LockName::new(own).unwrap()), format!("/{own}"));
        }
        for bad in ["a//b", "../a", "zookeeper/x", "a\u{0}"] {
            assert_eq!(Keys::new(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }

    fn line(children: &[&str]) -> Vec<String> {
        children.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_line_goes_by_number_whoever_wrote_it() {
        let children =
            line(&["_c_9-lock-0000000007", "stray", "0f__lock__0000000005", "lock-7", "_c_1-lock-0000000006"]);
        let ahead_of = |own| ahead(&children, own).unwrap();
        assert_eq!(
            ahead_of("_c_9-lock-0000000007"),
            Ahead { count: 2, predecessor: Some("_c_1-lock-0000000006"), first: Some("0f__lock__0000000005") }
        );
        assert_eq!(ahead_of("0f__lock__0000000005"), Ahead { count: 0, predecessor: None, first: None });
        assert_eq!(ahead(&children, "_c_9-lock-0000000008"), None);
        assert_eq!(in_line(children), ["0f__lock__0000000005", "_c_1-lock-0000000006", "_c_9-lock-0000000007"]);
    }

    #[test]
    fn readers_wait_for_writers_alone() {
        let children = line(&[
            "_c_1-read-lock-0000000001",
            "_c_2-__READ__0000000002",
            "_c_3-__WRIT__0000000003",
            "0f__rlock__0000000004",
            "_c_5-7-read-lock-0000000005",
            "_c_6-lock-0000000006",
        ]);
        let ahead_of = |own| {
            let ahead = ahead(&children, own).unwrap();
            (ahead.count, ahead.predecessor)
        };
        assert_eq!((ahead_of("_c_2-__READ__0000000002"), holding(children.iter().map(String::as_str))), ((0, None), 2));
        assert_eq!(ahead_of("_c_5-7-read-lock-0000000005"), (1, Some("_c_3-__WRIT__0000000003")));
        assert_eq!(ahead_of("_c_6-lock-0000000006"), (5, Some("_c_5-7-read-lock-0000000005")));
        let after = children.iter().skip(2).map(String::as_str);
        assert_eq!((holding(after), holding([])), (1, 0));
        let kinds: Vec<_> = children.iter().map(|child| is_of_read_write_lock(child)).collect();
        assert_eq!(kinds, [Some(false), Some(true), Some(true), None, Some(false), Some(false)]);
    }

    #[test]
    fn the_line_goes_on_where_numbers_wrap() {
        let children = line(&["a-lock--2147483648", "b-lock-2147483647", "c-lock--2147483647"]);
        assert_eq!(in_line(children.clone()), ["b-lock-2147483647", "a-lock--2147483648", "c-lock--2147483647"]);
        let last = ahead(&children, "c-lock--2147483647").unwrap();
        let (predecessor, first) = (Some("a-lock--2147483648"), Some("b-lock-2147483647"));
        assert_eq!(last, Ahead { count: 2, predecessor, first });
        assert_eq!(number("x-lock-2147483648"), Some(i32::MIN));
    }
}
