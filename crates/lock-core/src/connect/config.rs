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
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use crate::connect::factory::Target;
use crate::connect::limits::check_prefix;
use crate::connect::registry::QUORUM;
use crate::connect::settings::{Requirement, SETTINGS, Settings, meant};
use crate::connect::url::{BackendUrl, Params, SEVERAL};
use crate::connect::value::{self, Value};
use crate::contract::options::LockOptions;
use crate::contract::{Error, ErrorKind, Result};

/// Variables of the environment that begin like settings and are none: where the config file is, and what `oarlock run`
/// tells its command.
const NOT_SETTINGS: [&str; 7] = ["CONFIG", "NAME", "SHARED", "SLOT", "SLOTS", "TOKEN", "TOKENS"];

/// A URL and settings, each of which may be absent.
///
/// It comes from code, a TOML file, the environment or a part of the application's own configuration (it is
/// [`Deserialize`]), and one goes on top of another by [`Config::overlay`]. `Debug` shows no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    url: Option<BackendUrl>,
    lease: Option<Duration>,
    /// There may be a choice to have none.
    wait: Option<Option<Duration>>,
    max_hold: Option<Option<Duration>>,
    fair: Option<bool>,
    hand_overs: Option<u8>,
    hand_over_for: Option<Duration>,
    outage: Option<Duration>,
    token_floor: Option<u64>,
    prefix: Option<String>,
    label: Option<String>,
    require: Vec<Requirement>,
    password_file: Option<PathBuf>,
    backend: Params,
}

impl Config {
    /// What an application takes that has no configuration of its own: the file that `OARLOCK_CONFIG` names, if it names
    /// one, and the variables of the environment on top.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the file or the variable that is wrong.
    pub fn load() -> Result<Self> {
        let environment = Self::from_env(std::env::vars_os())?;
        match std::env::var_os("OARLOCK_CONFIG").filter(|file| !file.is_empty()) {
            Some(file) => Ok(Self::from_file(Path::new(&file))?.overlay(environment)),
            None => Ok(environment),
        }
    }

    /// A config with this URL and its parameters.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is no URL.
    pub fn from_url(url: &str) -> Result<Self> {
        Ok(Self { url: Some(url.parse()?), ..Self::default() })
    }

    /// Reads TOML: the settings at the top, the backend's own in a table `[backend]`, the stores of a quorum in tables
    /// `[[stores]]`, each with its `url` and settings of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the setting that is unknown or wrong.
    pub fn from_toml(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            // The parser's error as a whole quotes the line, and with it perhaps a password.
            let line = 1 + text[..error.span().map_or(0, |span| span.start)].matches('\n').count();
            Error::new(ErrorKind::Invalid, format!("line {line} is not TOML: {}", error.message()))
        })?;
        Self::of(table.into_iter().map(|(key, value)| (key, value.into())))
    }

    /// The settings at the top, the backend's own below `backend`; and the stores of a quorum, each with its `url` and what
    /// else would stand in that. With such stores, the URL is `quorum:` unless set.
    fn of(settings: impl Iterator<Item = (String, Value)>) -> Result<Self> {
        let mut config = Self::default();
        for (key, value) in settings {
            match value {
                Value::Table(own) if key == "backend" => {
                    for (key, value) in own {
                        config.backend.0.insert(key.clone(), value.plain(&key)?);
                    }
                }
                Value::List(stores) if key == "stores" => {
                    for store in stores {
                        config.backend.add(SEVERAL, &store.into_url()?);
                    }
                }
                Value::Table(_) => {
                    let meant = if meant(&key, ["backend"]).is_some() { "; did you mean [backend]?" } else { "" };
                    return Err(Error::new(ErrorKind::Invalid, format!("there is no section [{key}]{meant}")));
                }
                value => config.set(&key, &value.plain(&key)?)?,
            }
        }
        if config.backend.0.contains_key(SEVERAL) {
            match &config.url {
                None => config.url = Some(format!("{QUORUM}:").parse()?),
                Some(url) if url.scheme() == QUORUM => {}
                Some(_) => {
                    let wrong = "url and [[stores]] exclude each other: leave out the url, or set it to quorum:";
                    return Err(Error::new(ErrorKind::Invalid, wrong));
                }
            }
        }
        Ok(config)
    }

    /// Reads a TOML file, see [`Config::from_toml`].
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the file, also if it cannot be read.
    pub fn from_file(path: &Path) -> Result<Self> {
        let wrong = |what: &str| Error::new(ErrorKind::Invalid, format!("the config file {}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&error.to_string()).with_source(error))?;
        Self::from_toml(&text).map_err(|error| wrong(error.message()))
    }

    /// Takes the settings out of an environment, as [`std::env::vars_os`] gives it: `OARLOCK_URL`, `OARLOCK_LEASE` and
    /// so on, the backend's own as `OARLOCK_BACKEND_TIMEOUT`. (`std::env::vars` panics where any variable is no text.)
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
            let key = key.to_ascii_lowercase();
            if let Some(own) = key.strip_prefix("backend_") {
                config.backend.0.insert(own.to_owned(), value.to_owned());
                continue;
            }
            config.set(&key, value).map_err(|error| {
                Error::new(ErrorKind::Invalid, format!("{variable} in the environment: {}", error.message()))
            })?;
        }
        Ok(config)
    }

    /// This config with what another sets on top. Another URL takes the settings of the former backend away.
    #[must_use]
    pub fn overlay(self, over: Self) -> Self {
        let elsewhere = over.url.is_some();
        let mut backend = if elsewhere { Params::default() } else { self.backend };
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
            token_floor: over.token_floor.or(self.token_floor),
            prefix: over.prefix.or(self.prefix),
            label: over.label.or(self.label),
            require: if over.require.is_empty() { self.require } else { over.require },
            password_file: over.password_file.or(self.password_file.filter(|_| !elsewhere)),
            backend,
        }
    }

    /// The URL, if one is set.
    pub fn url(&self) -> Option<&BackendUrl> {
        self.url.as_ref()
    }

    /// The wait, if one is set that has an end: for a program that bounds its connecting, too.
    pub fn longest_wait(&self) -> Option<Duration> {
        self.wait.flatten()
    }

    /// The lease, see [`LocksBuilder::lease`](crate::LocksBuilder::lease).
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// The wait; `None` for one without end. See [`LocksBuilder::wait`](crate::LocksBuilder::wait).
    #[must_use]
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.wait = Some(wait.into());
        self
    }

    /// The longest hold; `None` for any. See [`LocksBuilder::max_hold`](crate::LocksBuilder::max_hold).
    #[must_use]
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.max_hold = Some(max_hold.into());
        self
    }

    /// First come, first served across processes, see [`LocksBuilder::fair`](crate::LocksBuilder::fair).
    #[must_use]
    pub fn fair(mut self, fair: bool) -> Self {
        self.fair = Some(fair);
        self
    }

    /// How long a store may be away, see [`LocksBuilder::outage`](crate::LocksBuilder::outage).
    #[must_use]
    pub fn outage(mut self, outage: Duration) -> Self {
        self.outage = Some(outage);
        self
    }

    /// The number above which every fencing token is, see [`LocksBuilder::token_floor`](crate::LocksBuilder::token_floor).
    #[must_use]
    pub fn token_floor(mut self, floor: u64) -> Self {
        self.token_floor = Some(floor);
        self
    }

    /// The prefix under which the store keeps the locks: the same name under another prefix is another lock.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// How the application calls itself, see [`LocksBuilder::label`](crate::LocksBuilder::label).
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// What the backend has to be able to do besides.
    #[must_use]
    pub fn require(mut self, requirement: Requirement) -> Self {
        self.require.push(requirement);
        self
    }

    /// Any setting by its name, with the value as it stands in a URL.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the setting that is wrong or unknown. One of the backend's own is checked when it
    /// connects.
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "url" => self.url = Some(value.parse()?),
            "lease" => self.lease = Some(value::duration(key, value)?),
            "wait" => self.wait = Some(value::duration_or_none(key, value)?),
            "max_hold" => self.max_hold = Some(value::duration_or_none(key, value)?),
            "fair" => self.fair = Some(value::truth(key, value)?),
            "hand_overs" => self.hand_overs = Some(value::small(key, value)?),
            "hand_over_for" => self.hand_over_for = Some(value::duration(key, value)?),
            "outage" => self.outage = Some(value::duration(key, value)?),
            "token_floor" => self.token_floor = Some(value::number(key, value)?),
            "prefix" => self.prefix = Some(value.to_owned()),
            "label" => self.label = Some(value.to_owned()),
            "password_file" => self.password_file = Some(value.into()),
            "require" => {
                let wanted = value.split(',').map(str::trim).filter(|want| !want.is_empty());
                self.require = wanted.map(str::parse).collect::<Result<_>>()?;
            }
            _ => {
                let known = SETTINGS.join(", ");
                let hint =
                    meant(key, SETTINGS).map(|meant| format!("; did you mean {meant}?")).unwrap_or(":".to_owned());
                let message = format!(
                    "there is no setting {key:?}{hint} there are url, {known}; a backend's own stand under [backend] or in the URL"
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
        let url = match &self.password_file {
            Some(file) => url.with_password(&read_password(file)?)?,
            None => url,
        };
        let prefix = self.prefix.unwrap_or_else(|| "oarlock".to_owned());
        check_prefix(&prefix, None)?;
        let (wait, max_hold) = (self.wait.flatten(), self.max_hold.flatten());
        let mut options = LockOptions { wait, max_hold, lease_chosen: self.lease.is_some(), ..LockOptions::default() };
        options.lease = self.lease.unwrap_or(options.lease);
        options.fair = self.fair.unwrap_or(options.fair);
        options.hand_overs = self.hand_overs.unwrap_or(options.hand_overs);
        options.hand_over_for = self.hand_over_for.unwrap_or(options.hand_over_for);
        options.outage = self.outage.unwrap_or(options.outage);
        options.token_floor = self.token_floor.unwrap_or(options.token_floor);
        let settings = Settings { options, label: self.label, require: self.require };
        Ok((settings, Target { url, prefix, params: self.backend }))
    }
}

/// The first line, without its end.
fn read_password(file: &Path) -> Result<String> {
    let wrong = |what: &str| Error::new(ErrorKind::Invalid, format!("the password file {}: {what}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error.to_string()).with_source(error))?;
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(password.to_owned()),
        _ => Err(wrong("its first line is empty")),
    }
}

impl<'de> Deserialize<'de> for Config {
    /// As [`Config::from_toml`] reads it, out of any format: a part of the application's own configuration.
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let settings = std::collections::BTreeMap::<String, Value>::deserialize(from)?;
        Self::of(settings.into_iter()).map_err(|error| de::Error::custom(error.message()))
    }
}

#[cfg(test)]
mod tests;
