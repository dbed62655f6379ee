//! Which keys the marks of an access are, and what a key of the data needs to be in their slot.

use crate::Access;

/// The keys of the marks of this access: that of its lock, or those of its permits.
///
/// Their values are the highest tokens that were seen, with 20 digits each. With rights by keys (`ACL`), a user needs
/// these, all of which begin with `oarlock-fence`.
pub fn mark_keys(access: &Access) -> Vec<String> {
    let name = access.name().as_str();
    // A key with a part in braces hashes by that part, else as a whole.
    let mark = match tag(name) {
        Some(_) => format!("oarlock-fence:{name}"),
        None => format!("oarlock-fence-of:{{{name}}}"),
    };
    match access.slots() {
        [] => vec![mark],
        // No other name's mark ends so, since names have no control characters.
        slots => slots.iter().map(|slot| format!("{mark}\u{1f}{slot}")).collect(),
    }
}

/// What of a key decides in which slot it is, if that is a part in braces.
fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}').map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
}

/// What has to be done so that data are in the slot of this access's marks.
pub(super) fn remedy(access: &Access) -> String {
    let name = access.name().as_str();
    match tag(name) {
        Some(tag) => format!("begin the keys with {{{tag}}}, the part in braces of the lock's name"),
        None if name.contains('}') => "have the keys' part in braces in the lock's name".to_owned(),
        None => {
            format!(
                "begin the keys with {{{name}}}, the lock's name in braces; or have their part in braces in the name"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn access(name: &str) -> Access {
        Access::new(name, 7_u64).unwrap()
    }

    #[test]
    fn a_mark_is_where_keys_with_the_name_or_its_tag_are() {
        for (name, is) in [
            ("orders/42", "orders/42"),
            ("orders/{42}", "42"),
            ("{a}{b}", "a"),
            ("a{", "a{"),
            ("{}", "{"),
            ("a}b", "a"),
        ] {
            let [mark] = &mark_keys(&access(name))[..] else { panic!("one mark") };
            assert_eq!(tag(mark), Some(is), "{mark}");
        }
    }

    #[test]
    fn each_name_and_slot_has_a_mark_of_its_own() {
        let names = ["a", "{a}", "{a}0", "a}", "{a", "a0", "{a}{a}", "oarlock-fence:{a}", "-of:{a}"];
        let marks: Vec<_> = names
            .iter()
            .flat_map(|name| [access(name), access(name).with_slots([0]), access(name).with_slots([1, 10])])
            .flat_map(|access| mark_keys(&access))
            .collect();
        assert_eq!(marks.iter().collect::<HashSet<_>>().len(), names.len() * 4, "{marks:?}");
    }

    #[test]
    fn the_remedy_names_what_to_write() {
        assert!(remedy(&access("orders/42")).contains("{orders/42}"));
        assert!(remedy(&access("orders/{42}")).contains("with {42},"));
        assert!(!remedy(&access("a}b")).contains("{"));
    }
}
