//! What the server's errors come to.

use lock_core::{Error, ErrorKind};
use redis::RedisError;

use super::marks::remedy;
use crate::Access;

pub(super) fn explained(error: RedisError, access: &Access) -> Error {
    use ErrorKind::{Invalid, Refused, Unavailable, Unknown, Unsupported};
    let detail = error.detail().unwrap_or_default();
    let (kind, message) = match error.code() {
        Some("OARLOCKSTALE") => match detail.trim().parse() {
            Ok(mark) if mark > access.token() => return access.late(mark).into(),
            _ => (Unknown, "the server's answer makes no sense"),
        },
        Some("OARLOCKMARK") => {
            (Refused, "at the key of the mark is something that is no mark; delete it: see the source")
        }
        Some("CROSSSLOT") => {
            let message =
                format!("the keys are in another slot of the cluster than the lock's mark; {}", remedy(access));
            return Error::new(Invalid, message).with_source(error);
        }
        Some("MOVED") => (Unsupported, "the server is a node of a cluster; use a connection to the cluster"),
        Some("READONLY") => (Unavailable, "the server is a replica; write to the primary"),
        Some("ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "BUSY" | "MASTERDOWN" | "NOREPLICAS") => {
            (Unavailable, "the server is not ready; try again")
        }
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => (
            Refused,
            "the user may not do this; it needs EVAL, EVALSHA, the commands of the script, and the mark's key",
        ),
        Some("OOM" | "MISCONF") => (Refused, "the server refuses writes: its memory is full, or its disk"),
        Some(_) => (Unknown, "the script failed, perhaps in the middle"),
        None => (Unknown, "no answer: it may be done; do it again, with the same token"),
    };
    Error::new(kind, message).with_source(error)
}
