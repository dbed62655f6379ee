//! Counters in Redis: an access is one script with the check before it.

use std::io;
use std::sync::LazyLock;

use async_trait::async_trait;
use conformance_tests::protected::{Protected, Shown, Wanted};
use conformance_tests::resource::Access;
use oarlock::ErrorKind;
use oarlock::fence::redis::{Script, script};
use redis::aio::MultiplexedConnection;

static READ: LazyLock<Script> = LazyLock::new(|| {
    script(
        "local value = tonumber(redis.call('GET', KEYS[1]) or '0')
         redis.call('RPUSH', KEYS[2], table.concat({ARGV[1], ARGV[2], value}, ' '))
         return value",
    )
});

static WRITE: LazyLock<Script> = LazyLock::new(|| {
    script(
        "redis.call('SET', KEYS[1], ARGV[3])
         redis.call('RPUSH', KEYS[2], table.concat(ARGV, ' '))
         return tonumber(ARGV[3])",
    )
});

pub(super) struct Counters(MultiplexedConnection);

impl Counters {
    pub(super) async fn open(url: &str) -> io::Result<Box<dyn Protected>> {
        let client = redis::Client::open(url).map_err(io::Error::other)?;
        // Its server is not struck, and this process may be stopped in the middle of anything.
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        Ok(Box::new(Self(connection.map_err(io::Error::other)?)))
    }
}

fn history(resource: &str) -> String {
    format!("{{{resource}}}:history")
}

#[async_trait]
impl Protected for Counters {
    async fn access(&self, resource: &str, shown: &Shown, wanted: Wanted) -> io::Result<Option<u64>> {
        let script = if let Wanted::Write(_) = wanted { &WRITE } else { &READ };
        let call = script.key(format!("{{{resource}}}:value")).key(history(resource));
        let call = call.arg(super::number_of(wanted.kind())).arg(shown.token);
        let call = if let Wanted::Write(value) = wanted { call.arg(value) } else { call };
        match call.run(&mut self.0.clone(), super::access(shown)?).await {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::Stale => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    async fn log(&self, resource: &str) -> io::Result<Vec<Access>> {
        let lines = redis::cmd("LRANGE").arg(history(resource)).arg(0).arg(-1).query_async(&mut self.0.clone()).await;
        let lines: Vec<String> = lines.map_err(io::Error::other)?;
        let accesses = lines.iter().map(|line| {
            let mut words = line.split(' ');
            let kind = super::kind_of(words.next()?.parse().ok()?);
            let mut number = || words.next()?.parse().ok();
            Some((kind, number()?, number()?))
        });
        let accesses = accesses.collect::<Option<Vec<_>>>();
        Ok(super::log(accesses.ok_or_else(|| io::Error::other(format!("{resource}: its history is damaged")))?))
    }
}
