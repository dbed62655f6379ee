//! Whatever is written into a name, a URL, the environment or a file is taken or refused, and no secret of it shows.

use lock_core::{BackendUrl, Config, ErrorKind, LockName};
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_name_is_kept_as_it_is_or_refused(text in "\\PC{0,40}|.{0,600}") {
        match LockName::new(&text) {
            Ok(name) => prop_assert_eq!(name.as_str(), text),
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Invalid),
        }
    }

    #[test]
    fn a_url_of_any_text_does_no_harm(text in ".{0,80}") {
        if let Ok(url) = text.parse::<BackendUrl>() {
            let _ = (format!("{url} {url:?}"), url.path(), url.server());
        }
        let _ = Config::from_toml(&text);
        let _ = Config::from_env([("OARLOCK_REQUIRE".to_owned(), text.clone()), ("OARLOCK_LEASE".to_owned(), text)]);
    }

    #[test]
    fn a_password_never_shows(
        user in "[a-z]{0,6}",
        password in "[A-Z]{8}[:@/?%#a-z0-9]{0,6}[A-Z]{8}",
        host in "[a-z0-9.:/\\[\\]]{0,12}",
    ) {
        let text = format!("redis://{user}:{password}@{host}?token={password}");
        let Ok(url) = text.parse::<BackendUrl>() else { return Ok(()) };
        let mut shown = format!("{url} {url:?} {:?}", Config::from_url(&text));
        for error in [url.server().err(), url.path().err()].into_iter().flatten() {
            shown += &format!("{error} {error:?}");
        }
        for part in [&password[..8], &password[password.len() - 8..]] {
            prop_assert!(!shown.contains(part), "{} in {}", part, shown);
        }
    }
}
