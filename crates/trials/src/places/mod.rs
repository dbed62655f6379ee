//! Where the torture's resources are, so that it attacks the checks that applications use: databases, Redis, and a
//! server for HTTP. These places are not struck; those who come to them are stopped and killed in the middle of everything.

mod http;
mod redis;
mod sql;

use std::any::Any;
use std::io;
use std::path::Path;

use clap::ValueEnum;
use conformance_tests::protected::{Protected, Shown};
use conformance_tests::resource::{Access, Kind};
use futures_util::future::BoxFuture;
use oarlock::fence;
use test_servers::{MariaDbServer, PostgresServer, RedisServer};

/// A kind of place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Place {
    /// `fence::sql::check` in PostgreSQL.
    Postgres,
    /// The same in MariaDB.
    Mysql,
    /// The same in SQLite.
    Sqlite,
    /// A script of `fence::redis`.
    Redis,
    /// The layer of `fence::http` for servers.
    Http,
    /// A server that refuses nobody, so that the oracle has something to find.
    Unchecked,
}

/// All that check.
pub(crate) const CHECKED: [&str; 5] = ["postgres", "mysql", "sqlite", "redis", "http"];

/// A place that was started. It ends when this is dropped.
pub(crate) struct Started {
    /// How workers open it.
    pub(crate) url: String,
    _server: Option<Box<dyn Any>>,
}

impl Place {
    /// Starts one with counters at 0.
    pub(crate) async fn start(self, folder: &Path) -> Result<Started, String> {
        let (url, server) = match self {
            Self::Postgres => {
                let server = PostgresServer::start();
                (server.url(), Some(Box::new(server) as Box<dyn Any>))
            }
            Self::Mysql => {
                let server = MariaDbServer::start();
                (server.url(), Some(Box::new(server) as Box<dyn Any>))
            }
            Self::Redis => {
                let server = RedisServer::start();
                (server.url(), Some(Box::new(server) as Box<dyn Any>))
            }
            Self::Sqlite => (format!("sqlite:{}?mode=rwc", folder.join("protected.db").display()), None),
            Self::Http | Self::Unchecked => {
                let server = http::Server::start(self == Self::Http).await.map_err(|error| error.to_string())?;
                (server.url(), Some(Box::new(server) as Box<dyn Any>))
            }
        };
        let made = match self {
            Self::Postgres => sql::Postgres::make(&url).await,
            Self::Mysql => sql::MySql::make(&url).await,
            Self::Sqlite => sql::Sqlite::make(&url).await,
            Self::Redis | Self::Http | Self::Unchecked => Ok(()),
        };
        made.map_err(|error| error.to_string())?;
        Ok(Started { url, _server: server })
    }
}

/// Opens the place of this URL.
pub(crate) fn open(url: String) -> BoxFuture<'static, io::Result<Box<dyn Protected>>> {
    Box::pin(async move {
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("postgres") => sql::Postgres::open(&url).await,
            Some("mysql") => sql::MySql::open(&url).await,
            Some("sqlite") => sql::Sqlite::open(&url).await,
            Some("redis") => redis::Counters::open(&url).await,
            Some("http" | http::UNCHECKED) => Ok(http::Counters::open(&url)),
            _ => Err(io::Error::other(format!("{url}: there is no such place"))),
        }
    })
}

/// A kind of access as the places know it.
fn number_of(kind: Kind) -> i32 {
    match kind {
        Kind::Read => 0,
        Kind::Write => 1,
        Kind::Share => 2,
    }
}

fn kind_of(number: i32) -> Kind {
    match number {
        0 => Kind::Read,
        1 => Kind::Write,
        _ => Kind::Share,
    }
}

/// What an application shows of its lock.
fn access(shown: &Shown) -> io::Result<fence::Access> {
    let access = fence::Access::new(shown.lock.as_str(), shown.token).map_err(io::Error::other)?;
    let access = access.with_slots(shown.slots.iter().copied());
    Ok(if shown.shared { access.shared() } else { access })
}

/// The log of these accesses, in their order.
fn log(accesses: impl IntoIterator<Item = (Kind, u64, u64)>) -> Vec<Access> {
    let mut newest = 0;
    let accesses = accesses.into_iter().map(|(kind, token, value)| {
        if kind != Kind::Share {
            newest = newest.max(token);
        }
        Access { kind, token, value, newest }
    });
    accesses.collect()
}

#[cfg(test)]
mod tests {
    use conformance_tests::oracle::check_resource;
    use conformance_tests::protected::Wanted;

    use super::*;

    /// One holder reads, another comes meanwhile, and the first writes all the same. Answers what came of that, and the
    /// rules that the resource's log breaks.
    async fn late_write(place: Place) -> (Option<u64>, Vec<&'static str>) {
        let folder = test_servers::folder(test_servers::Disk::Memory);
        let started = place.start(folder.path()).await.unwrap();
        let place = open(started.url.clone()).await.unwrap();
        let (early, late) = (Shown::alone("x", 5), Shown::alone("x", 7));
        for (holder, wanted, value) in [
            (&early, Wanted::Read, 0),
            (&late, Wanted::Read, 0),
            (&late, Wanted::Write(1), 1),
            (&late, Wanted::Share, 1),
        ] {
            assert_eq!(place.access("x-0", holder, wanted).await.unwrap(), Some(value), "{wanted:?}");
        }
        let answer = place.access("x-0", &early, Wanted::Write(1)).await.unwrap();
        let log = place.log("x-0").await.unwrap();
        assert_eq!(log[..2], [5, 7].map(|token| Access { kind: Kind::Read, token, value: 0, newest: token }));
        (answer, check_resource(&log).iter().map(|violation| violation.rule).collect())
    }

    #[tokio::test]
    async fn a_late_write_is_refused_or_found() {
        assert_eq!(late_write(Place::Sqlite).await, (None, vec![]));
        assert_eq!(late_write(Place::Http).await, (None, vec![]));
        assert_eq!(late_write(Place::Unchecked).await, (Some(1), vec!["F1", "F2"]));
    }

    #[tokio::test]
    async fn readers_and_slots_are_told_apart() {
        let folder = test_servers::folder(test_servers::Disk::Memory);
        for place in [Place::Sqlite, Place::Http] {
            let started = place.start(folder.path()).await.unwrap();
            let place = open(started.url.clone()).await.unwrap();
            let reader = |token| Shown { shared: true, ..Shown::alone("x", token) };
            let of = |slot, token| Shown { slots: vec![slot], ..Shown::alone("s", token) };
            for (resource, holder, wanted, value) in [
                ("x", Shown::alone("x", 5), Wanted::Write(1), Some(1)),
                ("x", reader(9), Wanted::Share, Some(1)),
                ("x", reader(8), Wanted::Share, Some(1)),
                ("x", Shown::alone("x", 7), Wanted::Write(2), Some(2)),
                ("x", reader(6), Wanted::Share, None),
                ("s-0", of(0, 9), Wanted::Write(1), Some(1)),
                ("s-1", of(1, 7), Wanted::Write(1), Some(1)),
                ("s-0", of(0, 8), Wanted::Write(2), None),
            ] {
                assert_eq!(place.access(resource, &holder, wanted).await.unwrap(), value, "{resource} {holder:?}");
            }
            assert_eq!(place.log("nobody").await.unwrap(), []);
        }
    }
}
