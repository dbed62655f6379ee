//! What Redis's errors mean to a caller, each with the way out.

use std::error::Error as StdError;
use std::sync::Arc;

use lock_core::{Error, ErrorKind};
use redis::RedisError;

use crate::address::Address;
use crate::tls;

/// What a failed request says about the connection that it went over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The server answered over it.
    Fine,
    /// It did not answer in time.
    Slow,
    /// It is of no use any more.
    Broken,
}

pub(crate) fn blame(error: &RedisError) -> Blame {
    match code(error) {
        // This server is no primary any more: a new connection may lead to the one that is.
        Some("READONLY" | "MASTERDOWN" | "UNBLOCKED") => Blame::Broken,
        Some(_) => Blame::Fine,
        None if error.is_timeout() => Blame::Slow,
        None => Blame::Broken,
    }
}

/// Did the server say that it was not done? Else it may have been.
pub(crate) fn is_answered(error: &RedisError) -> bool {
    code(error).is_some()
}

/// The code that the server answered with, if it answered.
fn code(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    // Redis 6 wraps the errors of commands inside scripts.
    let detail = error.detail().unwrap_or_default();
    let wrapped = ["WRONGTYPE", "OOM", "READONLY", "MISCONF", "NOREPLICAS", "NOPERM"];
    Some(wrapped.into_iter().find(|inner| code == "ERR" && detail.contains(inner)).unwrap_or(code))
}

/// The error of a request.
pub(crate) fn of_request(error: RedisError) -> Error {
    use ErrorKind::{Refused, Unavailable, Unknown};
    let (kind, wrong) = match code(&error) {
        Some("WRONGTYPE") => {
            (Refused, "at this lock's key stands something that is no lock; look at it with redis-cli, or rename")
        }
        Some("NOAUTH" | "WRONGPASS") => (Refused, "wrong user or password, or none given; check the URL"),
        Some("NOPERM") => {
            (Refused, "the user may not do this; it needs the rights that the manual names, ACL LOG shows which")
        }
        Some("OOM") => (Refused, "the server's memory is full; make room, or raise maxmemory"),
        Some("MISCONF") => (Refused, "the server cannot save to its disk and refuses writes; look at its log"),
        Some("READONLY") => (Unavailable, "the server is a replica; name the primary"),
        Some("NOREPLICAS") => (Unavailable, "fewer replicas are connected than min-replicas-to-write asks for"),
        Some("CLUSTERDOWN") => {
            (Unavailable, "the cluster has lost this lock's slot, or the most of its nodes; look at CLUSTER INFO")
        }
        Some("ASK" | "TRYAGAIN") => (Unavailable, "the lock's slot is being moved to another node; try again"),
        Some("LOADING" | "BUSY" | "MASTERDOWN") => (Unavailable, "the server is busy or not ready; try again"),
        Some(_) if says_undeclared(&error) => (
            ErrorKind::Unsupported,
            "the server lets scripts use the keys alone that they were called with, as Dragonfly does; start it with \
             --default_lua_flags=allow-undeclared-keys, or use Redis or Valkey",
        ),
        Some("MOVED" | "CROSSSLOT") => {
            (ErrorKind::Unsupported, "the server is a node of a cluster; use a URL that begins with redis+cluster")
        }
        Some(_) => (Unknown, "the server refused, perhaps in the middle"),
        None if error.is_timeout() => (Unknown, "no answer in time; look whether the server is stopped or cut off"),
        None => (Unknown, "the connection broke before the answer"),
    };
    Error::new(kind, wrong).with_source(error)
}

fn says_undeclared(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("undeclared key"))
}

/// What does not know `HELLO`, or not this version of it: look-alikes say it in words of their own.
fn is_without_resp3(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default().to_lowercase();
    error.kind() == redis::ErrorKind::RESP3NotSupported
        || code(error) == Some("NOPROTO")
        || detail.contains("unknown command") && detail.contains("hello")
}

/// The error of connecting where the server does not close a connection that was given up.
pub(crate) fn of_closing(server: &Address, error: RedisError) -> Error {
    if code(&error).is_none() {
        return of_connecting(server, error);
    }
    let wrong = format!(
        "the server {server} refuses CLIENT KILL ID, by which a new connection ends the one before it, so that nothing \
         sent over that is done later: give the user +client|kill; a service that lets nobody do it keeps no such locks"
    );
    Error::new(ErrorKind::Refused, wrong).with_source(error)
}

/// The error of connecting: nothing was asked yet, so nothing can be unknown.
pub(crate) fn of_connecting(server: &Address, error: RedisError) -> Error {
    if is_without_resp3(&error) {
        let wrong = format!(
            "the server {server} does not speak RESP3, as Redis and Valkey do: it may be a proxy, a look-alike, or older \
             than Redis 6.2; name the server itself"
        );
        return Error::new(ErrorKind::Unsupported, wrong).with_source(error);
    }
    if error.kind() == redis::ErrorKind::AuthenticationFailed {
        let wrong = format!("the server {server}: wrong user or password, or none given; check the URL");
        return Error::new(ErrorKind::Refused, wrong).with_source(error);
    }
    if error.to_string().contains("DB index is out of range") {
        let wrong = format!("the server {server} has fewer databases; take a lower number in the URL, such as /0");
        return Error::new(ErrorKind::Refused, wrong).with_source(error);
    }
    if code(&error).is_some() {
        return of_request(error);
    }
    // With TLS 1.3, the server says what it thinks of our certificate only when it is asked something.
    if let Some(why) = io_error(&error).and_then(tls::explain) {
        return Error::new(ErrorKind::Refused, format!("the server {server}: {why}")).with_source(error);
    }
    let message = format!("the server {server} cannot be reached; check the address, and that it runs");
    Error::new(ErrorKind::Unavailable, message).with_source(error)
}

/// The error of the first exchange over a connection that was made: with something that is no Redis, perhaps.
pub(crate) fn of_login(server: &Address, has_password: bool, error: RedisError) -> Error {
    let is_refused = error.kind() == redis::ErrorKind::AuthenticationFailed || code(&error) == Some("NOAUTH");
    if is_refused && !has_password {
        let wrong =
            format!("the server {server} wants a password and none was given; put it into the URL or the config");
        return Error::new(ErrorKind::Refused, wrong).with_source(error);
    }
    let is_told = is_refused || code(&error).is_some() || is_without_resp3(&error);
    if is_told || io_error(&error).and_then(tls::explain).is_some() {
        return of_connecting(server, error);
    }
    let wrong = format!("{server} takes the connection, but does not answer as Redis does; is it the right port?");
    Error::new(ErrorKind::Unavailable, wrong).with_source(error)
}

fn io_error(error: &RedisError) -> Option<&std::io::Error> {
    error.source()?.downcast_ref::<Arc<dyn StdError + Send + Sync>>()?.downcast_ref()
}

pub(crate) fn too_old(server: &impl std::fmt::Display) -> Error {
    let old = format!("the server {server} is older than Redis 6.2, which this backend needs");
    Error::new(ErrorKind::Unsupported, old)
}
