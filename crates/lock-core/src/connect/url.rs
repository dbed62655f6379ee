//! The URL that names a backend, and the parameters behind it. Both may hold secrets and show none.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::connect::settings::{SETTINGS, meant};
use crate::connect::value;
use crate::contract::{Error, ErrorKind, Result};

/// `scheme:rest?key=value&…`: names a backend. `Debug` and `Display` leave out a password and the values of parameters.
#[derive(Clone, PartialEq, Eq)]
pub struct BackendUrl {
    scheme: String,
    rest: String,
    params: Params,
}

impl BackendUrl {
    /// What comes before the first colon, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What comes between the scheme's colon and the `?`, as it was written.
    pub fn rest(&self) -> &str {
        &self.rest
    }

    /// The path on disk that the URL names, for `scheme:relative`, `scheme:/absolute` and `scheme:///absolute`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the percent encoding is not UTF-8, or something follows a `#`.
    pub fn path(&self) -> Result<String> {
        let path = self.rest.strip_prefix("//").unwrap_or(&self.rest);
        if path.contains('#') {
            return Err(invalid(self, "write a `#` in a path as %23"));
        }
        match percent_decode_str(path).decode_utf8() {
            Ok(path) => Ok(path.into_owned()),
            Err(error) => Err(invalid(self, "its path is not UTF-8").with_source(error)),
        }
    }

    /// The same URL, with this password for its user.
    pub(super) fn with_password(self, password: &str) -> Result<Self> {
        let place = self.rest.strip_prefix("//").ok_or_else(|| invalid(&self, "it has no place for a password"))?;
        let (user, place) = place.rsplit_once('@').unwrap_or(("", place));
        if user.contains(':') {
            return Err(invalid(&self, "the password is given twice: in the URL and in a file"));
        }
        let password = utf8_percent_encode(password, NON_ALPHANUMERIC);
        Ok(Self { rest: format!("//{user}:{password}@{place}"), ..self })
    }

    /// The parameters behind the `?`.
    pub(crate) fn params(&self) -> &Params {
        &self.params
    }
}

fn invalid(url: &BackendUrl, wrong: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("the URL {url}: {wrong}"))
}

impl FromStr for BackendUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |wrong: &str| {
            Error::new(
                ErrorKind::Invalid,
                format!("{wrong}; a backend's URL looks like sqlite:/var/lib/app/locks.db or redis://cache.internal"),
            )
        };
        let (scheme, rest) = text.split_once(':').ok_or_else(|| bad("the URL has no scheme"))?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        if scheme.is_empty() || !scheme.chars().all(allowed) {
            let is_decoded = scheme.contains(' ');
            return Err(bad(if is_decoded {
                "the URL's scheme has a blank in it: in a URL within a URL, write + as %2B"
            } else {
                "the URL's scheme is not a scheme"
            }));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut params = Params::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            if !params.add(&key, &value) {
                return Err(bad(&format!("the URL has the parameter {key:?} twice")));
            }
        }
        Ok(Self { scheme: scheme.to_ascii_lowercase(), rest: rest.to_owned(), params })
    }
}

impl fmt::Display for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Perhaps the `?` was meant as a part of the password, and the host comes yet.
        let goes_on = self.params.0.iter().any(|(key, value)| key.contains('@') || value.contains('@'));
        match self.rest.strip_prefix("//") {
            Some(_) if goes_on => write!(f, "{}://…", self.scheme)?,
            _ => write!(f, "{}:{}", self.scheme, without_password(&self.scheme, &self.rest))?,
        }
        if self.params.0.is_empty() { Ok(()) } else { f.write_str("?…") }
    }
}

/// Leaves out whatever may be a password, also in what is not a URL: somebody may have forgotten to encode a `/`, an
/// `@` or a `?` in it.
fn without_password(scheme: &str, rest: &str) -> String {
    let Some(server) = rest.strip_prefix("//") else {
        // Where there is no server there is no password, and an `@` is a part of a path.
        let is_path = ["sqlite", "memory", "unix"].contains(&scheme);
        return match rest.rsplit_once('@') {
            Some((_, host)) if !is_path => format!("…@{host}"),
            _ => rest.to_owned(),
        };
    };
    if let Some((user_info, host)) = server.rsplit_once('@') {
        let (user, password) = user_info.split_once(':').map_or((user_info, ""), |(user, _)| (user, ":…"));
        return format!("//{user}{password}@{host}");
    }
    let authority = server.split('/').next().unwrap_or_default();
    if authority.split(',').all(is_host) { rest.to_owned() } else { "//…".to_owned() }
}

/// Is this a host, perhaps with a port, and nothing else?
fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((address, port)) => (address, port.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    port.is_none_or(is_port) && !host.contains('@')
}

impl fmt::Debug for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Settings by name, each to be taken once; what nobody took is refused. `Debug` shows how many there are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Params(pub(crate) BTreeMap<String, String>);

/// What may be given several times: the stores of which one is made.
pub(super) const SEVERAL: &str = "store";

/// Between several of one name. No URL has it.
const AND: char = '\n';

impl Params {
    /// Adds one; `false`: it is there already.
    pub(super) fn add(&mut self, key: &str, value: &str) -> bool {
        match self.0.get_mut(key) {
            None => drop(self.0.insert(key.to_owned(), value.to_owned())),
            Some(before) if key == SEVERAL => before.extend([AND].into_iter().chain(value.chars())),
            Some(_) => return false,
        }
        true
    }

    /// Takes all that were given as `store` out, in their order.
    pub fn take_stores(&mut self) -> Vec<String> {
        let all = self.take(SEVERAL);
        all.map(|all| all.split(AND).map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Takes a setting out.
    pub fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    /// Takes a setting out and parses it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the setting, if it does not parse.
    pub fn take_parsed<T>(&mut self, key: &str) -> Result<Option<T>>
    where
        T: FromStr<Err: fmt::Display>,
    {
        let Some(value) = self.take(key) else { return Ok(None) };
        let told = |error| Error::new(ErrorKind::Invalid, format!("{key}: {value:?}: {error}"));
        value.parse().map(Some).map_err(told)
    }

    /// Takes a duration such as `30s` or `1m 30s` out.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the setting, if it does not parse.
    pub fn take_duration(&mut self, key: &str) -> Result<Option<Duration>> {
        self.take(key).map(|value| value::duration(key, &value)).transpose()
    }

    /// Takes two settings out of which neither is of use alone.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming both, if one of them is missing.
    pub fn take_both(&mut self, [one, other]: [&str; 2]) -> Result<Option<(String, String)>> {
        match (self.take(one), self.take(other)) {
            (Some(one), Some(other)) => Ok(Some((one, other))),
            (None, None) => Ok(None),
            _ => Err(Error::new(ErrorKind::Invalid, format!("of {one} and {other}, one needs the other"))),
        }
    }

    /// Refuses what is left.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming what nobody took and what `known` would have been.
    pub fn finish(self, backend: &str, known: &[&str]) -> Result<()> {
        let Some(key) = self.0.keys().next() else { return Ok(()) };
        // What is no name may be the rest of a password with a `?` in it.
        let is_name = key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let key = if is_name { key } else { "…" };
        let own = if known.is_empty() { "none of its own".to_owned() } else { known.join(", ") };
        let message = if SETTINGS.contains(&key) {
            format!("{key:?} belongs above [backend]; under [backend], {backend} knows {own}")
        } else {
            let all = SETTINGS.into_iter().chain(known.iter().copied());
            let hint = meant(key, all).map(|meant| format!("; did you mean {meant}?")).unwrap_or(";".to_owned());
            format!(
                "{backend} knows no setting {key:?}{hint} its own are {own}, those of every backend {}",
                SETTINGS.join(", ")
            )
        };
        Err(Error::new(ErrorKind::Invalid, message))
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Params({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> BackendUrl {
        text.parse().unwrap()
    }

    #[test]
    fn paths_are_read_in_each_form() {
        for (text, path) in [
            ("sqlite:locks.db", "locks.db"),
            ("sqlite:/var/lib/locks.db?lease=5s", "/var/lib/locks.db"),
            ("sqlite:///var/lib/a%20b.db", "/var/lib/a b.db"),
            ("SQLite:", ""),
        ] {
            assert_eq!(url(text).scheme(), "sqlite");
            assert_eq!(url(text).path().unwrap(), path, "{text}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        for text in [
            "redis://user:hunter2@host:1/0?token=hunter2",
            "redis://:hunter2@host",
            "redis://user:hun/ter2@host",
            "redis://u:hunter2@",
            "redis://u:hunter2?@host",
            "redis://u:a?hunter2@host",
            "redis://u:a@hunter2?b@host",
            "redis://u:a@hunter2?b=c@host",
            "redis:u:hunter2@host",
            "u:hunter2@host",
            "postgres://u:a@hunter2@host/x",
        ] {
            let url = url(text);
            for shown in [format!("{url}"), format!("{url:?}"), format!("{:?}", url.params())] {
                assert!(!shown.contains("hunter2") && !shown.contains("ter2"), "{shown}");
            }
            if let Err(error) = url.server("x://h") {
                assert!(!format!("{error:?}").contains("hunter2"));
            }
        }
    }

    #[test]
    fn what_is_no_secret_is_shown() {
        for text in ["zookeeper://h1:2181,h2:2181/chroot", "etcd://[::1]:2379", "redis://user@host", "sqlite:/a@b:c"] {
            assert_eq!(url(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for bad in ["", "locks.db", ":x", "a b:x", "sqlite:x?a=1&a=2", "quorum:?store=x&a=1&store=y&a=2"] {
            assert_eq!(bad.parse::<BackendUrl>().unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn stores_are_several() {
        let mut params = url("quorum:?store=a:?x%26y&store=b:&store=c:").params().clone();
        assert_eq!(params.take_stores(), ["a:?x&y", "b:", "c:"]);
        assert!(params.take_stores().is_empty());
        params.finish("quorum", &[]).unwrap();
    }

    #[test]
    fn settings_that_nobody_took_are_refused() {
        let mut params = url("x:?busy=2s&leese=1s").params().clone();
        assert_eq!(params.take_duration("busy").unwrap(), Some(Duration::from_secs(2)));
        let error = params.finish("x", &["busy"]).unwrap_err().to_string();
        assert!(error.contains("leese") && error.contains("busy") && error.contains("lease"), "{error}");
    }
}
