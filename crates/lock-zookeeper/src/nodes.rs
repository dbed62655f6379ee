//! What a node in a line is called, and what stands in it. Nothing here asks a server.
//!
//! | | name | data |
//! | --- | --- | --- |
//! | a claim, held or waiting | `_c_<uuid>-lock-<number>` | `<owner>`, a tab, `<base>` |
//! | one with a value | the same | the same, a line break, `<value>` |
//! | a hold that was kept | `_c_<uuid>-kept-<token>-<rest>-lock-<number>` | `kept#<owner>`, perhaps a line break and `<value>` |
//!
//! The `<base>` is the number above which the claim's token is counted; when somebody looks, that of the prefix may have
//! been raised.
//!
//! The UUID is told from the owner (version 5), so nobody else's node looks like it, and data are read so only where the
//! UUID is that of the owner in them. What other programs write is an owner as a whole.
//!
//! All that a kept hold needs to end in time is in its name: others may write to any node, as Curator's `Revoker` does.
//! Its number is that of the node in whose place it is. `rest` is in milliseconds.

use std::fmt;

use lock_core::{LockValue, OwnerId, StoreToken, TokenBase};
use uuid::Uuid;

use crate::keys::{is_in_line, name_of};

/// Between an owner and its token's base. An owner that we draw has none.
const TAB: char = '\t';

/// Before a value. An owner that we draw has none.
const BREAK: char = '\n';

fn uuid_of(owner: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, owner.as_bytes())
}

/// What the name of a claim's node begins with. Of the owner it shows nothing, and from the owner it can be told again.
pub(crate) fn node_prefix(owner: &OwnerId) -> String {
    format!("_c_{}-lock-", uuid_of(owner.as_str()))
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
    let place = &name[name.rfind("-lock-")?..];
    Some(format!("{folder}/{}{}-{}{place}", kept_prefix(owner), terms.token.get(), terms.rest))
}

/// How a hold is kept, by the name of its node. It is one of those only if no session owns it, too.
pub(crate) fn terms(name: &str) -> Option<Terms> {
    let (uuid, terms) = name.strip_prefix("_c_")?.split_once("-kept-")?;
    Uuid::try_parse(uuid).ok()?;
    let (terms, _) = terms.split_once("-lock-").filter(|_| is_in_line(name))?;
    let (token, rest) = terms.split_once('-')?;
    Some(Terms { token: StoreToken::new(token.parse().ok()?).ok()?, rest: rest.parse().ok()? })
}

/// Is this node ours, by its name? Then whoever stands there sees to the first in line itself.
pub(crate) fn is_ours(name: &str) -> bool {
    let uuid = name.strip_prefix("_c_").and_then(|name| Uuid::try_parse(name.get(..36)?).ok());
    uuid.is_some_and(|uuid| uuid.get_version_num() == 5)
}

/// What stands in a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) owner: OwnerId,
    /// From where the token of this claim is counted; a hold that was kept has its token in its name.
    pub(crate) base: Option<TokenBase>,
    pub(crate) value: Option<LockValue>,
}

impl Content {
    /// As it stands in the node at this path. Who writes nothing there is known by its node.
    pub(crate) fn read(path: &str, text: &str) -> Self {
        let name = name_of(path);
        let (first, value) = text.split_once(BREAK).map_or((text, None), |(first, value)| (first, Some(value)));
        let (owner, base) = first.split_once(TAB).map_or((first, None), |(owner, base)| (owner, Some(base)));
        if name.strip_prefix("_c_").is_some_and(|name| name.starts_with(&uuid_of(owner).to_string())) {
            let base = base.and_then(|base| base.parse().ok()).map(TokenBase::with_above);
            let value = value.and_then(|value| LockValue::from_store(value.as_bytes()));
            return Self { owner: OwnerId::from_store(owner), base, value };
        }
        let owner = OwnerId::from_store(if text.is_empty() { name } else { text });
        // Somebody wrote over it: kept it is all the same.
        let is_hidden = terms(name).is_some() && owner.before_it_kept().is_none();
        Self { owner: if is_hidden { owner.kept() } else { owner }, base: None, value: None }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.owner.as_str())?;
        if let Some(base) = self.base {
            write!(f, "{TAB}{}", base.above())?;
        }
        self.value.as_ref().map_or(Ok(()), |value| write!(f, "{BREAK}{value}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keys::{ahead, in_line};

    fn owner() -> OwnerId {
        OwnerId::from_store("job@host:7#5f6f")
    }

    fn node(number: &str) -> String {
        format!("/oarlock/x/{}{number}", node_prefix(&owner()))
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
            assert!(!kept.starts_with(&node_prefix(&owner())) && is_ours(&kept) && is_ours(&before));
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
            assert_eq!(terms(&other), None, "{other}");
        }
        assert!(!is_ours("_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lock-0000000006") && !is_ours("_c_é"));
    }

    #[test]
    fn an_owner_and_its_value_are_read_as_they_were_written() {
        let (base, value) = (TokenBase::with_above(-7), LockValue::new("\nhttp://a:1\t\n\"x\"").unwrap());
        for (owner, path, base) in [
            (owner(), node("0000000007"), Some(base)),
            (
                owner().kept(),
                kept_path(&node("0000000007"), &owner(), Terms { token: token(1), rest: 2 }).unwrap(),
                None,
            ),
        ] {
            for value in [None, Some(value.clone())] {
                let content = Content { owner: owner.clone(), base, value };
                assert_eq!(Content::read(&path, &content.to_string()), content);
            }
        }
        let theirs = "/oarlock/x/_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lock-0000000006";
        for (text, owner) in [("their\tleader\n1", "their\tleader\n1"), ("", name_of(theirs))] {
            let expected = Content { owner: OwnerId::from_store(owner), base: None, value: None };
            assert_eq!(Content::read(theirs, text), expected);
        }
    }

    proptest! {
        #[test]
        fn any_data_and_names_are_read(name in "(_c_)?[0-9a-f-]{0,36}(-kept-)?[0-9-]{0,30}(-lock-)?[0-9]{0,11}|\\PC{0,40}", data in "\\PC{0,9}\n?\\PC{0,9}") {
            let Content { owner, base, value } = Content::read(&name, &data);
            assert!(value.is_none() && base.is_none() && !owner.as_str().is_empty() || name_of(&name).is_empty());
            assert!(terms(&name).is_none_or(|_| is_in_line(&name)));
            is_ours(&name);
        }

        #[test]
        fn any_content_is_read_back(owner in "[a-z#@:0-9]{1,20}", above: i64, text in "[^\0]{1,40}") {
            let owner = OwnerId::from_store(&owner);
            let node = format!("/x/{}0000000001", node_prefix(&owner));
            let (base, value) = (Some(TokenBase::with_above(above)), Some(LockValue::new(text).unwrap()));
            let content = Content { owner, base, value };
            assert_eq!(Content::read(&node, &content.to_string()), content);
        }
    }

    #[test]
    fn who_is_written_over_has_kept_its_hold_all_the_same() {
        let path = kept_path(&node("0000000007"), &owner(), Terms { token: token(1), rest: 2 }).unwrap();
        for written in ["__REVOKE__", ""] {
            assert!(Content::read(&path, written).owner.before_it_kept().is_some());
        }
    }
}
