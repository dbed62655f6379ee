//! What holds whatever somebody writes. The property tests beside this pass any text, the targets in `fuzz/` what leads
//! deeper.

use lock_core::{BackendUrl, Config, ErrorKind, LockName, OwnerId, Registry, Result, Servers};

pub(crate) fn a_name_is_kept_as_it_is_or_refused(text: &str) {
    match LockName::new(text) {
        Ok(name) => assert_eq!(name.as_str(), text),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid),
    }
}

/// Whoever knows all of an owner can release its lock.
pub(crate) fn an_owner_found_in_a_store_is_not_shown_whole(text: &str) {
    let owner = OwnerId::from_store(text);
    // What stands for the rest, or for all of it, may be in the text as well.
    let is_told = |shown: String| !text.is_empty() && !text.contains('…') && shown.contains(text);
    assert!(!is_told(owner.to_string()) && !is_told(format!("{owner:?}")), "{text:?}");
    let _ = (owner.label(), owner.host(), owner.pid());
}

pub(crate) fn a_url_is_read_or_refused(text: &str) {
    let url = match text.parse::<BackendUrl>() {
        Ok(url) => url,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::Invalid),
    };
    let _ = (format!("{url} {url:?}"), url.path(), url.server("x://h").is_ok());
    if let Ok(Servers { hosts, .. }) = url.servers(7, "x://h") {
        let shown: Vec<_> = hosts.iter().map(ToString::to_string).collect();
        let again = format!("x://{}", shown.join(",")).parse::<BackendUrl>().and_then(|url| url.servers(7, "x://h"));
        assert_eq!(again.expect("they are servers").hosts, hosts);
    }
}

/// Wherever in a URL it stands, and whatever in it should have been written otherwise.
pub(crate) fn a_password_never_shows(user: &str, within: &str, host: &str) {
    let ends = ["HUNTER2X", "SECRET9Y"];
    if ends.iter().any(|end| [user, within, host].iter().any(|part| part.contains(end))) {
        return;
    }
    let password = ends.join(within);
    let text = format!("redis://{user}:{password}@{host}?token={password}");
    let config = Config::from_url(&text);
    let mut shown = format!("{config:?}");
    if let Ok(url) = text.parse::<BackendUrl>() {
        shown += &format!("{url} {url:?}");
        let errors = [url.server("x://h").err(), url.path().err(), url.servers(7, "x://h").err()];
        errors.into_iter().flatten().for_each(|error| shown += &format!("{error} {error:?}"));
    }
    for end in ends {
        assert!(!shown.contains(end), "{end} of {text:?} in {shown}");
    }
}

pub(crate) fn a_file_is_taken_or_refused(text: &str) {
    is_taken_or_refused(Config::from_toml(text));
}

/// A setting, wherever it may stand.
pub(crate) fn a_setting_is_taken_or_refused(setting: &str, value: &str) {
    for config in [
        Config::from_toml(&format!("{setting} = {value}")),
        Config::from_toml(&format!("{setting} = {value:?}")),
        Config::from_toml(&format!("{setting} = [{value:?}, {value:?}]")),
        Config::from_toml(&format!("[{setting}]\n{setting} = {value:?}")),
        Config::from_env([(format!("OARLOCK_{}", setting.to_uppercase()), value.to_owned())]),
        Config::from_url(&format!("memory:?{setting}={value}")),
    ] {
        is_taken_or_refused(config);
    }
}

/// To connect is to check what it says.
fn is_taken_or_refused(config: Result<Config>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let memory = Config::from_url("memory:").unwrap();
    let used = config.and_then(|config| {
        let _ = format!("{config:?}");
        let as_it_is = runtime.block_on(Registry::new().connect(config.clone()));
        // With a store that there is, whatever it names.
        let elsewhere = runtime.block_on(Registry::new().connect(config.overlay(memory)));
        as_it_is.and(elsewhere)
    });
    if let Err(error) = used {
        assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported), "{error:?}");
    }
}
