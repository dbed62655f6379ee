//! A script with the check before it.

use std::sync::LazyLock;

use lock_core::{Error, ErrorKind, Result};
use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, RedisResult, ServerErrorKind, ToRedisArgs, ToSingleRedisArg};

use super::error::explained;
use super::marks::mark_keys;
use crate::Access;

/// The check on one line, so that a script's errors name its own lines.
static PREAMBLE: LazyLock<String> = LazyLock::new(|| {
    let lines = include_str!("check.lua").lines().map(str::trim).filter(|line| !line.starts_with("--"));
    lines.collect::<Vec<_>>().join(" ") + " "
});

/// A Lua script that is run only if no later holder was here. Make it once: see [`script()`].
#[derive(Clone, Debug)]
pub struct Script {
    text: String,
    /// The server knows it by this, once it has run it.
    sha1: String,
}

/// Puts the check before a script of yours, which is otherwise as for `EVAL`: `KEYS` and `ARGV` are its own, numbered
/// from 1, and it answers what it likes.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lock_core::Result<()> {
/// # use lock_fence as fence;
/// # let server = test_servers::RedisServer::start();
/// # let client = redis::Client::open(server.url()).unwrap();
/// # let mut connection = client.get_multiplexed_async_connection().await.unwrap();
/// # let lease = ("orders/42", 7);
/// let withdraw = fence::redis::script("return redis.call('DECRBY', KEYS[1], ARGV[1])");
/// let left: i64 = withdraw.key("{orders/42}:left").arg(3).run(&mut connection, lease).await?;
/// # assert_eq!(left, -3);
/// # Ok(())
/// # }
/// ```
///
/// If the script fails after its beginning, what it has written stays, as with every script, and so does the mark.
///
/// A first line such as `#!lua flags=allow-oom` stays the first. The flag `no-writes` is for scripts that are run by
/// [readers](Access::shared) alone: any other access raises its mark.
pub fn script(lua: &str) -> Script {
    let (shebang, rest) = match lua.split_once('\n') {
        Some((first, rest)) if first.starts_with("#!") => (format!("{first}\n"), rest),
        _ => (String::new(), lua),
    };
    let text = format!("{shebang}{}{rest}", *PREAMBLE);
    let sha1 = redis::Script::new(&text).get_hash().to_owned();
    Script { text, sha1 }
}

impl Script {
    /// A call without keys or arguments yet.
    pub fn call(&self) -> Call<'_> {
        Call { script: self, keys: Vec::new(), arguments: Vec::new() }
    }

    /// A call with this as its first key.
    pub fn key(&self, key: impl ToSingleRedisArg) -> Call<'_> {
        self.call().key(key)
    }

    /// A call without keys, with this as its first argument, or with several.
    pub fn arg(&self, argument: impl ToRedisArgs) -> Call<'_> {
        self.call().arg(argument)
    }
}

/// A script with its keys and arguments.
#[derive(Clone, Debug)]
#[must_use = "it is done when it is run"]
pub struct Call<'a> {
    script: &'a Script,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

impl Call<'_> {
    /// With a further key.
    pub fn key(mut self, key: impl ToSingleRedisArg) -> Self {
        key.write_redis_args(&mut self.keys);
        self
    }

    /// With a further argument, or several.
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        argument.write_redis_args(&mut self.arguments);
        self
    }

    /// Runs it, unless a later holder was here. All earlier ones are refused from now on.
    ///
    /// # Errors
    /// - [`ErrorKind::Stale`]: a later holder was here, and nothing was done. [`Stale::of`](crate::Stale::of) has both
    ///   tokens.
    /// - [`ErrorKind::Invalid`]: in a cluster, a key is in another slot than the mark; the error says how to name it.
    /// - [`ErrorKind::Refused`], [`ErrorKind::Unavailable`], [`ErrorKind::Unsupported`]: the server did not begin with
    ///   it.
    /// - [`ErrorKind::Unknown`]: the script failed in the middle, there was no answer, or none of this type. Again with
    ///   the same token, it is refused only if a later holder came in between.
    ///
    /// How long an answer is waited for is up to the connection.
    ///
    /// # Cancel safety
    /// After a drop, it may be done or not. It is checked when it is done, however late that is.
    pub async fn run<T, C, A>(self, connection: &mut C, access: A) -> Result<T>
    where
        T: FromRedisValue,
        C: ConnectionLike + Send,
        A: TryInto<Access>,
        Error: From<A::Error>,
    {
        let access = access.try_into()?;
        let answer = match self.command("EVALSHA", &self.script.sha1, &access).query_async(connection).await {
            Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.command("EVAL", &self.script.text, &access).query_async(connection).await
            }
            answer => answer,
        };
        self.read(answer, &access).map_err(|error| error.with_context("fence", "redis", Some(access.name())))
    }

    fn read<T: FromRedisValue>(&self, answer: RedisResult<redis::Value>, access: &Access) -> Result<T> {
        let value = answer.map_err(|error| explained(error, access))?;
        redis::from_redis_value(value).map_err(|error| {
            let message = "the script was run, and its answer is not of the type that was asked for";
            Error::new(ErrorKind::Unknown, message).with_source(error)
        })
    }

    fn command(&self, verb: &str, script: &str, access: &Access) -> Cmd {
        let marks = mark_keys(access);
        let count = marks.len() as i64;
        let mut command = redis::cmd(verb);
        command.arg(script).arg(self.keys.len() + marks.len()).arg(&self.keys).arg(marks).arg(&self.arguments);
        command.arg(if access.is_shared() { -count } else { count }).arg(format!("{:020}", access.token()));
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_keeps_its_lines() {
        let script = script("first()\nsecond()");
        assert_eq!(script.text.lines().count(), 2);
        assert!(script.text.starts_with("do local") && script.text.ends_with("end first()\nsecond()"));
        let flagged = super::script("#!lua flags=allow-oom\nsecond()");
        assert_eq!(flagged.text.lines().next(), Some("#!lua flags=allow-oom"));
        assert!(flagged.text.ends_with("end second()") && flagged.text.lines().count() == 2);
    }

    #[test]
    fn what_is_sent_is_the_scripts_own_first() {
        let script = script("");
        let access = Access::new("a", 7_u64).unwrap().with_slots([3, 4]);
        let command = script.key("k").key("l").arg(1).arg(&["x", "y"]).command("EVALSHA", "sha", &access);
        let words = command.args_iter().map(|word| match word {
            redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
            other => panic!("{other:?}"),
        });
        let (first, second) = ("oarlock-fence-of:{a}\u{1f}3", "oarlock-fence-of:{a}\u{1f}4");
        let token = "00000000000000000007";
        assert_eq!(
            words.collect::<Vec<_>>(),
            ["EVALSHA", "sha", "4", "k", "l", first, second, "1", "x", "y", "2", token]
        );
    }
}
