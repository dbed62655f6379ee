//! A cluster of three: names are spread over it, and the loss of one node is the loss of its names alone.

use std::sync::Arc;

use crate::common::{BOUND, LONG, claim, holder, in_background, in_line, raw, soon, until};
use lock_core::{
    Config, DistributedLock, ErrorKind, Kept, ListQuery, LockName, LockValue, Locks, Registry, Renewal, Unlocked,
};
use lock_redis::{RedisFactory, RedisLock, RedisOptions};
use test_servers::{Cluster, RedisServer};

async fn client(cluster: &Cluster) -> Arc<RedisLock> {
    Arc::new(RedisOptions::new(&cluster.url()).unwrap().timeout(BOUND).connect().await.unwrap())
}

/// A name on each primary, the first with the slots from zero on.
const NAMES: [&str; 3] = ["a{3}", "a{2}", "a{0}"];

#[tokio::test]
async fn names_are_spread_and_found() {
    let cluster = Cluster::start();
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    // Also names that make it hard to keep the keys of a lock together.
    let names: Vec<String> =
        (0..50).map(|number| format!("n{number}")).chain(["a}", "{}x", "{", "a{b}c"].map(str::to_owned)).collect();
    let mut claims = Vec::new();
    for name in &names {
        let held = claim(name, "holder");
        one.try_lock(&held).await.unwrap().unwrap();
        assert!(other.try_lock(&claim(name, "other")).await.unwrap().is_none());
        claims.push(held);
    }
    assert!(one.renew(&claims).await.into_iter().all(|answer| matches!(answer, Ok(Renewal::Held { .. }))));
    let mut found = Vec::new();
    let mut query = ListQuery::new("").limit(20);
    loop {
        let page = other.list(&query).await.unwrap();
        found.extend(page.locks.into_iter().map(|lock| lock.name.as_str().to_owned()));
        let Some(after) = page.next else { break };
        query.after = Some(after);
    }
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(found, sorted);
    // An owner of its own for each, as the contract has it.
    let next = |name: &str| claim(name, &format!("next of {name}"));
    let waiting: Vec<_> = names.iter().map(|name| in_background(&other, &next(name))).collect();
    for (held, waiting) in claims.iter().zip(waiting) {
        until("in line", async || in_line(&one, held.name.as_str()).await == 1).await;
        assert_eq!(one.unlock(held).await.unwrap(), Unlocked::Released);
        soon("the hand-over", waiting).await.unwrap().unwrap();
        assert_eq!(other.unlock(&next(held.name.as_str())).await.unwrap(), Unlocked::Released);
    }
}

/// A client shows on each node that it lives as soon as it waits there, and a lock that is only waited for is listed.
#[tokio::test]
async fn who_waits_on_several_nodes_is_known_on_each() {
    let cluster = Cluster::start();
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    for name in NAMES {
        one.try_lock(&claim(name, "first")).await.unwrap().unwrap();
    }
    for (name, node) in NAMES.iter().zip(cluster.addresses()) {
        let waiting = in_background(&other, &claim(name, "second"));
        let line = format!("oarlock-line:oarlock:{name}");
        until("the second in line", async || raw::<u64>(node, &["ZCARD", &line]).await == 1).await;
        assert_eq!(one.unlock(&claim(name, "first")).await.unwrap(), Unlocked::Released);
        assert_eq!(holder(node, name).await.as_deref(), Some("second"));
        soon("the hand-over", waiting).await.unwrap().unwrap();
        let third = in_background(&one, &claim(name, "third"));
        until("the third in line", async || raw::<u64>(node, &["ZCARD", &line]).await == 1).await;
        raw::<()>(node, &["DEL", &format!("oarlock:{name}")]).await;
        let listed = other.list(&ListQuery::new(*name)).await.unwrap().locks;
        assert_eq!(listed.len(), 1, "{listed:?}");
        soon("the look", third).await.unwrap().unwrap();
    }
}

/// Its names give errors in time, all others go on; when it is back, so are they.
#[tokio::test]
async fn one_node_dies_and_comes_back() {
    let mut cluster = Cluster::start();
    let lock = client(&cluster).await;
    let claims = NAMES.map(|name| claim(name, "holder"));
    for held in &claims {
        lock.try_lock(held).await.unwrap().unwrap();
    }
    let waiting = [0, 1].map(|node| in_background(&lock, &claim(NAMES[node], &format!("waiter {node}"))));
    for held in &claims[..2] {
        until("in line", async || in_line(&lock, held.name.as_str()).await == 1).await;
    }
    cluster.node(0).kill();
    let error = soon("an answer", lock.try_lock(&claim("b{3}", "other"))).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error:?}");
    let [dead, alive] = waiting;
    assert!(soon("the end of the wait", dead).await.unwrap().is_err());
    let renewed = soon("the renewals", lock.renew(&claims)).await;
    assert!(renewed[0].is_err(), "{renewed:?}");
    assert!(renewed[1..].iter().all(|answer| matches!(answer, Ok(Renewal::Held { .. }))), "{renewed:?}");
    assert_eq!(lock.unlock(&claims[1]).await.unwrap(), Unlocked::Released);
    soon("the hand-over", alive).await.unwrap().unwrap();
    cluster.node(0).restart();
    let again = claim("b{3}", "again");
    until("the names are back", async || matches!(lock.try_lock(&again).await, Ok(Some(_)))).await;
    // It kept nothing.
    assert!(matches!(lock.renew(&claims[..1]).await[..], [Ok(Renewal::NotHeld)]));
}

/// A replica takes the place of a primary that died: its names go on there, with the holds that had reached it, also of
/// owners that have gone.
#[tokio::test]
async fn a_replica_takes_over() {
    let mut cluster = Cluster::start();
    cluster.add_replica(0);
    let lock = client(&cluster).await;
    let locks = Locks::builder(Arc::clone(&lock) as Arc<dyn DistributedLock>).lease(LONG).build().unwrap();
    let kept = locks.mutex("kept{3}").lock().await.unwrap();
    let mut done = claim("done{3}", "owner");
    done.value = Some(LockValue::new("shown").unwrap());
    lock.try_lock(&done).await.unwrap().unwrap();
    assert_eq!(lock.keep(&done, LONG).await.unwrap(), Kept::Kept);
    let primary = cluster.addresses()[0];
    let info: String = raw(primary, &["INFO", "replication"]).await;
    let written: u64 = after(&info, "master_repl_offset:");
    until("the replica has it", async || {
        let info: String = raw(primary, &["INFO", "replication"]).await;
        after(&info, "state=online,offset=") >= written
    })
    .await;
    cluster.node(0).kill();
    let next = async || matches!(lock.try_lock(&claim("next{3}", "owner")).await, Ok(Some(_)));
    until("the replica serves its names", next).await;
    assert!(kept.is_held());
    kept.unlock().await.unwrap();
    let done_by = lock.holder(&done.name).await.unwrap().unwrap();
    assert_eq!((done_by.kept, done_by.owner, done_by.value), (true, done.owner, done.value));
}

/// A replica takes the place of a primary without the last grant: another holds the lock, as is documented. Its token
/// is higher all the same, and the first holder is told at its next renewal.
#[tokio::test]
async fn tokens_rise_over_a_fail_over() {
    let mut cluster = Cluster::start();
    cluster.add_replica(0);
    let lock = client(&cluster).await;
    // The others and the replica go through the proxy.
    cluster.proxies().next().unwrap().hold();
    let (held, next) = (claim("x{3}", "holder"), claim("x{3}", "next"));
    // Past it, as a client grants.
    let grant = "local time = redis.call('TIME')
        local token = time[1] .. string.sub('00000' .. time[2], -6)
        redis.call('SET', KEYS[1], ARGV[1], 'PX', 300000)
        redis.call('SET', KEYS[2], token)
        return token";
    let keys = ["2", "oarlock:x{3}", "oarlock-tokens:{3}", held.owner.as_str()];
    let lost: u64 = raw(cluster.addresses()[0], &[&["EVAL", grant], &keys[..]].concat()).await;
    cluster.node(0).kill();
    let proxy = cluster.proxies().next().unwrap();
    proxy.reset();
    proxy.forward();
    let mut granted = None;
    until("the replica serves its names", async || {
        granted = lock.try_lock(&next).await.ok().flatten();
        granted.is_some()
    })
    .await;
    assert!(granted.unwrap().token.get() > lost);
    assert!(matches!(lock.renew(&[held, next]).await[..], [Ok(Renewal::NotHeld), Ok(Renewal::Held { .. })]));
}

/// The number that follows these words.
fn after(info: &str, words: &str) -> u64 {
    let (_, rest) = info.split_once(words).unwrap();
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// What voids a promise is found on each node, and told with its address.
#[tokio::test]
async fn doctor_asks_each_node() {
    let cluster = Cluster::start();
    let lock = client(&cluster).await;
    raw::<()>(cluster.addresses()[1], &["CONFIG", "SET", "cluster-require-full-coverage", "yes"]).await;
    let found: Vec<_> = lock.doctor().await.unwrap().into_iter().map(|finding| finding.setting).collect();
    let addresses: Vec<_> = cluster.proxies().map(|proxy| proxy.address().to_string()).collect();
    for address in &addresses {
        assert!(found.contains(&format!("{address}: appendonly=no")), "{found:?}");
    }
    assert!(found.contains(&format!("{}: cluster-require-full-coverage=yes", addresses[1])), "{found:?}");
    assert_eq!(found.len(), 4, "{found:?}");
}

#[tokio::test]
async fn what_is_no_cluster_is_refused() {
    let server = RedisServer::start();
    let mut registry = Registry::new();
    registry.register(RedisFactory);
    let connect =
        async |url: String| tokio::time::timeout(BOUND, registry.connect(Config::from_url(&url).unwrap())).await;
    let error = connect(format!("redis+cluster://{}", server.address())).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    let cluster = Cluster::start();
    let address = cluster.proxies().next().unwrap().address();
    let locks = connect(format!("redis://{address}")).await.unwrap().unwrap();
    let mut errors = Vec::new();
    for name in NAMES {
        errors.extend(locks.mutex(name).try_lock().await.err());
    }
    assert!(!errors.is_empty() && errors.iter().all(|error| error.to_string().contains("redis+cluster")), "{errors:?}");
    // One address is enough.
    let locks = connect(format!("redis+cluster://{address}")).await.unwrap().unwrap();
    for name in NAMES {
        locks.mutex(name).lock().await.unwrap().unlock().await.unwrap();
    }
    assert!(locks.inspect(LockName::new("x").unwrap().as_str()).await.unwrap().holder().is_none());
}
