//! `fence::redis` on one server and in a cluster.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::{ErrorKind, LockName, Locks, Result};
use lock_fence::redis::{check, hset, mark_keys, script, set};
use lock_fence::{Access, Stale};
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::{AsyncCommands, Client};
use test_servers::{Cluster, Proxy, RedisServer};

const NAME: &str = "orders/42";
const KEY: &str = "{orders/42}:data";

fn access(token: u64) -> Access {
    Access::new(NAME, token).unwrap()
}

async fn connect(url: &str) -> MultiplexedConnection {
    Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

#[track_caller]
fn assert_stale<T: std::fmt::Debug>(result: Result<T>, presented: u64, newest: u64) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}");
    let stale = Stale { resource: NAME.to_owned(), presented, newest };
    assert_eq!(Stale::of(&error), Some(&stale), "{error:?}");
    assert_eq!(error.name().map(LockName::as_str), Some(NAME));
}

#[tokio::test]
async fn a_writer_that_was_paused_is_refused() {
    let server = RedisServer::start();
    let mut redis = connect(&server.url()).await;
    for token in [7, 7, 9] {
        set(&mut redis, access(token), KEY, token).await.unwrap();
    }
    assert_stale(set(&mut redis, access(7), KEY, 7).await, 7, 9);
    assert_stale(hset(&mut redis, access(8), "{orders/42}:hash", ("a", 1)).await, 8, 9);
    assert_stale(check(&mut redis, access(8)).await, 8, 9);
    assert_eq!(redis.get::<_, u64>(KEY).await.unwrap(), 9);
    assert!(!redis.exists::<_, bool>("{orders/42}:hash").await.unwrap());
    set(&mut redis, access(9), KEY, "nine").await.unwrap();
    // Of another lock it is the first, whatever is written.
    set(&mut redis, ("orders/43", 1), KEY, "one").await.unwrap();
    assert_eq!(redis.get::<_, String>(KEY).await.unwrap(), "one");
}

/// A holder that has read is as safe as one that has written.
#[tokio::test]
async fn a_check_before_reading_refuses_earlier_writers() {
    let server = RedisServer::start();
    let mut redis = connect(&server.url()).await;
    set(&mut redis, access(7), KEY, 7).await.unwrap();
    check(&mut redis, access(9)).await.unwrap();
    assert_stale(set(&mut redis, access(7), KEY, 8).await, 7, 9);
}

#[tokio::test]
async fn the_lease_of_a_lock_is_an_access() {
    let server = RedisServer::start();
    let mut redis = connect(&server.url()).await;
    let locks = Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
    let (earlier, later) = {
        let guard = locks.mutex(NAME).lock().await.unwrap();
        let earlier = guard.lease();
        guard.unlock().await.unwrap();
        (earlier, locks.mutex(NAME).lock().await.unwrap())
    };
    set(&mut redis, &later, KEY, "later").await.unwrap();
    let (old, new) = (earlier.fencing_token().get(), later.fencing_token().get());
    assert_stale(set(&mut redis, &earlier, KEY, "earlier").await, old, new);
}

/// The tokens of readers are in no order: none refuses another, nor the writer that may be the next.
#[tokio::test]
async fn readers_refuse_nobody_and_are_refused_after_a_writer() {
    let server = RedisServer::start();
    let mut redis = connect(&server.url()).await;
    check(&mut redis, access(1).shared()).await.unwrap();
    assert!(!redis.exists::<_, bool>(mark_keys(&access(1))).await.unwrap());
    set(&mut redis, access(5), KEY, 5).await.unwrap();
    for reader in [7, 6, 5] {
        check(&mut redis, access(reader).shared()).await.unwrap();
    }
    set(&mut redis, access(6), KEY, 6).await.unwrap();
    set(&mut redis, access(9), KEY, 9).await.unwrap();
    assert_stale(check(&mut redis, access(7).shared()).await, 7, 9);
    check(&mut redis, access(9).shared()).await.unwrap();
}

#[tokio::test]
async fn each_slot_has_a_mark_of_its_own() {
    let server = RedisServer::start();
    let mut redis = connect(&server.url()).await;
    let with = |token: u64, slots: &[u32]| access(token).with_slots(slots.iter().copied());
    set(&mut redis, with(9, &[0]), KEY, 9).await.unwrap();
    set(&mut redis, with(7, &[1, 2]), KEY, 7).await.unwrap();
    set(&mut redis, with(8, &[2]), KEY, 8).await.unwrap();
    assert_stale(set(&mut redis, with(7, &[1, 2]), KEY, "late").await, 7, 8);
    // Neither was a mark raised that is before the one that refused.
    assert_stale(set(&mut redis, with(8, &[0, 1]), KEY, "late").await, 8, 9);
    set(&mut redis, with(7, &[1]), KEY, "slot 1").await.unwrap();
    assert_eq!(redis.get::<_, String>(KEY).await.unwrap(), "slot 1");
}

/// Lua's numbers are exact up to 2^53.
#[tokio::test]
async fn tokens_are_told_apart_over_the_whole_range() {
    let server = RedisServer::start();
    let mut redis = connect(&server.url()).await;
    let tokens = [0, 9, 10, 1 << 31, 1 << 53, (1 << 53) + 1, Access::MAX_TOKEN - 1, Access::MAX_TOKEN];
    for (at, token) in tokens.into_iter().enumerate() {
        set(&mut redis, access(token), KEY, token).await.unwrap();
        for earlier in &tokens[..at] {
            assert_stale(set(&mut redis, access(*earlier), KEY, "late").await, *earlier, token);
        }
    }
    // No token of ours is so high; a mark may be.
    for mark in [u64::MAX - 1, u64::MAX] {
        redis.set::<_, _, ()>(&mark_keys(&access(1))[0], format!("{mark:020}")).await.unwrap();
        assert_stale(set(&mut redis, access(Access::MAX_TOKEN), KEY, "late").await, Access::MAX_TOKEN, mark);
    }
    assert_eq!(redis.get::<_, u64>(KEY).await.unwrap(), Access::MAX_TOKEN);
}

#[tokio::test]
async fn what_is_no_mark_is_named() {
    let server = RedisServer::start();
    let mut redis = connect(&server.url()).await;
    for no_mark in ["7", "x0000000000000000007", "000000000000000000007", ""] {
        redis.set::<_, _, ()>(&mark_keys(&access(1))[0], no_mark).await.unwrap();
        let error = set(&mut redis, access(9), KEY, 9).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{no_mark:?}: {error:?}");
    }
    assert!(!redis.exists::<_, bool>(KEY).await.unwrap());
}

/// With neither could a mark fall back while an earlier holder is alive.
#[tokio::test]
async fn a_mark_does_not_expire() {
    let server = RedisServer::start();
    let mut redis = connect(&server.url()).await;
    let semaphore = access(7).with_slots([3]);
    set(&mut redis, access(7), KEY, 7).await.unwrap();
    set(&mut redis, &semaphore, KEY, 7).await.unwrap();
    for mark in mark_keys(&access(7)).into_iter().chain(mark_keys(&semaphore)) {
        assert_eq!(redis.get::<_, String>(&mark).await.unwrap(), "00000000000000000007");
        assert_eq!(redis.ttl::<_, i64>(&mark).await.unwrap(), -1, "{mark}");
    }
}

#[tokio::test]
async fn fields_are_set_together() {
    let server = RedisServer::start();
    let mut redis = connect(&server.url()).await;
    hset(&mut redis, access(7), KEY, ("one", 1)).await.unwrap();
    hset(&mut redis, access(7), KEY, &[("two", 2), ("three", 3)]).await.unwrap();
    let found: HashMap<String, u64> = redis.hgetall(KEY).await.unwrap();
    assert_eq!(found, [("one", 1), ("two", 2), ("three", 3)].map(|(field, value)| (field.to_owned(), value)).into());
    let many: Vec<_> = (0..20_000).map(|number| (format!("field {number}"), number)).collect();
    hset(&mut redis, access(7), "many", &many[..]).await.unwrap();
    assert_eq!(redis.hlen::<_, usize>("many").await.unwrap(), many.len());
}

#[tokio::test]
async fn a_script_has_its_own_keys_and_arguments() {
    let server = RedisServer::start();
    let mut redis = connect(&server.url()).await;
    let echo = script("return {#KEYS, #ARGV, KEYS[1] or '', KEYS[2] or '', ARGV[1] or '', ARGV[2] or ''}");
    type Answer = (usize, usize, String, String, String, String);
    for who in [access(7), access(8).shared(), access(7).with_slots([0, 5, 9])] {
        let answer: Answer = echo.key("k").key("l").arg("a").arg("b").run(&mut redis, &who).await.unwrap();
        assert_eq!(answer, (2, 2, "k".into(), "l".into(), "a".into(), "b".into()));
        let answer: Answer = echo.call().run(&mut redis, &who).await.unwrap();
        assert_eq!((answer.0, answer.1, answer.2.as_str()), (0, 0, ""));
    }
}

#[tokio::test]
async fn a_script_answers_what_it_likes_and_is_not_run_for_the_stale() {
    let server = RedisServer::start();
    let mut redis = connect(&server.url()).await;
    let withdraw = script(
        "local left = tonumber(redis.call('GET', KEYS[1]) or '10')\n\
         if left < tonumber(ARGV[1]) then return redis.error_reply('SHORT of ' .. left) end\n\
         return redis.call('SET', KEYS[1], left - ARGV[1]) and left - ARGV[1]",
    );
    let left: i64 = withdraw.key(KEY).arg(3).run(&mut redis, access(7)).await.unwrap();
    assert_eq!(left, 7);
    let short = withdraw.key(KEY).arg(8).run::<i64, _, _>(&mut redis, access(8)).await.unwrap_err();
    assert_eq!(short.kind(), ErrorKind::Unknown);
    let source = std::error::Error::source(&short).unwrap().downcast_ref::<redis::RedisError>().unwrap();
    assert_eq!((source.code(), source.detail()), (Some("SHORT"), Some("of 7")));
    // It was checked before the script said no.
    assert_stale(withdraw.key(KEY).arg(1).run::<i64, _, _>(&mut redis, access(7)).await, 7, 8);
    assert_eq!(redis.get::<_, i64>(KEY).await.unwrap(), 7);
    let other = withdraw.key(KEY).arg(1).run::<HashMap<String, String>, _, _>(&mut redis, access(8)).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Unknown);
    let flagged = script("#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])");
    assert_eq!(flagged.key(KEY).run::<i64, _, _>(&mut redis, access(8).shared()).await.unwrap(), 6);
}

/// A restart takes the server's scripts away.
#[tokio::test]
async fn a_script_that_the_server_does_not_know_is_sent_again() {
    let server = RedisServer::start();
    let mut redis = connect(&server.url()).await;
    set(&mut redis, access(7), KEY, 7).await.unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut redis).await.unwrap();
    set(&mut redis, access(9), KEY, 9).await.unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut redis).await.unwrap();
    assert_stale(set(&mut redis, access(7), KEY, 7).await, 7, 9);
}

/// Writers of rising tokens, all at once: what is accepted is in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_in_order() {
    const TOKENS: u64 = 100;
    let server = RedisServer::start();
    let append = script("return redis.call('RPUSH', KEYS[1], ARGV[1])");
    let mut writers = Vec::new();
    for token in (1..=TOKENS).flat_map(|token| [token, TOKENS + 1 - token]) {
        let (mut redis, append) = (connect(&server.url()).await, append.clone());
        writers.push(tokio::spawn(async move {
            append.key(KEY).arg(token).run::<u64, _, _>(&mut redis, access(token)).await
        }));
    }
    let mut accepted = 0;
    for writer in writers {
        match writer.await.unwrap() {
            Ok(_) => accepted += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}"),
        }
    }
    let history: Vec<u64> = connect(&server.url()).await.lrange(KEY, 0, -1).await.unwrap();
    assert!(history.is_sorted(), "{history:?}");
    assert_eq!((history.len(), history.last()), (accepted, Some(&TOKENS)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_may_be_repeated() {
    let server = RedisServer::start();
    let proxy = Proxy::new(server.address());
    let mut proxied = connect(&format!("redis://{}", proxy.address())).await;
    let mut redis = connect(&server.url()).await;
    // So that the server knows the script.
    set(&mut proxied, access(5), KEY, 5).await.unwrap();
    proxy.hold_s2c();
    let writing = tokio::spawn(async move { set(&mut proxied, access(9), KEY, 9).await });
    let done = async {
        while redis.get::<_, u64>(KEY).await.unwrap() != 9 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), done).await.expect("the write arrives");
    proxy.cut();
    assert_eq!(writing.await.unwrap().unwrap_err().kind(), ErrorKind::Unknown);
    set(&mut redis, access(9), KEY, 9).await.unwrap();
    assert_stale(set(&mut redis, access(7), KEY, 7).await, 7, 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_marks_and_data_are_in_one_slot() {
    let cluster = Cluster::start();
    let nodes: Vec<_> = cluster.proxies().map(|proxy| format!("redis://{}", proxy.address())).collect();
    let mut redis = ClusterClient::new(nodes.clone()).unwrap().get_async_connection().await.unwrap();
    // With the lock's name as the part in braces, or as a whole; and with that of the lock's name.
    for (name, key) in [(NAME, KEY), (NAME, NAME), ("orders/{42}", "order:{42}"), ("{42}", "{42}:x"), ("a", "x:{a}")] {
        let access = |token: u64| Access::new(name, token).unwrap();
        for access in [access(9), access(9).with_slots([0, 1])] {
            set(&mut redis, &access, key, "nine").await.unwrap();
        }
        for late in [access(7), access(7).shared(), access(7).with_slots([1])] {
            let error = set(&mut redis, &late, key, "seven").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stale, "{name} {key}: {error:?}");
        }
        check(&mut redis, access(9)).await.unwrap();
        assert_eq!(redis.get::<_, String>(key).await.unwrap(), "nine");
    }
    for (name, key, remedy) in
        [(NAME, "total", "{orders/42}"), ("orders/{42}", "{43}:total", "{42}"), (NAME, "{43}", "in the name")]
    {
        let error = set(&mut redis, (name, 9), key, 9).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        assert!(error.to_string().contains(remedy), "{error}");
        assert!(!redis.exists::<_, bool>(key).await.unwrap());
    }
    // Over a connection to one node: what is not there is not written.
    let mut kinds = Vec::new();
    for node in &nodes {
        let written = set(&mut connect(node).await, access(9), KEY, 9).await;
        kinds.push(written.map_err(|error| error.kind()));
    }
    kinds.sort_by_key(Result::is_err);
    assert_eq!(kinds, [Ok(()), Err(ErrorKind::Unsupported), Err(ErrorKind::Unsupported)]);
}
