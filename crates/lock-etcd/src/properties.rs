//! What holds whatever keys there are. The property tests here pass any text, the targets in `fuzz/` what leads deeper.

use lock_core::{LockName, Mode};

use super::keys::{Keys, end_of, is_a_waiters, place, seat, showing, shown_by};

pub(crate) fn names_have_keys_of_their_own(prefix: &str, name: &str, other: &str, lease: i64, number: usize) {
    let (Ok(keys), Ok(name), Ok(other)) = (Keys::new(prefix), LockName::new(name), LockName::new(other)) else {
        return;
    };
    let line = keys.line(&name);
    let ways = [Mode::Exclusive, Mode::Shared, Mode::Permits { take: 1, of: 1 }];
    let own = ways.into_iter().flat_map(|mode| [seat(&line, mode), place(&line, mode, lease, number)]);
    // Any text can be an owner.
    for own in own.chain([showing(&line, lease, number, other.as_str())]) {
        assert!(own.starts_with(keys.all()) && !own.starts_with(&keys.beacon(0)));
        assert_eq!(own.starts_with(&keys.line(&other)), name == other, "{own}");
        let (found, rest) = keys.parse(&own).expect("it stands in line");
        assert_eq!(found, name);
        assert!(is_a_waiters(rest, lease), "{rest}");
        assert_eq!(keys.line_of(&own), Some(&*line));
        assert!(shown_by(rest).is_none_or(|(named, owner)| named == lease && owner == other.as_str()));
        for range in [line.as_str(), keys.all()] {
            assert!(own.as_bytes() >= range.as_bytes() && (range.is_empty() || own.as_bytes() < &end_of(range)[..]));
        }
    }
}

pub(crate) fn a_key_of_another_does_no_harm(prefix: &str, key: &str) {
    let Ok(keys) = Keys::new(prefix) else { return };
    if let Some((name, rest)) = keys.parse(key) {
        assert_eq!(format!("{}{rest}", keys.line(&name)), key);
    }
    assert_eq!(keys.parse(&keys.beacon(key.len() as i64)), None);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_names(
            prefix in "[a-z/%]{0,6}|\\PC{0,6}",
            name in "[a/%2F5]{1,8}|\\PC{1,20}|%session(/.{0,3})?",
            other in "[a/%2F5]{1,4}",
            lease in 1..i64::MAX,
            number in 0_usize..5,
        ) {
            names_have_keys_of_their_own(&prefix, &name, &other, lease, number);
        }

        #[test]
        fn any_key(prefix in "[a-z/%]{0,3}", key in "[a-c/%2F5]{0,12}|%session/[0-9a-f]{1,9}|.{0,12}") {
            a_key_of_another_does_no_harm(&prefix, &key);
            a_key_of_another_does_no_harm("", &key);
        }
    }
}
