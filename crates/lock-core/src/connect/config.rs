//! Configuration: from TOML, from the environment, from a URL's parameters. One set of settings, parsed in one place;
//! what is unknown is refused.
//!
//! ```
//! let config = lock_core::Config::from_toml(r#"
//!     url = "sqlite:/var/lib/billing/locks.db?busy=2s"
//!     lease = "20s"
//!     wait = "5s"
//!     label = "billing"
//!     require = ["fencing", "fair"]
//! "#)?;
//! assert_eq!(config.url().unwrap().scheme(), "sqlite");
//! # Ok::<(), lock_core::Error>(())
//! ```

use std::ffi::OsStr;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use crate::connect::factory::Target;
use crate::connect::settings::{Requirement, SETTINGS, Settings};
use crate::connect::url::{BackendUrl, Params};
use crate::contract::options::LockOptions;
use crate::contract::{Error, ErrorKind, Result};

/// Variables of the environment that begin like settings and are none: where the config file is, and what `oarlock run`
/// tells its command.
const NOT_SETTINGS: [&str; 3] = ["CONFIG", "NAME", "TOKEN"];

/// A URL and settings, each of which may be absent.
///
/// `Debug` shows no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    url: Option<BackendUrl>,
    lease: Option<Duration>,
    wait: Option<Duration>,
    max_hold: Option<Duration>,
    fair: Option<bool>,
    hand_overs: Option<u8>,
    hand_over_for: Option<Duration>,
    outage: Option<Duration>,
    prefix: Option<String>,
    label: Option<String>,
    require: Vec<Requirement>,
    backend: Params,
}

impl Config {
    /// A config with this URL and its parameters.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is no URL.
    pub fn from_url(url: &str) -> Result<Self> {
        Ok(Self { url: Some(url.parse()?), ..Self::default() })
    }

    /// Reads TOML: the settings at the top, the backend's own in a table `[backend]`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the setting that is unknown or wrong.
    pub fn from_toml(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            // The parser's error as a whole quotes the line, and with it perhaps a password.
            let line = 1 + text[..error.span().map_or(0, |span| span.start)].matches('\n').count();
            Error::new(ErrorKind::Invalid, format!("line {line} is not TOML: {}", error.message()))
        })?;
        let mut config = Self::default();
        for (key, value) in table {
            match value {
                toml::Value::Table(own) if key == "backend" => {
                    for (key, value) in own {
                        config.backend.0.insert(key.clone(), plain(&key, value)?);
                    }
                }
                value => config.set(&key, &plain(&key, value)?)?,
            }
        }
        Ok(config)
    }

    /// Reads a TOML file, see [`Config::from_toml`].
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the file, also if it cannot be read.
    pub fn from_file(path: &Path) -> Result<Self> {
        let in_file = |error: Box<dyn std::error::Error + Send + Sync>| {
            let message = format!("the config file {}: {error}", path.display());
            Error::new(ErrorKind::Invalid, message).with_source(error)
        };
        let text = std::fs::read_to_string(path).map_err(|error| in_file(error.into()))?;
        Self::from_toml(&text).map_err(|error| in_file(error.into()))
    }

    /// Takes the settings out of an environment, as [`std::env::vars_os`] gives it: `OARLOCK_URL`, `OARLOCK_LEASE` and
    /// so on. (`std::env::vars` panics where any variable is no text.)
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the variable that is unknown or wrong.
    pub fn from_env<K: AsRef<OsStr>, V: AsRef<OsStr>>(vars: impl IntoIterator<Item = (K, V)>) -> Result<Self> {
        let mut config = Self::default();
        for (variable, value) in vars {
            let (Some(variable), value) = (variable.as_ref().to_str(), value.as_ref()) else { continue };
            let Some(key) = variable.strip_prefix("OARLOCK_") else { continue };
            // Service managers have no other way to take a variable away than to empty it.
            if NOT_SETTINGS.contains(&key) || value.is_empty() {
                continue;
            }
            let Some(value) = value.to_str() else {
                return Err(Error::new(ErrorKind::Invalid, format!("{variable} in the environment is not UTF-8")));
            };
            config.set(&key.to_ascii_lowercase(), value).map_err(|error| {
                Error::new(ErrorKind::Invalid, format!("{variable} in the environment: {}", error.message()))
            })?;
        }
        Ok(config)
    }

    /// This config with what another sets on top. Another URL takes the settings of the former backend away.
    #[must_use]
    pub fn overlay(self, over: Self) -> Self {
        let mut backend = if over.url.is_some() { Params::default() } else { self.backend };
        backend.0.extend(over.backend.0);
        Self {
            url: over.url.or(self.url),
            lease: over.lease.or(self.lease),
            wait: over.wait.or(self.wait),
            max_hold: over.max_hold.or(self.max_hold),
            fair: over.fair.or(self.fair),
            hand_overs: over.hand_overs.or(self.hand_overs),
            hand_over_for: over.hand_over_for.or(self.hand_over_for),
            outage: over.outage.or(self.outage),
            prefix: over.prefix.or(self.prefix),
            label: over.label.or(self.label),
            require: if over.require.is_empty() { self.require } else { over.require },
            backend,
        }
    }

    /// The URL, if one is set.
    pub fn url(&self) -> Option<&BackendUrl> {
        self.url.as_ref()
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "url" => self.url = Some(value.parse()?),
            "lease" => self.lease = Some(duration(key, value)?),
            "wait" => self.wait = Some(duration(key, value)?),
            "max_hold" => self.max_hold = Some(duration(key, value)?),
            "fair" => self.fair = Some(parsed(key, value)?),
            "hand_overs" => self.hand_overs = Some(parsed(key, value)?),
            "hand_over_for" => self.hand_over_for = Some(duration(key, value)?),
            "outage" => self.outage = Some(duration(key, value)?),
            "prefix" => self.prefix = Some(value.to_owned()),
            "label" => self.label = Some(value.to_owned()),
            "require" => {
                let wanted = value.split(',').map(str::trim).filter(|want| !want.is_empty());
                self.require = wanted.map(str::parse).collect::<Result<_>>()?;
            }
            _ => {
                let known = SETTINGS.join(", ");
                let message = format!(
                    "there is no setting {key:?}: there are url, {known}; a backend's own stand under [backend] or in the URL"
                );
                return Err(Error::new(ErrorKind::Invalid, message));
            }
        }
        Ok(())
    }

    /// Splits into what the core needs and what the backend's factory gets. Parameters of the URL win over the rest.
    pub(super) fn into_parts(mut self) -> Result<(Settings, Target)> {
        let url = self.url.take().ok_or_else(|| Error::new(ErrorKind::Invalid, "no URL is configured"))?;
        for (key, value) in &url.params().0 {
            if SETTINGS.contains(&key.as_str()) {
                self.set(key, value)?;
            } else {
                self.backend.0.insert(key.clone(), value.clone());
            }
        }
        let prefix = self.prefix.unwrap_or_else(|| "oarlock".to_owned());
        if prefix.len() > 128 || prefix.chars().any(char::is_control) {
            let message = "a prefix has at most 128 bytes without control characters";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let mut options = LockOptions { wait: self.wait, max_hold: self.max_hold, ..LockOptions::default() };
        options.lease = self.lease.unwrap_or(options.lease);
        options.fair = self.fair.unwrap_or(options.fair);
        options.hand_overs = self.hand_overs.unwrap_or(options.hand_overs);
        options.hand_over_for = self.hand_over_for.unwrap_or(options.hand_over_for);
        options.outage = self.outage.unwrap_or(options.outage);
        let settings = Settings { options, label: self.label, require: self.require };
        Ok((settings, Target { url, prefix, params: self.backend }))
    }
}

/// The text of a TOML value that a setting may have.
fn plain(key: &str, value: toml::Value) -> Result<String> {
    Ok(match value {
        toml::Value::String(text) => text,
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(truth) => truth.to_string(),
        toml::Value::Array(items) => {
            let items: Result<Vec<_>> = items.into_iter().map(|item| plain(key, item)).collect();
            items?.join(",")
        }
        _ => return Err(Error::new(ErrorKind::Invalid, format!("{key}: neither a text nor a number nor a list"))),
    })
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|error| Error::new(ErrorKind::Invalid, format!("{key} = {value:?}: {error}")))
}

fn duration(key: &str, value: &str) -> Result<Duration> {
    let wrong = |_| format!("{key} = {value:?} is not a duration such as 30s or 1m 30s");
    humantime::parse_duration(value).map_err(|error| Error::new(ErrorKind::Invalid, wrong(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
