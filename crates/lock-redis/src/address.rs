//! What a URL says: which servers, how they are found, and who logs in.

use std::fmt;
use std::path::PathBuf;

use lock_core::{BackendUrl, Error, ErrorKind, HostPort, Result, invalid_url};

/// The port of a server in a URL without one.
const PORT: u16 = 6379;

/// The port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// Where one server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp(HostPort),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(place) => write!(f, "{place}"),
        }
    }
}

/// How the server that keeps a lock is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    One(Address),
    /// Which server is the primary of this name, sentinels know.
    Sentinel(Vec<Address>, String),
    /// Nodes of a cluster know the others.
    Cluster(Vec<Address>),
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(address) => write!(f, "{address}"),
            Self::Sentinel(_, name) => write!(f, "sentinel {name}"),
            Self::Cluster(_) => f.write_str("cluster"),
        }
    }
}

/// All that a URL says. It has no `Debug`, for the password.
#[derive(Clone)]
pub(crate) struct Location {
    pub(crate) topology: Topology,
    pub(crate) tls: bool,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: i64,
}

impl Location {
    pub(crate) fn parse(url: &BackendUrl) -> Result<Self> {
        if url.scheme() == "unix" {
            let path = url.path()?;
            if path.is_empty() {
                return Err(Error::new(ErrorKind::Invalid, "name the socket, as in unix:/run/redis/redis.sock"));
            }
            return Ok(Self::of(Topology::One(Address::Unix(path.into()))));
        }
        let example = &example(url.scheme());
        let invalid = |wrong| invalid_url(url, wrong, example);
        let kind = url.scheme().split_once('+').map_or("", |(_, kind)| kind);
        let port = if kind == "sentinel" { SENTINEL_PORT } else { PORT };
        let lock_core::Servers { user, password, hosts, path } = url.servers(port, example)?;
        let hosts: Vec<_> = hosts.into_iter().map(Address::Tcp).collect();
        let mut location = match (kind, &hosts[..]) {
            ("", [server]) => {
                let database = if path.is_empty() { Ok(0) } else { path.parse() };
                let database = database.map_err(|_| invalid("the database is no number"))?;
                Self { database, ..Self::of(Topology::One(server.clone())) }
            }
            ("sentinel", _) if path.is_empty() => return Err(invalid("it does not name the primary")),
            ("sentinel", _) => Self::of(Topology::Sentinel(hosts, path)),
            ("cluster", _) if path.is_empty() => Self::of(Topology::Cluster(hosts)),
            ("cluster", _) => return Err(invalid("a cluster has no databases")),
            _ => return Err(invalid("it names more than one server")),
        };
        location.tls = url.scheme().starts_with("rediss");
        (location.user, location.password) = (user, password);
        Ok(location)
    }

    fn of(topology: Topology) -> Self {
        Self { topology, tls: false, user: None, password: None, database: 0 }
    }
}

/// What a URL of this scheme looks like.
fn example(scheme: &str) -> String {
    match scheme.split_once('+') {
        Some((_, "sentinel")) => {
            format!("{scheme}://user:password@host1:{SENTINEL_PORT},host2:{SENTINEL_PORT}/primary")
        }
        Some((_, "cluster")) => format!("{scheme}://user:password@host1:{PORT},host2:{PORT}"),
        _ => format!("{scheme}://user:password@host:{PORT}/0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(url: &str) -> Result<Location> {
        Location::parse(&url.parse()?)
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(HostPort { host: host.to_owned(), port })
    }

    #[test]
    fn servers_are_read() {
        let all = location("redis://us%40er:p%2Fw@[::1]:7/3").unwrap();
        assert_eq!(all.topology, Topology::One(tcp("::1", 7)));
        assert_eq!(all.topology.to_string(), "[::1]:7");
        let login = (all.user.as_deref(), all.password.as_deref(), all.database, all.tls);
        assert_eq!(login, (Some("us@er"), Some("p/w"), 3, false));
        let least = location("rediss://cache").unwrap();
        assert_eq!(least.topology, Topology::One(tcp("cache", PORT)));
        assert_eq!((least.user, least.password, least.database, least.tls), (None, None, 0, true));
        let sentinel = location("redis+sentinel://:pw@h1,[::1]:7/my%20primary").unwrap();
        let hosts = vec![tcp("h1", SENTINEL_PORT), tcp("::1", 7)];
        assert_eq!(sentinel.topology, Topology::Sentinel(hosts, "my primary".to_owned()));
        assert_eq!((sentinel.password.as_deref(), sentinel.tls), (Some("pw"), false));
        assert!(location("rediss+sentinel://h/x").unwrap().tls);
        let cluster = location("rediss+cluster://h1,h2:7").unwrap();
        assert_eq!(cluster.topology, Topology::Cluster(vec![tcp("h1", PORT), tcp("h2", 7)]));
        let socket = location("unix:/run/redis.sock").unwrap();
        assert_eq!(socket.topology, Topology::One(Address::Unix("/run/redis.sock".into())));
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for bad in [
            "redis:",
            "redis://",
            "redis://h/x",
            "redis://h:x",
            "unix:",
            "redis://[::1]7",
            "redis://h,i",
            "redis:h",
            "redis+sentinel://h",
            "redis+sentinel:///x",
            "redis+cluster://h/1",
        ] {
            let Err(error) = location(bad) else { panic!("{bad}") };
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
        }
    }
}
