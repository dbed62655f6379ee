//! What etcd's errors mean to a caller, each with the way out, and to whoever may ask another member.

use std::error::Error as _;

use etcd_client::Error as EtcdError;
use lock_core::{Error, ErrorKind};
use tonic::{Code, ConnectError, Status};

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The lease that it names is over. Nothing was done.
    LeaseGone,
    /// There is a lease of this number. Is it of an earlier copy of this request?
    LeaseExists { ours: bool },
    /// The server's database is full. That is said of what filled it, too, which was done.
    Full(Error),
    /// Anything else.
    Other(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::LeaseGone => Error::new(ErrorKind::Unavailable, "the lease ended in between; try again"),
            Failure::LeaseExists { .. } => Error::new(ErrorKind::Unavailable, "the lease has another owner; try again"),
            Failure::Full(error) | Failure::Other(error) => error,
        }
    }
}

/// What a failed request says about the member that it went to.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It answered.
    Answered(Failure),
    /// Surely nothing was done: another member may be asked.
    NotDone(Error),
    /// It knows of no leader: an election is on its way, and nothing was done.
    NoLeader(Error),
    /// It may have been done.
    Unknown(Error),
}

impl From<Verdict> for Error {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Answered(failure) => failure.into(),
            Verdict::NotDone(error) | Verdict::NoLeader(error) | Verdict::Unknown(error) => error,
        }
    }
}

/// What `server` answered, or what became of the connection to it.
pub(crate) fn judge(server: &str, error: EtcdError) -> Verdict {
    let EtcdError::GRpcStatus(status) = &error else {
        return Verdict::Unknown(broken(server).with_source(error));
    };
    if let Some(cause) = root(status) {
        if is_about_frames(status) {
            let wrong = format!("{server} answers, but not as etcd does; is it the right port?");
            return Verdict::Unknown(Error::new(ErrorKind::Unknown, wrong).with_source(cause));
        }
        return match is_about_connecting(status) {
            true => Verdict::NotDone(unreachable(server).with_source(cause)),
            false => Verdict::Unknown(broken(server).with_source(cause)),
        };
    }
    of_answer(status.code(), status.message().to_owned(), error)
}

fn of_answer(code: Code, said: String, error: EtcdError) -> Verdict {
    use ErrorKind::{Refused, Unavailable, Unknown};
    let answered = |kind, wrong: &str| Error::new(kind, wrong);
    let says = |words: &str| said.contains(words);
    let (kind, wrong) = match code {
        Code::NotFound if says("lease not found") => return Verdict::Answered(Failure::LeaseGone),
        Code::FailedPrecondition if says("lease already exists") => {
            return Verdict::Answered(Failure::LeaseExists { ours: false });
        }
        Code::Unavailable if says("no leader") => {
            let wrong = "the cluster has no leader; look whether a majority of its members runs";
            return Verdict::NoLeader(answered(Unavailable, wrong).with_source(error));
        }
        // A new login is needed, which a new connection begins with.
        Code::Unauthenticated => {
            return Verdict::NotDone(
                answered(Refused, "the server does not know the login any more").with_source(error),
            );
        }
        Code::InvalidArgument if says("auth store is old") || says("invalid auth token") => {
            return Verdict::NotDone(answered(Unavailable, "the server's users were changed").with_source(error));
        }
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Aborted => {
            let wrong = "the cluster did not get it done in time; look whether its members run";
            return Verdict::Unknown(answered(Unknown, wrong).with_source(error));
        }
        Code::InvalidArgument if says("authentication failed") => (Refused, "wrong user or password; check the URL"),
        Code::InvalidArgument if says("user name is empty") => {
            (Refused, "the server asks for a user and a password; name them in the URL")
        }
        Code::FailedPrecondition if says("authentication is not enabled") => {
            (Refused, "the server has no users; leave user and password out")
        }
        Code::PermissionDenied => {
            (Refused, "the user may not do this; its role needs to read and write what begins with the prefix")
        }
        Code::ResourceExhausted if says("space exceeded") => {
            let wrong = "the server's database is full; compact and defragment it, and end the alarm with etcdctl";
            return Verdict::Answered(Failure::Full(answered(Refused, wrong).with_source(error)));
        }
        Code::ResourceExhausted => (Unavailable, "the server has too much to do; try again"),
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition | Code::Unimplemented => {
            (Refused, "the server cannot do this; is it etcd 3.4 or later?")
        }
        _ => (Unknown, "the server refused, perhaps in the middle"),
    };
    Verdict::Answered(Failure::Other(answered(kind, wrong).with_source(error)))
}

/// The cause of all causes. The errors above it say the same in the form of `Debug`.
fn root(status: &Status) -> Option<String> {
    let mut cause = status.source()?;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Some(cause.to_string())
}

/// Did it fail before anything could be sent?
fn is_about_connecting(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Did something answer that does not speak HTTP/2, as every etcd does?
fn is_about_frames(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if ["FRAME_SIZE_ERROR", "frame with invalid size", "PROTOCOL_ERROR"].iter().any(|sign| text.contains(sign)) {
            return true;
        }
        cause = error.source();
    }
    false
}

pub(crate) fn no_answer(server: &str) -> Error {
    let wrong = format!("no answer from {server} in time; look whether it is stopped or cut off");
    Error::new(ErrorKind::Unknown, wrong)
}

pub(crate) fn broken(server: &str) -> Error {
    Error::new(ErrorKind::Unknown, format!("the connection to {server} broke before the answer"))
}

fn unreachable(server: &str) -> Error {
    let wrong = format!("the server {server} cannot be reached; check the address, and that it runs");
    Error::new(ErrorKind::Unavailable, wrong)
}

pub(crate) fn leaving() -> Error {
    Error::new(ErrorKind::Unknown, "a release of it was sent, and its answer was lost")
}

/// The server answered something that was not asked.
pub(crate) fn nonsense() -> Error {
    Error::new(ErrorKind::Unknown, "the server's answer cannot be read; is it etcd 3.4 or later?")
}

/// At a lock's place stands a key that never ends by itself.
pub(crate) fn stray(key: &str) -> Error {
    let wrong = format!("the key {key:?} stands in line for this lock without a lease: remove it, with etcdctl del");
    Error::new(ErrorKind::Refused, wrong)
}

/// What failed changes nothing, whatever became of it.
pub(crate) fn not_done(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unknown => as_kind(ErrorKind::Unavailable, error),
        _ => error,
    }
}

/// What failed may have been done, or has to be undone.
pub(crate) fn in_doubt(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unknown | ErrorKind::Closed => error,
        _ => as_kind(ErrorKind::Unknown, error),
    }
}

fn as_kind(kind: ErrorKind, error: Error) -> Error {
    // The text begins with the kind that it had.
    let text = error.to_string();
    let message = text.split_once(": ").map_or(&*text, |(_, message)| message);
    Error::new(kind, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::EtcdOptions;

    #[test]
    fn another_kind_takes_the_place_of_the_first() {
        let error = in_doubt(unreachable("h:1"));
        assert!(error.to_string().starts_with("outcome unknown: the server h:1"), "{error}");
        assert!(not_done(error).to_string().starts_with("store unavailable: the server h:1"));
    }

    #[tokio::test]
    async fn a_closed_port_is_told_in_words() {
        let error = EtcdOptions::new("etcd://127.0.0.1:1").unwrap().connect().await.unwrap_err();
        let printed = format!("{error:?}");
        assert!(printed.contains("that it runs: Connection refused"), "{printed}");
        assert!(!printed.contains("ConnectError"), "{printed}");
    }

    #[tokio::test]
    async fn another_service_is_told_from_a_server_that_is_away() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("etcd://{}", server.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            loop {
                let (mut stream, _) = server.accept().await.unwrap();
                assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await.unwrap();
            }
        });
        let error = EtcdOptions::new(&url).unwrap().connect().await.unwrap_err();
        serving.abort();
        assert!(error.to_string().contains("is it the right port?"), "{error:?}");
    }
}
