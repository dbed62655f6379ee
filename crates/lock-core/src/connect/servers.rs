//! What a URL says of servers, for backends that have some.

use std::fmt;

use percent_encoding::percent_decode_str;

use crate::connect::BackendUrl;
use crate::contract::{Error, ErrorKind, Result};

const NO_HOST: &str = "it names no host, or something that is none";

/// Where a server listens. Shown as `host:port`, an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// A name or an address, without brackets.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// What `scheme://user:password@host1:port,host2:port/path` says. It has no `Debug`, for the password.
#[derive(Clone)]
pub struct Servers {
    /// Never empty.
    pub user: Option<String>,
    /// It may be empty, if there is a colon behind the user.
    pub password: Option<String>,
    /// At least one.
    pub hosts: Vec<HostPort>,
    /// What follows the slash behind the hosts; without one it is empty.
    pub path: String,
}

/// What `scheme://user:password@host:port/path` says, of which all but the scheme may be left out. It has no `Debug`,
/// for the password.
#[derive(Clone)]
pub struct OneServer {
    /// Never empty.
    pub user: Option<String>,
    /// It may be empty, if there is a colon behind the user.
    pub password: Option<String>,
    /// A name or an address, without brackets.
    pub host: Option<String>,
    /// Its TCP port.
    pub port: Option<u16>,
    /// What follows the slash behind the host; without one it is empty.
    pub path: String,
}

impl BackendUrl {
    /// The URL from which a backend's own options are made: what would be its parameters are methods there.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is no URL of a backend, or has parameters.
    pub fn without_params(text: &str) -> Result<Self> {
        if text.contains('?') {
            return Err(Error::new(ErrorKind::Invalid, "give the parameters of the URL by methods"));
        }
        text.parse()
    }

    /// The servers that it names, those without a port at `port`. The error for another URL shows this `example`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it names no host, or something that is none, or has a part that is not UTF-8.
    pub fn servers(&self, port: u16, example: &str) -> Result<Servers> {
        let (hosts, OneServer { user, password, path, .. }) = self.parts(example)?;
        let place = |text| host(text).map(|(host, own)| HostPort { host, port: own.unwrap_or(port) });
        let hosts: Option<_> = hosts.split(',').map(place).collect();
        let hosts = hosts.ok_or_else(|| invalid_url(self, NO_HOST, example))?;
        Ok(Servers { user, password, hosts, path })
    }

    /// The server that it names, if it is one alone. The error for another URL shows this `example`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it does not go on with `//`, names something that is no host, or has a part that is
    /// not UTF-8.
    pub fn server(&self, example: &str) -> Result<OneServer> {
        let (place, server) = self.parts(example)?;
        if place.is_empty() {
            return Ok(server);
        }
        let (host, port) = host(place).ok_or_else(|| invalid_url(self, NO_HOST, example))?;
        Ok(OneServer { host: Some(host), port, ..server })
    }

    /// The text that names hosts, and all the rest.
    fn parts(&self, example: &str) -> Result<(&str, OneServer)> {
        let invalid = |wrong| invalid_url(self, wrong, example);
        let decode = |text: &str| {
            let text = percent_decode_str(text).decode_utf8().map_err(|_| invalid("a part of it is not UTF-8"))?;
            Ok::<_, Error>(text.into_owned())
        };
        let rest = self.rest().strip_prefix("//").ok_or_else(|| invalid("it names no host"))?;
        let (login, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
        let (user, password) = login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
        let user = Some(decode(user)?).filter(|user| !user.is_empty());
        let password = password.map(decode).transpose()?;
        Ok((hosts, OneServer { user, password, host: None, port: None, path: decode(path)? }))
    }
}

/// The error of a URL that cannot be, with one that can.
pub fn invalid_url(url: &BackendUrl, wrong: &str, example: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("the URL {url}: {wrong}; it looks like {example}"))
}

/// `host`, `host:port` or `[::1]:port`.
fn host(text: &str) -> Option<(String, Option<u16>)> {
    let (host, written, others) = match text.strip_prefix('[') {
        // An address may be followed by the name of a network device.
        Some(text) => {
            let (host, port) = text.split_once(']').filter(|(host, _)| host.contains(':'))?;
            (host, port, ".:%_-")
        }
        None => (text.split(':').next()?, text.find(':').map_or("", |colon| &text[colon..]), "._-"),
    };
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c));
    let port = if written.is_empty() { None } else { Some(written.strip_prefix(':')?.parse().ok()?) };
    (is_host && port != Some(0)).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(url: &str) -> Result<Servers> {
        url.parse::<BackendUrl>()?.servers(7, "x://h")
    }

    #[test]
    fn each_part_is_read() {
        let Ok(all) = servers("x://us%40er:p%2Fw@h1,h-2.lan:8,[::1]:9,[fe80::1%eth0]/a%20b/c") else { panic!("a URL") };
        assert_eq!((all.user.as_deref(), all.password.as_deref()), (Some("us@er"), Some("p/w")));
        let shown: Vec<_> = all.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["h1:7", "h-2.lan:8", "[::1]:9", "[fe80::1%eth0]:7"]);
        assert_eq!((all.hosts[2].host.as_str(), all.path.as_str()), ("::1", "a b/c"));
        let Ok(least) = servers("x://h") else { panic!("a URL") };
        assert_eq!((least.user, least.password, least.path.as_str()), (None, None, ""));
        let Ok(no_user) = servers("x://:pw@h") else { panic!("a URL") };
        assert_eq!((no_user.user, no_user.password.as_deref()), (None, Some("pw")));
    }

    #[test]
    fn one_server_may_be_left_out_in_part() {
        let read = |text: &str| {
            let server = text.parse::<BackendUrl>()?.server("x://h")?;
            Ok::<_, Error>((server.user, server.password, server.host, server.port, server.path))
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            read("x://u:p%40@[::1]:7/db").unwrap(),
            (text("u"), text("p@"), text("::1"), Some(7), "db".to_owned())
        );
        assert_eq!(read("x://u@/db").unwrap(), (text("u"), None, None, None, "db".to_owned()));
        assert_eq!(read("x://").unwrap(), (None, None, None, None, String::new()));
        for bad in ["x:", "x:h", "x://h1,h2", "x://h:0", "x://a b/db", "x://%ff@h"] {
            assert_eq!(read(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for bad in [
            "x:",
            "x:h",
            "x://",
            "x:///p",
            "x://h:y",
            "x://h:0",
            "x://h:99999",
            "x://h,",
            "x://a b",
            "x://[::1]7",
            "x://[h]",
        ] {
            let Err(error) = servers(bad) else { panic!("{bad}") };
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("x://h"), "{bad}: {error}");
        }
        assert!(BackendUrl::without_params("x://h?a=1").is_err());
    }
}
