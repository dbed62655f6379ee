//! The suite on the in-memory backend.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::memory::{MemoryLock, MemoryScript};
use lock_core::{DistributedLock, LockName, StoreToken};

conformance_tests::suite!(MemoryHarness);

pub(crate) struct MemoryHarness;

#[async_trait]
impl Harness for MemoryHarness {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        const PROCESS: &str = "its locks are those of one process";
        &[
            ("excl_processes", PROCESS),
            ("holder_killed", PROCESS),
            ("waiter_killed", PROCESS),
            ("a_waiting_writer_is_killed", PROCESS),
            ("fenced_counter_pause", PROCESS),
            ("lost_after_sigstop", PROCESS),
            ("torture", PROCESS),
            ("client_wall_moved", "it reads no wall clock, and one process has only one"),
            ("writer_stopped", "a stall by its script is without end, so that tests decide when it ends"),
            ("restarted_while_held", "a map dies with its process"),
            ("kept_hold_survives_a_restart", "a map dies with its process"),
            ("outage_while_waiting", "a map is never away"),
            ("any_connection_swallowed", "a map has no connections"),
            ("restarted_with_waiters", "a map dies with its process"),
            ("store_replaced", "a map cannot be replaced"),
            ("store_down_at_start", "a map is always there"),
            ("request_held_back", "store and clients go by one clock and count from the grant itself"),
            ("answer_held_back", "nothing carries its answers"),
            ("late_acquire_lands_after_reconnect", "it has no connections of which some could be held"),
            ("drop_every_verb_answer_held", "nothing carries its answers"),
            ("foreign_value", "a map of holders holds nothing else"),
        ]
    }

    async fn store(&self) -> Box<dyn Store> {
        Box::new(MemoryStore { store: MemoryLock::new(), clients: Mutex::default() })
    }
}

struct MemoryStore {
    store: MemoryLock,
    /// A stall is one client's.
    clients: Mutex<Vec<MemoryScript>>,
}

#[async_trait]
impl Store for MemoryStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        let client = self.store.client();
        self.clients.lock().unwrap().push(client.script());
        Arc::new(client)
    }

    fn url(&self) -> Option<String> {
        None
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let status = self.store.inspect(name).await.unwrap();
        status.into_holder().map(|holder| holder.owner.as_str().to_owned())
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        match fault {
            Fault::HoldRequests => self.clients.lock().unwrap().iter().for_each(MemoryScript::stall),
            Fault::ReleaseRequests => self.clients.lock().unwrap().iter().for_each(MemoryScript::resume),
            Fault::RaiseToken(name, above) => {
                self.store.raise_tokens(&name, StoreToken::new(above).unwrap()).await.unwrap();
            }
            Fault::DeleteHold(name) => drop(self.store.script().lose(name.as_str())),
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
