//! A lock that nobody holds or waits for is taken by plain commands, where a script has drawn a token just before.

use std::sync::Arc;

use crate::common::{LONG, claim, holder, in_background, in_line, raw, soon, until};
use lock_core::{Claim, DistributedLock, LockName, Locks, Observed, OwnerId, StoreToken, Unlocked};
use lock_redis::RedisLock;
use test_servers::{Proxy, RedisServer};

/// Rounds of a client that is busy: the first of them is by a script, most others are not.
const ROUNDS: usize = 50;

/// An owner as the core draws them.
const OURS: &str = "api@host:7#00000000-0000-0000-0000-000000000000";

async fn connect(server: &RedisServer) -> Arc<RedisLock> {
    Arc::new(RedisLock::connect(&server.url(), "oarlock").await.unwrap())
}

/// The token of a turn with this lock.
async fn turn(lock: &RedisLock, name: &str, owner: &str) -> StoreToken {
    let held = claim(name, owner);
    let token = lock.try_lock(&held).await.unwrap().unwrap().token;
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    token
}

/// How often plain commands have drawn.
async fn plain(server: &RedisServer) -> u64 {
    let stats: String = raw(server.address(), &["INFO", "commandstats"]).await;
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_incr:calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn tokens_rise_from_turn_to_turn_and_from_client_to_client() {
    let server = RedisServer::start();
    let clients = [connect(&server).await, connect(&server).await];
    let mut last = turn(&clients[0], "x", "first").await;
    // Until plain commands had their part: on a slow machine, a script is due each time.
    until("some turns by plain commands", async || {
        for round in 0..ROUNDS {
            let token = turn(&clients[round % 3 / 2], "x", &round.to_string()).await;
            assert!(token > last, "{token:?} after {last:?}");
            last = token;
        }
        plain(&server).await > 0
    })
    .await;
}

/// What tokens are counted by is lost, lowered, raised or overwritten while clients draw.
#[tokio::test]
async fn tokens_rise_whatever_becomes_of_what_they_are_counted_by() {
    let server = RedisServer::start();
    let lock = connect(&server).await;
    let mut last = turn(&lock, "x", "first").await;
    let far = (last.get() + (1 << 40)).to_string();
    let changes: [&[&str]; 6] = [
        &["DEL", "oarlock-tokens"],
        &["FLUSHALL"],
        &["SET", "oarlock-tokens", "7"],
        &["SET", "oarlock-tokens", "no number"],
        &["SET", "oarlock-tokens", "-1"],
        &["SET", "oarlock-tokens", &far],
    ];
    for round in 0..ROUNDS {
        for (number, change) in changes.iter().enumerate() {
            // Once raised, it cannot be lost without that being a loss.
            if round + 1 < ROUNDS && number + 1 == changes.len() {
                continue;
            }
            turn(&lock, "y", &format!("{round}, {number}, before")).await;
            raw::<redis::Value>(server.address(), change).await;
            let token = turn(&lock, "x", &format!("{round}, {number}")).await;
            assert!(token > last, "{token:?} after {last:?}, {change:?}");
            last = token;
        }
    }
    assert!(last.get().to_string() > far);
}

/// A lock comes free unheard while somebody waits: whoever asks by plain commands does not go before.
#[tokio::test]
async fn who_is_in_line_goes_before_who_asks() {
    let server = RedisServer::start();
    let (waits, asks) = (connect(&server).await, connect(&server).await);
    for round in 0..ROUNDS {
        let name = round.to_string();
        raw::<()>(server.address(), &["SET", &format!("oarlock:{name}"), "another library"]).await;
        let second = claim(&name, &format!("second of {name}"));
        let waiting = in_background(&waits, &second);
        until("the second in line", async || in_line(&waits, &name).await == 1).await;
        turn(&asks, "other", &format!("other {round}")).await;
        raw::<()>(server.address(), &["DEL", &format!("oarlock:{name}")]).await;
        assert!(asks.try_lock(&claim(&name, &format!("third of {name}"))).await.unwrap().is_none());
        soon("the lock", waiting).await.unwrap().unwrap();
        assert_eq!(waits.unlock(&second).await.unwrap(), Unlocked::Released);
        assert_eq!(holder(server.address(), &name).await, None);
    }
}

/// The same of one who has taken the key by then, and lost the answer with the connection.
#[tokio::test]
async fn who_is_in_line_goes_before_who_lost_the_answer() {
    let server = RedisServer::start();
    let proxy = Proxy::new(server.address());
    let waits = connect(&server).await;
    let asks = Arc::new(RedisLock::connect(&format!("redis://{}", proxy.address()), "oarlock").await.unwrap());
    for round in 0..ROUNDS / 10 {
        let name = round.to_string();
        raw::<()>(server.address(), &["SET", &format!("oarlock:{name}"), "another library"]).await;
        let (second, third) = (claim(&name, &format!("second of {name}")), claim(&name, &format!("third of {name}")));
        let waiting = in_background(&waits, &second);
        until("the second in line", async || in_line(&waits, &name).await == 1).await;
        turn(&asks, "other", &format!("other {round}")).await;
        proxy.hold_s2c();
        raw::<()>(server.address(), &["DEL", &format!("oarlock:{name}")]).await;
        let asked = in_background(&asks, &third);
        until("it is done", async || holder(server.address(), &name).await.is_some()).await;
        proxy.reset();
        proxy.forward();
        soon("the lock", waiting).await.unwrap().unwrap();
        assert_eq!(waits.unlock(&second).await.unwrap(), Unlocked::Released);
        soon("the lock", asked).await.unwrap().unwrap();
        assert_eq!(asks.unlock(&third).await.unwrap(), Unlocked::Released);
    }
}

/// What stands in line and does not live keeps nobody out.
#[tokio::test]
async fn who_is_in_line_and_gone_keeps_nobody_out() {
    let server = RedisServer::start();
    let lock = connect(&server).await;
    for round in 0..ROUNDS {
        let line = format!("oarlock-line-of:{{oarlock:{round}}}");
        raw::<i64>(server.address(), &["ZADD", &line, "1", "gone 300000 ghost"]).await;
        turn(&lock, "other", &format!("other {round}")).await;
        turn(&lock, &round.to_string(), &format!("owner {round}")).await;
    }
}

/// The token of a lock that is held for more than a moment is there for all to see, and gone with the hold.
#[tokio::test]
async fn others_see_the_token_of_who_holds() {
    let server = RedisServer::start();
    let (ours, other) = (connect(&server).await, connect(&server).await);
    let held = claim("x", "holder");
    turn(&ours, "y", "before").await;
    let token = ours.try_lock(&held).await.unwrap().unwrap().token;
    let name = LockName::new("x").unwrap();
    assert_eq!(ours.inspect(&name).await.unwrap().into_holder().unwrap().token, token);
    assert_eq!(ours.try_lock(&held).await.unwrap().unwrap().token, token);
    turn(&ours, "y", "again").await;
    let long = claim("z", "long");
    let token = ours.try_lock(&long).await.unwrap().unwrap().token;
    until("the token", async || {
        let holder = other.inspect(&long.name).await.unwrap().into_holder().unwrap();
        assert_eq!(holder.owner, long.owner);
        holder.token == token && !holder.held_for.is_zero()
    })
    .await;
    assert_eq!(ours.unlock(&long).await.unwrap(), Unlocked::Released);
    assert_eq!(raw::<Option<String>>(server.address(), &["GET", "oarlock-grant-of:{oarlock:z}"]).await, None);
}

/// A flight is done and its answer lost with the connection: the lock is the owner's all the same.
#[tokio::test]
async fn a_flight_whose_answer_was_lost_is_found() {
    let server = RedisServer::start();
    let proxy = Proxy::new(server.address());
    let lock = Arc::new(RedisLock::connect(&format!("redis://{}", proxy.address()), "oarlock").await.unwrap());
    for round in 0..ROUNDS / 10 {
        let ours = claim("x", &format!("owner {round}"));
        turn(&lock, "y", &round.to_string()).await;
        proxy.hold_s2c();
        let asked = in_background(&lock, &ours);
        until("it is done", async || holder(server.address(), "x").await.is_some()).await;
        proxy.reset();
        proxy.forward();
        soon("the grant", asked).await.unwrap().unwrap();
        assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::Released);
    }
}

/// The token is written down a moment after the grant: who observes waits for it, and sees the holder once.
#[tokio::test]
async fn who_observes_sees_each_holder_once_with_its_token() {
    let server = RedisServer::start();
    let (holding, watching) = (connect(&server).await, Locks::new(connect(&server).await));
    turn(&holding, "warm", "first").await;
    let mut observer = watching.observe("x").unwrap();
    let held = Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(OURS), LONG);
    assert!(matches!(soon("a look", observer.next()).await.unwrap(), Observed::Free));
    for _ in 0..3 {
        let grant = holding.try_lock(&held).await.unwrap().unwrap();
        let Observed::Held(seen) = soon("the holder", observer.next()).await.unwrap() else { panic!("not held") };
        assert_eq!(seen.token, grant.token);
        assert_eq!(holding.unlock(&held).await.unwrap(), Unlocked::Released);
        assert!(matches!(soon("its end", observer.next()).await.unwrap(), Observed::Free));
    }
}
