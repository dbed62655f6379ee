//! An access token that many replicas share: whoever finds it expired first refreshes it, the others wait and use the
//! new one.
//!
//! Without the lock each replica would refresh it for itself, and the issuer of this example, as many do, declares the
//! former token void each time it gives a new one.
//!
//! ```sh
//! cargo run -p oarlock --example shared_token
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oarlock::{Config, Fence, FencingToken, Locks, StaleToken};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const REPLICAS: usize = 8;
const ROUNDS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AccessToken(u64);

/// Stands for the server that gives out tokens: only the newest is good.
#[derive(Default)]
struct Issuer(AtomicU64);

impl Issuer {
    async fn issue(&self) -> AccessToken {
        tokio::time::sleep(Duration::from_millis(50)).await;
        AccessToken(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn accepts(&self, token: AccessToken) -> bool {
        token.0 == self.0.load(Ordering::SeqCst)
    }

    fn issued(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Stands for where the replicas keep the token: a row, a key, a file.
#[derive(Default)]
struct Cache {
    token: Mutex<Option<AccessToken>>,
    fence: Fence,
}

impl Cache {
    /// The token, if there is one that has not expired.
    fn read(&self) -> Option<AccessToken> {
        *self.token.lock().unwrap()
    }

    /// Refuses what a holder writes that a later one has overtaken.
    fn write(&self, fencing: FencingToken, token: AccessToken) -> std::result::Result<(), StaleToken> {
        let mut kept = self.token.lock().unwrap();
        self.fence.check(fencing.get())?;
        *kept = Some(token);
        Ok(())
    }

    fn expire(&self) {
        *self.token.lock().unwrap() = None;
    }
}

async fn access_token(locks: &Locks, cache: &Cache, issuer: &Issuer, replica: usize) -> Result<AccessToken> {
    // Nearly always: then it costs no lock.
    if let Some(token) = cache.read() {
        return Ok(token);
    }
    let guard = locks.mutex("examples/access-token").wait(Duration::from_secs(60)).lock().await?;
    // Asked again under the lock: while this replica waited, another may have refreshed it.
    let token = match cache.read() {
        Some(token) => token,
        None => {
            let token = guard.run(issuer.issue()).await?;
            cache.write(guard.fencing_token(), token)?;
            println!("replica {replica} refreshed it: {token:?}");
            token
        }
    };
    guard.unlock().await?;
    Ok(token)
}

pub(crate) async fn demo(config: Config) -> Result<()> {
    let (cache, issuer) = (Arc::new(Cache::default()), Arc::new(Issuer::default()));
    for round in 1..=ROUNDS {
        cache.expire();
        let mut replicas = Vec::new();
        for replica in 1..=REPLICAS {
            let (config, cache, issuer) = (config.clone(), Arc::clone(&cache), Arc::clone(&issuer));
            replicas.push(tokio::spawn(async move {
                let locks = oarlock::connect_with(config).await?;
                access_token(&locks, &cache, &issuer, replica).await
            }));
        }
        for replica in replicas {
            let token = replica.await??;
            assert!(issuer.accepts(token), "a replica has a token that is void");
        }
        assert_eq!(issuer.issued(), round, "refreshed once a round");
    }
    println!("{REPLICAS} replicas, {ROUNDS} times expired: refreshed {} times, every replica has the newest", ROUNDS);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    demo(Config::from_env(std::env::vars_os())?).await
}
