//! What a node in a line is called, and what stands in it. Nothing here asks a server. (`permits.rs` has those of a
//! semaphore.)
//!
//! | | name | data |
//! | --- | --- | --- |
//! | a claim, held or waiting | `_c_<uuid>-<base>-lock-<number>` | `<owner>` |
//! | one with a value | the same | `<owner>`, a line break, `<value>` |
//! | one to read | `_c_<uuid>-<base>-read-lock-<number>` | `<owner>` |
//! | a hold that was kept | `_c_<uuid>-kept-<token>-<rest>-lock-<number>` | the same, of the owner `kept#<owner>` |
//!
//! The UUID is told from the owner (version 5), so nobody else's node looks like it, and data are read as an owner and
//! a value only where the UUID is that of their first line. What other programs write is an owner as a whole.
//!
//! The `<base>` is the number above which the claim's token is counted (`tokens.rs`): when somebody looks, that of the
//! prefix may have been raised.
//!
//! So Curator's mutex and kazoo's take them all for others of their kind, readers too. For Curator's read-write lock,
//! which takes no notice of such nodes, a claim is named `_c_<uuid>-<base>-__WRIT__<number>`, and `…__READ__…` if it is
//! to read. Each client writes either ones or the others, and takes part in both lines as in one.
//!
//! All that a kept hold needs to end in time is in its name: others may write to any node, as Curator's `Revoker` does.
//! Its number is that of the node in whose place it is. `rest` is in milliseconds.

use std::borrow::Cow;

use lock_core::{LockValue, Mode, OwnerId, StoreToken, TokenBase};
use uuid::Uuid;

use crate::keys::{is_in_line, is_of_read_write_lock, name_of};

/// Between an owner and its value. An owner that we draw has none.
const BREAK: char = '\n';

fn uuid_of(owner: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, owner.as_bytes())
}

/// What the name of an owner's node begins with, unless its hold is kept. Of the owner it shows nothing, and from the
/// owner it can be told again.
pub(crate) fn owner_prefix(owner: &OwnerId) -> String {
    format!("_c_{}-", uuid_of(owner.as_str()))
}

/// Beside which of Curator's locks ours take part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Peers {
    #[default]
    Mutex,
    ReadWriteLock,
}

impl Peers {
    /// What comes before the number of a node.
    fn mark(self, mode: Mode) -> &'static str {
        match (self, mode) {
            (Self::Mutex, Mode::Shared) => "-read-lock-",
            (Self::Mutex, _) => "-lock-",
            (Self::ReadWriteLock, Mode::Shared) => "-__READ__",
            (Self::ReadWriteLock, _) => "-__WRIT__",
        }
    }

    /// Does whoever made this node take no notice of ours?
    pub(crate) fn are_missed_by(self, child: &str) -> bool {
        !is_ours(child) && is_of_read_write_lock(child).is_some_and(|both| both != (self == Self::ReadWriteLock))
    }
}

/// What is before the mark in what a node of ours is called, and the rest with it.
fn at_mark(text: &str) -> Option<(&str, &str)> {
    let marks = ["-permits-", "-read-lock-", "-lock-", "-__READ__", "-__WRIT__"];
    marks.iter().filter_map(|mark| text.find(mark)).min().map(|at| text.split_at(at))
}

/// The name of a claim's node, whose token is counted from this base, up to its number.
pub(crate) fn node_prefix(owner: &OwnerId, base: TokenBase, mode: Mode, peers: Peers) -> String {
    format!("{}{}{}", owner_prefix(owner), base.above(), peers.mark(mode))
}

/// From where the token of this claim is counted, by the name of its node. Those of other programs do not say.
pub(crate) fn base(name: &str) -> Option<TokenBase> {
    let (_, after) = name.split_at_checked("_c_".len() + uuid::fmt::Hyphenated::LENGTH).filter(|_| is_ours(name))?;
    let (above, _) = at_mark(after.strip_prefix('-')?)?;
    above.parse().ok().map(TokenBase::with_above)
}

/// What the name of the node begins with in which this owner's hold is kept.
pub(crate) fn kept_prefix(owner: &OwnerId) -> String {
    format!("_c_{}-kept-", uuid_of(owner.kept().as_str()))
}

/// How a hold is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Of its grant.
    pub(crate) token: StoreToken,
    /// For how many milliseconds, from the node's creation on.
    pub(crate) rest: u64,
}

/// The path of the node that takes the place of the holder's, whose path is `node`.
pub(crate) fn kept_path(node: &str, owner: &OwnerId, terms: Terms) -> Option<String> {
    let (folder, name) = node.rsplit_once('/')?;
    let (_, place) = at_mark(name)?;
    Some(format!("{folder}/{}{}-{}{place}", kept_prefix(owner), terms.token.get(), terms.rest))
}

/// How a hold is kept, by the name of its node. It is one of those only if no session owns it, too.
pub(crate) fn terms(name: &str) -> Option<Terms> {
    let (uuid, terms) = name.strip_prefix("_c_")?.split_once("-kept-")?;
    Uuid::try_parse(uuid).ok()?;
    let (terms, _) = at_mark(terms).filter(|_| is_in_line(name))?;
    let (token, rest) = terms.split_once('-')?;
    Some(Terms { token: StoreToken::new(token.parse().ok()?).ok()?, rest: rest.parse().ok()? })
}

/// Is this node ours, by its name? Then whoever stands there sees to the first in line itself.
pub(crate) fn is_ours(name: &str) -> bool {
    let uuid = name.strip_prefix("_c_").and_then(|name| Uuid::try_parse(name.get(..36)?).ok());
    uuid.is_some_and(|uuid| uuid.get_version_num() == 5)
}

/// What stands in the node of this owner.
pub(crate) fn content<'a>(owner: &'a OwnerId, value: Option<&LockValue>) -> Cow<'a, str> {
    match value {
        None => owner.as_str().into(),
        Some(value) => format!("{}{BREAK}{value}", owner.as_str()).into(),
    }
}

/// Whose node this is, and what it shows. Who writes nothing there is known by its node.
pub(crate) fn read(path: &str, content: &str) -> (OwnerId, Option<LockValue>) {
    let name = name_of(path);
    if let Some((owner, value)) = content.split_once(BREAK)
        && name.strip_prefix("_c_").is_some_and(|name| name.starts_with(&uuid_of(owner).to_string()))
    {
        return (OwnerId::from_store(owner), LockValue::from_store(value.as_bytes()));
    }
    let owner = OwnerId::from_store(if content.is_empty() { name } else { content });
    // Somebody wrote over it: kept it is all the same.
    let is_hidden = terms(name).is_some() && owner.before_it_kept().is_none();
    (if is_hidden { owner.kept() } else { owner }, None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keys::{ahead, in_line, reads};

    fn owner() -> OwnerId {
        OwnerId::from_store("job@host:7#5f6f")
    }

    fn node(number: &str) -> String {
        format!(
            "/oarlock/x/{}{number}",
            node_prefix(&owner(), TokenBase::with_above(-7), Mode::Exclusive, Peers::Mutex)
        )
    }

    fn token(number: u64) -> StoreToken {
        StoreToken::new(number).unwrap()
    }

    #[test]
    fn a_kept_hold_has_its_place_and_its_terms_in_its_name() {
        for (number, rest) in [("0000000007", 0), ("-2147483648", 90_000), ("2147483648", u64::MAX)] {
            let terms = Terms { token: token(StoreToken::MAX), rest };
            let (before, kept) = (node(number), kept_path(&node(number), &owner(), terms).unwrap());
            let (before, kept) = (name_of(&before).to_owned(), name_of(&kept).to_owned());
            assert_eq!(super::terms(&kept), Some(terms));
            assert!(super::terms(&before).is_none() && kept.starts_with(&kept_prefix(&owner())));
            assert!(!kept.starts_with(&owner_prefix(&owner())) && is_ours(&kept) && is_ours(&before));
            assert_eq!((base(&before), base(&kept)), (Some(TokenBase::with_above(-7)), None));
            assert!(kept.ends_with(&format!("-lock-{number}")));
            let line = vec![kept.clone(), "_c_9-lock-0000000100".to_owned()];
            assert_eq!(ahead(&line, &kept).is_some_and(|ahead| ahead.count == 0), in_line(line.clone())[0] == kept);
        }
        let uuid = uuid_of("x");
        for other in [
            "_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lock-0000000006".to_owned(),
            format!("_c_{uuid}-kept-1-lock-0000000006"),
            format!("_c_{uuid}-kept-1--2-lock-0000000006"),
            format!("_c_{uuid}-kept-1-2-lock-6"),
            format!("_c_{uuid}-kept-36028797018963968-2-lock-0000000006"),
            "_c_x-kept-1-2-lock-0000000006".to_owned(),
            "0f__lock__0000000005".to_owned(),
        ] {
            assert_eq!((terms(&other), base(&other)), (None, None), "{other}");
        }
        assert!(!is_ours("_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lock-0000000006") && !is_ours("_c_é"));
    }

    #[test]
    fn an_owner_and_its_value_are_read_as_they_were_written() {
        let value = LockValue::new("\nhttp://a:1\n\"x\"").unwrap();
        assert_eq!(content(&owner(), None), owner().as_str());
        for (owner, path) in [
            (owner(), node("0000000007")),
            (owner().kept(), kept_path(&node("0000000007"), &owner(), Terms { token: token(1), rest: 2 }).unwrap()),
        ] {
            assert_eq!(read(&path, &content(&owner, None)), (owner.clone(), None));
            assert_eq!(read(&path, &content(&owner, Some(&value))), (owner, Some(value.clone())));
        }
        let theirs = "/oarlock/x/_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lock-0000000006";
        assert_eq!(read(theirs, "their\nleader"), (OwnerId::from_store("their\nleader"), None));
        assert_eq!(read(theirs, "").0.as_str(), name_of(theirs));
    }

    proptest! {
        #[test]
        fn any_data_and_names_are_read(name in "(_c_)?[0-9a-f-]{0,36}(-kept-)?[0-9-]{0,30}(-lock-)?[0-9]{0,11}|\\PC{0,40}", data in "\\PC{0,9}\n?\\PC{0,9}") {
            let (owner, value) = read(&name, &data);
            assert!(value.is_none() && !owner.as_str().is_empty() || name_of(&name).is_empty());
            assert!(terms(&name).is_none_or(|_| is_in_line(&name)));
            base(&name);
        }

        #[test]
        fn any_value_is_read_back(owner in "[a-z#@:0-9]{1,20}", above: i64, text in "[^\0]{1,40}") {
            let (owner, value) = (OwnerId::from_store(&owner), LockValue::new(text).unwrap());
            for (mode, peers) in [
                (Mode::Exclusive, Peers::Mutex),
                (Mode::Shared, Peers::Mutex),
                (Mode::Exclusive, Peers::ReadWriteLock),
                (Mode::Shared, Peers::ReadWriteLock),
            ] {
                let prefix = node_prefix(&owner, TokenBase::with_above(above), mode, peers);
                let node = format!("/x/{prefix}0000000001");
                assert_eq!(base(name_of(&node)), Some(TokenBase::with_above(above)));
                assert_eq!(reads(name_of(&node)), mode == Mode::Shared);
                assert_eq!(read(&node, &content(&owner, Some(&value))), (owner.clone(), Some(value.clone())));
            }
        }
    }

    #[test]
    fn who_is_written_over_has_kept_its_hold_all_the_same() {
        let path = kept_path(&node("0000000007"), &owner(), Terms { token: token(1), rest: 2 }).unwrap();
        for written in ["__REVOKE__", ""] {
            assert!(read(&path, written).0.before_it_kept().is_some());
        }
    }
}
