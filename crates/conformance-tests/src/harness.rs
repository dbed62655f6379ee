//! What a backend's author provides: how to make a fresh store, and ways to break it.

use std::sync::Arc;

use crate::proxy::Proxy;
use async_trait::async_trait;
use lock_core::{DistributedLock, LockName, Registry};

/// One backend as the suite sees it. Every case gets a [`Store`] of its own.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// The backend's name. Its trials are called `name::case`.
    fn name(&self) -> &'static str;

    /// The cases that this backend does not pass, each with the reason. They are listed with it, not left out.
    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The registry by which a worker process connects to [`Store::url`].
    fn registry(&self) -> Registry {
        Registry::new()
    }

    /// Makes a fresh, empty store. What cannot be made panics: a server that is missing is a failure.
    ///
    /// Its server may be that of other stores too, as long as no [`Fault`] at one is felt at another.
    async fn store(&self) -> Box<dyn Store>;

    /// A fresh, empty store whose server no other store uses, for cases with [`Fault::Restart`] and
    /// [`Fault::ReplaceStore`]. To be written where [`store`](Self::store) shares servers.
    async fn store_alone(&self) -> Box<dyn Store> {
        self.store().await
    }
}

/// A store, its clients and the ways to break it. Dropping it removes it.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// A new client, independent of all others.
    async fn connect(&self) -> Arc<dyn DistributedLock>;

    /// The same for a client that soon takes a server for gone that does not answer, where others have patience with a busy
    /// machine.
    async fn connect_impatient(&self) -> Arc<dyn DistributedLock> {
        self.connect().await
    }

    /// How another process connects to the same store; `None` if none can.
    fn url(&self) -> Option<String>;

    /// The URL of a store of this kind that is not there; `None` if it always is.
    fn url_of_nothing(&self) -> Option<String> {
        None
    }

    /// The whole owner id that the store keeps for this lock, read by other means than the backend under test.
    async fn raw_holder(&self, name: &LockName) -> Option<String>;

    /// How many connections were made so far to each server of the store, if they can be swallowed one by one.
    fn connections(&self) -> Vec<u64> {
        Vec::new()
    }

    /// So many connections at least has a client that waits.
    fn waits_over(&self) -> usize {
        1
    }

    /// Does this to the store, and answers [`NotOffered`] if it has no way to: then the cases that need it have to be
    /// [declared](Harness::declared).
    async fn inject(&self, fault: Fault) -> Result<(), NotOffered>;
}

/// What can be done to a store. More may come: what a harness does not know, it does not offer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// From now on requests wait in front of the store, neither done nor answered.
    HoldRequests,
    /// The same for what goes over connections that are there now; over later ones requests are done.
    HoldRequestsOfPresent,
    /// The requests that wait go on, in their order, and later ones do not wait.
    ReleaseRequests,
    /// From now on requests are done and their answers wait.
    HoldAnswers,
    /// The answers that wait go on, in their order, and later ones do not wait.
    ReleaseAnswers,
    /// A connection to this server, with this number, swallows whatever is sent over it, either way, and neither side is
    /// told; others work. Both are counted from 0, as by [`Store::connections`]. Undone by [`Fault::ReleaseRequests`].
    Swallow(usize, u64),
    /// The connection to this server with this number ends for the server, and its client is not told; others work.
    Forget(usize, u64),
    /// Every connection breaks, and there is no other until [`Fault::ReleaseRequests`].
    CutOff,
    /// Somebody removes what the store keeps of this lock's holder, with the store's own tools and without waking anybody.
    /// Whoever waits stays in line.
    DeleteHold(LockName),
    /// The store's server dies without warning and is started again, with what it keeps; it answers when this is done.
    /// Asked of [stores that are alone](Harness::store_alone).
    Restart,
    /// Everything the store keeps is replaced by an empty store, under the feet of those connected. Asked of
    /// [stores that are alone](Harness::store_alone).
    ReplaceStore,
    /// The lock's next token will be above this number.
    RaiseToken(LockName, u64),
    /// Something that is no lock of ours is put at the lock's place.
    PutForeign(LockName),
}

impl Fault {
    /// Does it if it is one of the network, by the proxies in front of the servers, in the order of these; else it is given
    /// back.
    ///
    /// # Panics
    /// If a connection to a server is meant that has no proxy.
    pub fn strike<'p>(self, proxies: impl IntoIterator<Item = &'p Proxy>) -> Option<Self> {
        let mut proxies = proxies.into_iter();
        match self {
            Self::HoldRequests => proxies.for_each(Proxy::hold_c2s),
            Self::HoldRequestsOfPresent => proxies.for_each(Proxy::hold_c2s_of_present),
            Self::HoldAnswers => proxies.for_each(Proxy::hold_s2c),
            Self::Swallow(server, number) => proxies.nth(server).expect("a proxy for each server").swallow(number),
            Self::Forget(server, number) => proxies.nth(server).expect("a proxy for each server").forget(number),
            Self::CutOff => proxies.for_each(Proxy::cut),
            Self::ReleaseRequests | Self::ReleaseAnswers => proxies.for_each(Proxy::forward),
            other => return Some(other),
        }
        None
    }
}

/// The harness has no way to do this to its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOffered;
