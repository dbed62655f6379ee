//! What failures mean to the contract.

use std::io;

use lock_core::{Error, ErrorKind, HostPort};

/// There is no connection: nothing was sent.
pub(crate) fn unreachable(server: &HostPort, error: Option<io::Error>) -> Error {
    let message = format!("the server {server} cannot be reached; check the address, and that it runs");
    with(Error::new(ErrorKind::Unavailable, message), error)
}

/// The connection ended before this was sent.
pub(crate) fn not_sent(server: &HostPort) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the connection to the server {server} ended"))
}

/// The connection ended before the answer.
pub(crate) fn broken(server: &HostPort, error: Option<io::Error>) -> Error {
    with(Error::new(ErrorKind::Unknown, format!("the connection to {server} broke before the answer")), error)
}

pub(crate) fn slow(server: &HostPort) -> Error {
    let message = format!("no answer of {server} in time; look whether the server is stopped or cut off");
    Error::new(ErrorKind::Unknown, message)
}

/// What answers is something else, from the beginning.
pub(crate) fn no_memcached(server: &HostPort, why: &'static str) -> Error {
    let message =
        format!("{server} takes the connection, but does not answer as memcached does; is it the right port?");
    Error::new(ErrorKind::Unavailable, message).with_source(why)
}

/// What answers has begun to say something else.
pub(crate) fn malformed(server: &HostPort, why: &'static str) -> Error {
    let message = format!("{server} does not answer as memcached does; name the server itself, and no proxy");
    Error::new(ErrorKind::Unknown, message).with_source(why)
}

/// The server says that it did not do it.
pub(crate) fn refused(why: &str) -> Error {
    let (kind, wrong) = match why {
        why if why.to_ascii_lowercase().contains("out of memory") => (ErrorKind::Refused, FULL),
        why if why.contains("unauthenticated") => {
            (ErrorKind::Unsupported, "the server wants a login, which this backend does not have")
        }
        _ => (ErrorKind::Refused, "the server refuses this"),
    };
    let shown: String = why.chars().filter(|c| !c.is_control()).take(200).collect();
    Error::new(kind, wrong).with_source(shown)
}

const FULL: &str = "the server's memory is full; give it more, or a server for locks alone";

/// What was to be put where nothing is, is not there.
pub(crate) fn full() -> Error {
    Error::new(ErrorKind::Refused, FULL)
}

pub(crate) fn without_cas(server: &HostPort) -> Error {
    let message = format!("the server {server} was started with -C, without CAS numbers; start it without that");
    Error::new(ErrorKind::Unsupported, message)
}

pub(crate) fn too_old(server: &HostPort, version: &str) -> Error {
    let message = format!("the server {server} has version {version}; this backend needs memcached 1.6.13 or later");
    Error::new(ErrorKind::Unsupported, message)
}

/// The reply is one that this request cannot have.
pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Unknown, "the server answers something else than it was asked; is it behind a proxy?")
}

/// The same, where it is sure that nothing was done which matters.
pub(crate) fn not_done(error: Error) -> Error {
    if error.kind() == ErrorKind::Unknown {
        Error::new(ErrorKind::Unavailable, NOT_DONE).with_source(error)
    } else {
        error
    }
}

const NOT_DONE: &str = "the server does not answer; look whether it is stopped or cut off";

/// Others were faster again and again.
pub(crate) fn overtaken() -> Error {
    Error::new(ErrorKind::Unavailable, "others changed this lock again and again; try again")
}

fn with(error: Error, source: Option<io::Error>) -> Error {
    match source {
        Some(source) => error.with_source(source),
        None => error,
    }
}
