//! What holds whatever nodes there are. The property tests here pass any text, the targets in `fuzz/` what leads
//! deeper.

use lock_core::LockName;

use super::keys::{Keys, ahead, in_line, name_of};

pub(crate) fn names_have_nodes_of_their_own(prefix: &str, name: &str, other: &str) {
    let (Ok(keys), Ok(name), Ok(other)) = (Keys::new(prefix), LockName::new(name), LockName::new(other)) else {
        return;
    };
    let folder = keys.folder(&name);
    let child = name_of(&folder);
    let is_a_node = child.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && !matches!(child, "" | "." | "..");
    assert!(is_a_node && folder == format!("{}/{child}", keys.root().trim_end_matches('/')), "{folder}");
    assert!(folder != "/zookeeper" && folder != keys.beacons(), "{folder}");
    assert_eq!(folder == keys.folder(&other), name == other);
    assert_eq!(keys.name(child), Some(name));
}

pub(crate) fn a_node_of_another_does_no_harm(prefix: &str, child: &str) {
    let Ok(keys) = Keys::new(prefix) else { return };
    if let Some(name) = keys.name(child) {
        assert_eq!(name_of(&keys.folder(&name)), child);
    }
}

/// Whatever stands in a lock's folder.
pub(crate) fn each_has_one_before_it_but_the_first(children: &[String]) {
    let line = in_line(children.to_vec());
    for child in children {
        let Some(ahead) = ahead(children, child) else {
            assert!(!line.contains(child));
            continue;
        };
        assert!(line.contains(child) && ahead.count < line.len());
        assert_eq!(ahead.count == 0, ahead.predecessor.is_none());
        assert!(ahead.predecessor.is_none_or(|before| before != child && line.iter().any(|one| one == before)));
        assert_eq!(ahead.predecessor.is_none(), ahead.first.is_none());
    }
}

/// Those who came after one another, however long the line is in use: `steps` from each to the next.
pub(crate) fn a_line_keeps_its_order(first: i32, steps: &[u8]) {
    let numbers = steps.iter().scan(first, |number, step| {
        *number = number.wrapping_add(1 + i32::from(*step));
        Some(*number)
    });
    let marks = ["_c_0-lock-", "0f__lock__"].into_iter().cycle();
    let came: Vec<_> = numbers.zip(marks).map(|(number, mark)| format!("{mark}{number:010}")).collect();
    let children: Vec<_> = came.iter().rev().cloned().collect();
    assert_eq!(in_line(children.clone()), came);
    for (at, own) in came.iter().enumerate() {
        let ahead = ahead(&children, own).expect("it is in the line");
        let before = at.checked_sub(1).map(|before| came[before].as_str());
        assert_eq!((ahead.count, ahead.predecessor), (at, before));
        assert_eq!(ahead.first, came.first().filter(|_| at > 0).map(String::as_str));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_names(
            prefix in "[a-z/%.]{0,6}|\\PC{0,6}",
            name in "[a/%.0-9A-F]{1,8}|\\PC{1,20}|zookeeper|oarlock-sessions|%7Aookeeper",
            other in "[a/%.]{1,4}",
        ) {
            names_have_nodes_of_their_own(&prefix, &name, &other);
            names_have_nodes_of_their_own("", &name, &other);
            a_node_of_another_does_no_harm(&prefix, &name);
        }

        #[test]
        fn any_children(children in vec("[a-f0-9]{0,3}(-lock-|__lock__)-?[0-9]{9,11}|.{0,20}|lock-[0-9]{0,30}", 0..9)) {
            each_has_one_before_it_but_the_first(&children);
        }

        #[test]
        fn any_line(first in any::<i32>(), steps in vec(any::<u8>(), 0..20)) {
            a_line_keeps_its_order(first, &steps);
            a_line_keeps_its_order(i32::MAX - 9, &steps);
            a_line_keeps_its_order(-9, &steps);
        }
    }
}
