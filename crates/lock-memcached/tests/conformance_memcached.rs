//! The suite on real servers, one for each case.

mod common;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use common::{Raw, used};
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_memcached::{MemcachedFactory, MemcachedLock};
use test_servers::{MemcachedServer, Proxy};

conformance_tests::suite!(MemcachedHarness);

struct MemcachedHarness;

#[async_trait]
impl Harness for MemcachedHarness {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        &[
            (
                "any_connection_swallowed",
                "it has no line in which a waiter could be seen; `servers` has a test of its own",
            ),
            ("tokens_rise_over_stores", "its clock tells whole seconds, and so do its tokens"),
            ("kept_hold_survives_a_restart", "it forgets all locks when it is restarted"),
        ]
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(MemcachedFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        let server = used(MemcachedServer::start_with(&["-M"]), PREFIX);
        Box::new(MemcachedStore { proxy: Proxy::new(server.address()), server: Mutex::new(server) })
    }
}

const PREFIX: &str = "case";

struct MemcachedStore {
    proxy: Proxy,
    server: Mutex<MemcachedServer>,
}

impl MemcachedStore {
    /// Past the proxy.
    fn raw<T>(&self, ask: impl FnOnce(&MemcachedServer) -> T) -> T {
        ask(&self.server.lock().unwrap())
    }
}

#[async_trait]
impl Store for MemcachedStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        let url = format!("memcached://{}", self.proxy.address());
        Arc::new(MemcachedLock::connect(&url, PREFIX).await.unwrap())
    }

    fn url(&self) -> Option<String> {
        Some(format!("memcached://{}?prefix={PREFIX}", self.proxy.address()))
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("memcached://127.0.0.1:1".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        self.raw(|server| server.holder(PREFIX, name))
    }

    fn connections(&self) -> Vec<u64> {
        vec![self.proxy.connections()]
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        let Some(fault) = fault.strike([&self.proxy]) else { return Ok(()) };
        match fault {
            Fault::DeleteHold(name) => self.raw(|server| {
                assert_eq!(server.ask(&format!("delete {}", server.key(PREFIX, &name).unwrap())), "DELETED");
            }),
            Fault::Restart => self.server.lock().unwrap().restart(),
            Fault::ReplaceStore => self.raw(|server| assert_eq!(server.ask("flush_all"), "OK")),
            Fault::RaiseToken(_, above) => self.raw(|server| server.tokens_above(PREFIX, above)),
            Fault::PutForeign(name) => self.raw(|server| {
                let key = format!("{PREFIX}:{name}");
                assert_eq!(server.ask(&format!("set {key} 0 0 7\r\nno lock")), "STORED");
            }),
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
