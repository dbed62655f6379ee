//! What holds whatever stands in a store, a setting or an answer. The property tests here pass any text, the targets in
//! `fuzz/` what leads deeper.

use lock_core::{BackendUrl, ErrorKind, LockName, Mode};
use redis::Value;

use super::address::Location;
use super::answers::{Acquired, ENDLESS, Grants, holder, read, waiter};
use super::bounded::Answer;
use super::keys::Keys;
use super::slots::slot;

pub(crate) fn a_url_is_read_or_refused(text: &str) {
    let Ok(url) = text.parse::<BackendUrl>() else { return };
    match Location::parse(&url) {
        Ok(Location { topology, database, .. }) => drop((topology.to_string(), database)),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid),
    }
}

pub(crate) fn names_have_keys_of_their_own(prefix: &str, name: &str, other: &str) {
    let (Ok(keys), Ok(name), Ok(other)) = (Keys::new(prefix, true), LockName::new(name), LockName::new(other)) else {
        return;
    };
    let (of, of_other) = (keys.of(&name), keys.of(&other));
    for key in [&of.lock, &of.grant, &of.line] {
        assert_eq!(Some(slot(key)), of.slot);
        let others = [&of_other.lock, &of_other.grant, &of_other.line];
        assert_eq!(others.contains(&key), name == other, "{name} and {other}");
    }
    assert_eq!((keys.name(&of.lock).as_ref(), keys.name(&of.line).as_ref()), (Some(&name), Some(&name)));
}

pub(crate) fn a_key_of_another_does_no_harm(prefix: &str, key: &str) {
    let Ok(keys) = Keys::new(prefix, true) else { return };
    let _ = keys.pattern(key);
    if let Some(name) = keys.name(key) {
        assert_eq!(keys.name(&keys.of(&name).line), Some(name));
    }
}

pub(crate) fn an_answer_is_read_or_refused(value: &Value) {
    if let Ok(Acquired::Granted { left: Some(left), .. }) = Acquired::read(value.clone(), Mode::Shared) {
        assert!(left <= ENDLESS);
    }
    let _ = (read::<Vec<i64>>(value.clone()), read::<(String, i64, String, i64)>(value.clone()));
    if let Ok((owner, remaining, grant, waiters)) = read::<(String, i64, String, Vec<String>)>(value.clone()) {
        a_grant_and_a_place_are_read_or_refused(&grant, remaining, 1 << 50);
        let _ = holder(&owner, remaining, &grant, 1 << 50);
        waiters.iter().for_each(|place| drop(waiter(place)));
    }
}

pub(crate) fn a_grant_and_a_place_are_read_or_refused(text: &str, remaining: i64, now: u64) {
    if let Some(grant) = Grants::parse(text) {
        // A grant is that of who got it, also when that one has gone; and nobody gets one under such a name.
        let is_plain = !grant.owner.as_str().is_empty() && grant.owner.before_it_kept().is_none();
        for (stored, kept) in [(grant.owner.clone(), false), (grant.owner.kept(), true)] {
            if is_plain && let Ok(holder) = holder(stored.as_str(), remaining, text, now) {
                let holder = holder.expect("an owner");
                assert_eq!((&holder.owner, holder.token.get(), holder.kept), (&grant.owner, grant.token, kept));
                assert!(holder.remaining <= ENDLESS);
            }
        }
    }
    if let Ok(owner) = waiter(text) {
        assert!(text.ends_with(owner.owner.as_str()));
    }
}

/// What comes over the wire, in whatever pieces, is counted as the client library reads it.
pub(crate) fn an_answer_is_whole_when_it_is_read(bytes: &[u8]) {
    let mut whole = Answer::default();
    let came = whole.come(bytes);
    for length in 1..bytes.len().min(9) {
        let mut pieces = Answer::default();
        let came_so = bytes.chunks(length).try_for_each(|piece| pieces.come(piece));
        // What is too long may end before it shows.
        if came.is_ok() && came_so.is_ok() {
            assert_eq!(pieces, whole);
        }
    }
    let mut answer = Answer::default();
    for length in 1..=bytes.len() {
        let counted = answer.come(&bytes[length - 1..length]).is_ok();
        match redis::parse_redis_value(&bytes[..length]) {
            Err(error) if error.kind() == redis::ErrorKind::Io => assert!(!counted || answer != Answer::default()),
            Err(_) => return,
            Ok(value) => {
                assert!(!counted || answer == Answer::default(), "{answer:?} {value:?}");
                return an_answer_is_read_or_refused(&value);
            }
        }
        if !counted {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Whatever RESP3 can carry, and nearly what scripts answer.
    fn any_value() -> impl Strategy<Value = Value> {
        let number = prop_oneof![any::<i64>(), -2_i64..3];
        let text = "[0-9]{0,25}|[0-9]{1,17} [0-9]{1,17} .{0,9}|.{0,9}";
        let single = prop_oneof![
            Just(Value::Nil),
            Just(Value::Okay),
            number.prop_map(Value::Int),
            text.prop_map(|text| Value::BulkString(text.into_bytes())),
            vec(any::<u8>(), 0..9).prop_map(Value::BulkString),
            text.prop_map(Value::SimpleString),
            any::<f64>().prop_map(Value::Double),
            any::<bool>().prop_map(Value::Boolean),
        ];
        single.prop_recursive(3, 32, 4, |value| {
            prop_oneof![
                vec(value.clone(), 0..5).prop_map(Value::Array),
                vec((value.clone(), value), 0..3).prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_url(text in "(redis|rediss|redis\\+(sentinel|cluster)|unix):[a-z0-9:@/,\\[\\]?=&%#.]{0,40}|.{0,40}") {
            a_url_is_read_or_refused(&text);
        }

        #[test]
        fn any_names(
            prefix in "[a-z{}:%]{0,6}",
            name in "[a{}:*%]{1,8}|\\PC{1,20}|oarlock-(line|grant|name)(-of|-in)?:[a{}:0-9]{0,6}",
            other in "[a{}:*%]{1,8}",
        ) {
            names_have_keys_of_their_own(&prefix, &name, &other);
            let own = Keys::new("", true).unwrap().of(&LockName::new(&other).unwrap());
            for key in [own.lock, own.grant, own.line] {
                names_have_keys_of_their_own("", &key, &other);
            }
        }

        #[test]
        fn any_key_of_another(prefix in "[a-z]{0,3}", key in "(oarlock-line)?(-of|-in)?[:{}0-9a-z]{0,12}|.{0,12}") {
            a_key_of_another_does_no_harm(&prefix, &key);
        }

        #[test]
        fn any_answer(value in any_value()) {
            an_answer_is_read_or_refused(&value);
        }

        #[test]
        fn any_grant_and_place(
            text in "[0-9]{0,21} [0-9]{0,21} .{0,9}|.{0,40}",
            remaining in any::<i64>(),
            now in any::<u64>(),
        ) {
            a_grant_and_a_place_are_read_or_refused(&text, remaining, now);
        }

        #[test]
        fn anything_on_the_wire(
            text in "([-+:$*_#,!=(%~>|][-+]?([0-9]{1,3}|.{0,3})(\r?\n)?){0,9}",
            bytes in vec(any::<u8>(), 0..40),
        ) {
            an_answer_is_whole_when_it_is_read(text.as_bytes());
            an_answer_is_whole_when_it_is_read(&bytes);
        }
    }
}
