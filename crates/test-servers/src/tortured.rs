//! The servers as the torture sees them: each process of a store by itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use conformance_tests::torture::{self, Blow};
use nix::sys::signal::Signal;

use crate::process::Process;

/// What runs a store: one process, or several that know each other.
pub(crate) trait Store: Send + 'static {
    /// What its processes end in good order for.
    const GOODBYE: Signal = Signal::SIGTERM;

    /// Where each process listens.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// Does it know all that it had confirmed after it is started again?
    fn keeps(&self) -> bool {
        true
    }

    fn process(&mut self, number: usize) -> &mut Process;

    /// Starts a process that ended, at the same place. One of several is not waited for: the others that it needs may
    /// be paused.
    fn start_again(&mut self, number: usize);

    /// See [`torture::Server::suffers`].
    fn suffers(&self, blow: Blow) -> bool {
        blow == Blow::FullDisk && self.keeps()
    }

    /// See [`torture::Server::strike`].
    fn strike(&mut self, _number: usize, _blow: Blow) {}

    /// See [`torture::Server::relieve`].
    fn relieve(&mut self, _number: usize, _blow: Blow) {}
}

/// Its processes one by one, to be tortured.
pub(crate) fn apart(store: impl Store) -> Vec<Box<dyn torture::Server>> {
    let count = store.addresses().len();
    let store = Arc::new(Mutex::new(store));
    let member = |number| Box::new(Member { store: Arc::clone(&store), number }) as Box<dyn torture::Server>;
    (0..count).map(member).collect()
}

/// One process of a store.
struct Member<S> {
    store: Arc<Mutex<S>>,
    number: usize,
}

impl<S: Store> Member<S> {
    fn store(&self) -> MutexGuard<'_, S> {
        self.store.lock().expect("no panic")
    }
}

impl<S: Store> torture::Server for Member<S> {
    fn address(&self) -> SocketAddr {
        self.store().addresses()[self.number]
    }

    fn keeps(&self) -> bool {
        self.store().keeps()
    }

    fn pause(&mut self) {
        self.store().process(self.number).pause();
    }

    fn resume(&mut self) {
        self.store().process(self.number).resume();
    }

    fn kill(&mut self) {
        self.store().process(self.number).kill();
    }

    fn shut_down(&mut self) {
        self.store().process(self.number).ask_to_end(S::GOODBYE);
        // For that it may need others who are paused, and they the store to go on.
        while self.store().process(self.number).lives() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn start(&mut self) {
        self.store().start_again(self.number);
    }

    fn suffers(&self, blow: Blow) -> bool {
        self.store().suffers(blow)
    }

    fn strike(&mut self, blow: Blow) {
        match blow {
            Blow::FullDisk => self.store().process(self.number).may_write(false),
            _ => self.store().strike(self.number, blow),
        }
    }

    fn relieve(&mut self, blow: Blow) {
        if blow != Blow::FullDisk {
            return self.store().relieve(self.number, blow);
        }
        let mut store = self.store();
        store.process(self.number).may_write(true);
        if !store.process(self.number).lives() {
            store.start_again(self.number);
        }
    }
}
