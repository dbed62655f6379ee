//! The suite on a quorum of three Redis servers, which cases share: each has proxies and databases of its own.

#[allow(dead_code, reason = "it is a suite of its own")]
#[path = "../../lock-redis/tests/conformance.rs"]
mod redis_suite;
mod stores;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use conformance_tests::{Harness, Store};
use lock_core::Registry;
use test_servers::RedisServer;

use redis_suite::{DATABASES, PREFIX, RedisHarness, RedisStore};
use stores::{QuorumStores, with_quorum};

conformance_tests::suite!(QuorumHarness);

/// The servers of all cases that are not alone.
static SHARED: LazyLock<[RedisServer; 3]> =
    LazyLock::new(|| [(); 3].map(|()| RedisServer::start_with(&["--databases", &DATABASES.to_string()])));

static STORES: AtomicU64 = AtomicU64::new(0);

struct QuorumHarness;

#[async_trait]
impl Harness for QuorumHarness {
    fn name(&self) -> &'static str {
        "quorum-redis"
    }

    fn registry(&self) -> Registry {
        with_quorum(RedisHarness.registry())
    }

    async fn store(&self) -> Box<dyn Store> {
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        let member = |server: &RedisServer| Box::new(RedisStore::at(server.address(), number, None)) as Box<dyn Store>;
        Box::new(QuorumStores { members: SHARED.iter().map(member).collect(), prefix: PREFIX })
    }

    async fn store_alone(&self) -> Box<dyn Store> {
        let member = |()| {
            let server = RedisServer::start();
            Box::new(RedisStore::at(server.address(), 0, Some(server))) as Box<dyn Store>
        };
        Box::new(QuorumStores { members: [(); 3].map(member).into(), prefix: PREFIX })
    }
}
