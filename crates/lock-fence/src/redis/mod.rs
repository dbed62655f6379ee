//! The check for data in Redis or Valkey: it and the write are one script, so one step of the server.
//!
//! The mark of each name is a key of its own. [`set`] and [`hset`] check and write; [`script()`] puts the check before
//! a script of yours; [`check`] only checks, which a holder does before it reads. All of them take any asynchronous
//! connection of the crate `redis`: a multiplexed one, a connection manager, or that of a cluster.
//!
//! - **In a cluster**, the mark and all keys of a call have to be in the same slot. So a key has the lock's name in
//!   braces, as in `{orders/42}:total`, or is equal to the name. Or the lock's name has the braces of the keys, as
//!   `orders/{42}` for the keys `order:{42}` and `total:{42}`. A key in another slot is an error that says so.
//! - **A mark does not expire**: without it, a token of any age would pass. It is a key of some hundred bytes for each
//!   name, and one for each slot of a semaphore. [`mark_keys`] names them. They may be deleted once no holder with an
//!   earlier token can be alive. With `maxmemory`, choose a policy that evicts only keys with an expiry.
//! - **What a fail-over, a restart or `FLUSHALL` loses** of the last writes, it also loses of the marks. A mark is
//!   older than the data that were written with it, so no data are kept without their mark.
//! - Plain commands of other clients are not checked.
//! - A name stands for one lock of one store. Tokens of different names or stores are no order, so do not mix them.

mod error;
mod marks;
mod script;

use std::sync::LazyLock;

use lock_core::{Error, Result};
use redis::aio::ConnectionLike;
use redis::{ToRedisArgs, ToSingleRedisArg};

use crate::Access;

pub use marks::mark_keys;
pub use script::{Call, Script, script};

static CHECK: LazyLock<Script> = LazyLock::new(|| script(""));
static SET: LazyLock<Script> = LazyLock::new(|| script("redis.call('SET', KEYS[1], ARGV[1])"));
static HSET: LazyLock<Script> = LazyLock::new(|| script(HSET_SOME));

// Lua has room for some thousand values at once.
const HSET_SOME: &str = "for at = 1, #ARGV, 4000 do
    redis.call('HSET', KEYS[1], unpack(ARGV, at, math.min(at + 3999, #ARGV)))
end";

/// Sets a key, unless a later holder was here. All earlier ones are refused from now on.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lock_core::Result<()> {
/// # use lock_fence as fence;
/// # let server = test_servers::RedisServer::start();
/// # let client = redis::Client::open(server.url()).unwrap();
/// # let mut connection = client.get_multiplexed_async_connection().await.unwrap();
/// # let lease = ("orders/42", 7);
/// fence::redis::set(&mut connection, lease, "{orders/42}:total", 1250).await?;
/// # Ok(())
/// # }
/// ```
///
/// An expiry of the key goes, as with `SET`; for options of `SET`, use a [script](script()).
///
/// # Errors
/// As of [`Call::run`].
///
/// # Cancel safety
/// After a drop, it may be done or not. It is checked when it is done, however late that is.
pub async fn set<C, A>(
    connection: &mut C,
    access: A,
    key: impl ToSingleRedisArg,
    value: impl ToSingleRedisArg,
) -> Result<()>
where
    C: ConnectionLike + Send,
    A: TryInto<Access>,
    Error: From<A::Error>,
{
    SET.key(key).arg(value).run(connection, access).await
}

/// Sets fields of a hash, unless a later holder was here: one as `("total", 1250)`, or several as a slice of pairs or a
/// map. All earlier holders are refused from now on.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lock_core::Result<()> {
/// # use lock_fence as fence;
/// # let server = test_servers::RedisServer::start();
/// # let client = redis::Client::open(server.url()).unwrap();
/// # let mut connection = client.get_multiplexed_async_connection().await.unwrap();
/// # let lease = ("orders/42", 7);
/// fence::redis::hset(&mut connection, lease, "{orders/42}", &[("total", 1250), ("items", 3)]).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As of [`Call::run`].
///
/// # Cancel safety
/// As of [`set`].
pub async fn hset<C, A>(
    connection: &mut C,
    access: A,
    key: impl ToSingleRedisArg,
    fields: impl ToRedisArgs,
) -> Result<()>
where
    C: ConnectionLike + Send,
    A: TryInto<Access>,
    Error: From<A::Error>,
{
    HSET.key(key).arg(fields).run(connection, access).await
}

/// Only checks that no later holder was here, and has all earlier ones refused from now on.
///
/// Call it before you read what you then write anew: from then on, no earlier holder changes it.
///
/// # Errors
/// As of [`Call::run`].
///
/// # Cancel safety
/// As of [`set`].
pub async fn check<C, A>(connection: &mut C, access: A) -> Result<()>
where
    C: ConnectionLike + Send,
    A: TryInto<Access>,
    Error: From<A::Error>,
{
    CHECK.call().run(connection, access).await
}
