use super::*;

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn env(vars: &[(&str, &str)]) -> Result<Config> {
    Config::from_env(vars.iter().copied())
}

#[cfg(unix)]
#[test]
fn what_is_no_text_is_an_error_only_in_a_setting() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    let noise = || OsString::from_vec(vec![0xff]);
    Config::from_env([(noise(), OsString::from("x")), (OsString::from("LANG"), noise())]).unwrap();
    let error = Config::from_env([("OARLOCK_LABEL", noise())]).unwrap_err();
    assert!(error.to_string().contains("OARLOCK_LABEL"), "{error}");
}

#[test]
fn three_sources_say_the_same() {
    let toml = "url = 'memory:'\nlease = '5s'\nfair = true\nrequire = ['fair', 'fencing']";
    let vars = [
        ("OARLOCK_URL", "memory:"),
        ("OARLOCK_LEASE", "5s"),
        ("OARLOCK_FAIR", "true"),
        ("OARLOCK_REQUIRE", "fair, fencing"),
        ("OARLOCK_TOKEN", "7"),
        ("OARLOCK_TOKENS", "{}"),
        ("OARLOCK_SHARED", "1"),
        ("OARLOCK_WAIT", ""),
        ("HOME", "/"),
    ];
    assert_eq!(Config::from_toml(toml).unwrap(), env(&vars).unwrap());
    let (settings, target) =
        Config::from_url("memory:?lease=5s&fair=true&require=fair,fencing&own=1").unwrap().into_parts().unwrap();
    assert_eq!(settings.options.lease, Duration::from_secs(5));
    assert!(settings.options.fair && settings.require.len() == 2);
    assert_eq!(target.params.0.len(), 1);
}

#[test]
fn what_is_unknown_or_wrong_is_named() {
    for (toml, named) in [
        ("leese = '5s'", "leese"),
        ("lease = 'soon'", "lease"),
        ("lease = 1.5", "lease"),
        ("require = ['magic']", "magic"),
        ("fair = 'perhaps'", "fair"),
        ("url = 'nothing'", "scheme"),
        ("= 3", "TOML"),
    ] {
        let error = Config::from_toml(toml).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(named), "{toml}: {error}");
    }
    let error = env(&[("OARLOCK_LEESE", "5s")]).unwrap_err().to_string();
    assert!(error.contains("OARLOCK_LEESE"), "{error}");
}

#[test]
fn a_line_that_is_wrong_is_named_and_not_quoted() {
    let error = Config::from_toml("lease = '5s'\nurl = redis://u:hunter2@host\n").unwrap_err();
    assert!(error.to_string().contains("line 2") && !format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[test]
fn the_upper_layer_wins_and_another_url_drops_the_backends_settings() {
    let below = Config::from_toml("url = 'sqlite:x'\nlease = '5s'\nwait = '1s'\n[backend]\nbusy = '2s'").unwrap();
    let (settings, target) = below.clone().overlay(env(&[("OARLOCK_LEASE", "7s")]).unwrap()).into_parts().unwrap();
    assert_eq!((settings.options.lease, settings.options.wait.unwrap().as_secs()), (Duration::from_secs(7), 1));
    assert_eq!(target.params.0["busy"], "2s");
    let (_, target) = below.overlay(Config::from_url("memory:").unwrap()).into_parts().unwrap();
    assert!(target.params.0.is_empty() && target.url.scheme() == "memory");
}
#[test]
fn a_choice_of_none_takes_a_default_away() {
    let below = Config::from_toml("url = 'memory:'\nwait = '1s'\nmax_hold = '5s'").unwrap();
    let (settings, _) = below.clone().overlay(env(&[("OARLOCK_WAIT", "none")]).unwrap()).into_parts().unwrap();
    assert_eq!((settings.options.wait, settings.options.max_hold.unwrap().as_secs()), (None, 5));
    let (settings, _) = below.max_hold(None).into_parts().unwrap();
    assert_eq!(settings.options.max_hold, None);
}

#[test]
fn it_is_a_part_of_an_applications_own_configuration() {
    #[derive(Deserialize)]
    struct Application {
        locks: Config,
    }
    let Application { locks } = toml::from_str(
        "[locks]\nurl = 'sqlite:x'\nlease = '5s'\nhand_overs = 3\nrequire = ['fair']\n[locks.backend]\nbusy = '2s'",
    )
    .unwrap();
    let expected =
        Config::from_toml("url = 'sqlite:x'\nlease = '5s'\nhand_overs = 3\nrequire = ['fair']\n[backend]\nbusy = '2s'");
    assert_eq!(locks, expected.unwrap());
    let wrong = toml::from_str::<Application>("[locks]\nleese = '5s'").err().unwrap().to_string();
    assert!(wrong.contains("did you mean lease?"), "{wrong}");
}

#[test]
fn a_password_comes_from_a_file() {
    let password = file("p@ss/w?rd\nnot this\n");
    let config = Config::from_url("redis://app@cache.internal:7/2?lease=5s").unwrap();
    let config = config.overlay(env(&[("OARLOCK_PASSWORD_FILE", password.path().to_str().unwrap())]).unwrap());
    let (_, target) = config.clone().into_parts().unwrap();
    let Ok(servers) = target.url.servers(7, "redis://h") else { panic!("a URL") };
    assert_eq!((servers.user.as_deref(), servers.password.as_deref()), (Some("app"), Some("p@ss/w?rd")));
    assert_eq!(target.url.to_string(), "redis://app:…@cache.internal:7/2?…");
    let twice = config.overlay(
        Config::from_url("redis://:pw@h")
            .unwrap()
            .overlay(Config { password_file: Some(password.path().into()), ..Config::default() }),
    );
    assert!(twice.into_parts().unwrap_err().to_string().contains("twice"));
    let missing = Config { password_file: Some("/none/there".into()), ..Config::from_url("redis://h").unwrap() };
    assert!(missing.into_parts().unwrap_err().to_string().contains("/none/there"));
}

#[test]
fn a_backends_own_setting_may_stand_in_the_environment() {
    let config = env(&[("OARLOCK_URL", "sqlite:x"), ("OARLOCK_BACKEND_BUSY", "2s")]).unwrap();
    assert_eq!(config.into_parts().unwrap().1.params.0["busy"], "2s");
}

#[test]
fn a_wrong_value_is_told_with_the_way_out() {
    for (toml, told) in [
        ("lease = 'abc'", "lease: \"abc\" is not a duration such as 30s or 1m 30s"),
        ("lease = 5", "lease: \"5\" is not a duration such as 30s or 1m 30s"),
        ("hand_overs = 300", "hand_overs: 300 is not a number from 0 to 255"),
        ("fair = 'perhaps'", "fair: \"perhaps\" is neither true nor false"),
        ("[backed]\nbusy = '2s'", "there is no section [backed]; did you mean [backend]?"),
        ("leese = '5s'", "there is no setting \"leese\"; did you mean lease?"),
    ] {
        let error = Config::from_toml(toml).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    let file = file("lease = 'abc'");
    let error = Config::from_file(file.path()).unwrap_err().to_string();
    assert_eq!(error.matches("invalid").count(), 1, "{error}");
}
