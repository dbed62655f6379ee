//! Whatever is written into a name, a URL, the environment or a file is taken or refused, and no secret of it shows.

use lock_core::{BackendUrl, Config, ErrorKind, LockName, Registry};
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

    /// Each setting, wherever it may stand, with values that are nearly right.
    #[test]
    fn a_setting_of_any_value_is_taken_or_refused(
        setting in "url|lease|wait|max_hold|fair|hand_overs|hand_over_for|prefix|label|require|backend|[a-z_]{1,9}",
        value in "-?[0-9]{1,25}(ns|us|ms|s|m|h|d|y|years)?|-?[0-9.e]{1,9}|true|fencing,fair|\\PC{0,20}",
    ) {
        let configs = [
            Config::from_toml(&format!("{setting} = {value}")),
            Config::from_toml(&format!("{setting} = {value:?}")),
            Config::from_toml(&format!("{setting} = [{value:?}, {value:?}]")),
            Config::from_toml(&format!("[{setting}]\n{setting} = {value:?}")),
            Config::from_env([(format!("OARLOCK_{}", setting.to_uppercase()), value.clone())]),
            Config::from_url(&format!("memory:?{setting}={value}")),
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for config in configs {
            // To connect is to check what it says.
            let used = config.and_then(|config| runtime.block_on(Registry::new().connect(config)));
            if let Err(error) = used {
                prop_assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported), "{error:?}");
            }
        }
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
