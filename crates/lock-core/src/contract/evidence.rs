//! What in a store stands as long as a grant.

use std::fmt;

/// A key or a node of the store that is there as long as a grant stands: renewals leave it as it is, and no other grant
/// has the same one. A transaction of the application's own in that store can demand it, so that the store itself
/// refuses who has lost the lock: see the crate `lock-fence`.
///
/// A backend makes it where something in the store is the hold; of several permits there may be one each. Tasks between
/// which a grant is handed over in the process have the same one, and so has a hold that is
/// [kept](crate::DistributedLock::keep), if the store leaves it where it is.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Evidence {
    backend: &'static str,
    place: String,
    number: u64,
}

impl Evidence {
    /// What is at this place in a store of this [backend](crate::Capabilities::backend), and has this number of its
    /// creation.
    pub fn new(backend: &'static str, place: impl Into<String>, number: u64) -> Self {
        Self { backend, place: place.into(), number }
    }

    /// The name of the backend, as in its URL.
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// Its place: the name of a key, or the path of a node from the store's root.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The number of its creation, which nothing has that was at this place before or comes there later. What it counts
    /// is up to the backend: etcd's are create revisions.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Without the place, which may have the owner in it.
impl fmt::Debug for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, number, .. } = self;
        f.debug_struct("Evidence").field("backend", backend).field("number", number).finish_non_exhaustive()
    }
}
