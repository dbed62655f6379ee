//! Tokens rise while stores are killed and cut off.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::{Config, Locks, Registry};
use lock_quorum::QuorumFactory;
use lock_redis::RedisFactory;
use rand::RngExt;
use test_servers::{Proxy, RedisServer};

/// How many acquisitions there are, unless `$OARLOCK_QUORUM_ACQUISITIONS` says otherwise.
const ACQUISITIONS: u64 = 500;

const CLIENTS: usize = 4;

/// For how long a store is left in peace, and is away, at most.
const SPELL: Duration = Duration::from_millis(300);

struct Member {
    server: RedisServer,
    /// Each client has its own.
    proxies: Vec<Proxy>,
}

impl Member {
    fn start() -> Self {
        let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
        let proxies = (0..CLIENTS).map(|_| Proxy::new(server.address())).collect();
        Self { server, proxies }
    }
}

async fn client(members: &[Member], number: usize) -> Locks {
    let mut registry = Registry::new();
    registry.register(RedisFactory);
    let stores = registry.clone();
    registry.register(QuorumFactory::over(stores));
    let stores: Vec<_> =
        members.iter().map(|member| format!("store=redis://{}", member.proxies[number].address())).collect();
    let url = format!("quorum:?{}&lease=2s&outage=1h&timeout=500ms", stores.join("&"));
    registry.connect(Config::from_url(&url).unwrap()).await.unwrap()
}

/// One store at a time is killed and started again, or cut off from some of the clients.
fn strike(mut members: Vec<Member>, over: Arc<AtomicBool>) -> u64 {
    let (mut rng, mut blows) = (rand::rng(), 0);
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(rng.random_range(Duration::ZERO..SPELL));
        let member = rng.random_range(0..members.len());
        if rng.random() {
            members[member].server.restart();
        } else {
            let mut cut = members[member].proxies.iter().collect::<Vec<_>>();
            cut.retain(|_| rng.random());
            cut.iter().for_each(|proxy| if rng.random() { proxy.hold() } else { proxy.cut() });
            std::thread::sleep(rng.random_range(Duration::ZERO..SPELL));
            cut.iter().for_each(|proxy| proxy.forward());
        }
        blows += 1;
    }
    blows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_while_stores_are_killed_and_cut_off() {
    let wanted = std::env::var("OARLOCK_QUORUM_ACQUISITIONS").ok().and_then(|number| number.parse().ok());
    let wanted: u64 = wanted.unwrap_or(ACQUISITIONS);
    let members = vec![Member::start(), Member::start(), Member::start()];
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        clients.push(client(&members, number).await);
    }
    let (over, granted, highest) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(0)));
    let striking = tokio::task::spawn_blocking({
        let over = Arc::clone(&over);
        move || strike(members, over)
    });
    let mut working = tokio::task::JoinSet::new();
    for locks in clients {
        let (granted, highest) = (Arc::clone(&granted), Arc::clone(&highest));
        working.spawn(async move {
            while granted.load(Ordering::Relaxed) < wanted {
                let guard = locks.mutex("x").lock().await.unwrap();
                {
                    let mut highest = highest.lock().unwrap_or_else(PoisonError::into_inner);
                    // As long as it is held, nobody was granted it after us.
                    if guard.is_held() {
                        let token = guard.fencing_token().get();
                        assert!(token > *highest, "{token} after {highest}");
                        *highest = token;
                        granted.fetch_add(1, Ordering::Relaxed);
                    }
                }
                // It may be lost by now.
                drop(guard.unlock().await);
            }
        });
    }
    while let Some(worked) = working.join_next().await {
        worked.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let blows = striking.await.unwrap();
    println!("{} acquisitions, {blows} blows", granted.load(Ordering::Relaxed));
    assert!(blows > 2, "{blows}");
}
