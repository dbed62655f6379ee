//! Who may take a lock again that it has.

use std::sync::Arc;

/// Makes acquisitions re-entrant: who holds a lock through an [`Owner`] gets it again through the same one, at once and
/// without a request, with the same fencing token. It is released when the last of the guards goes.
///
/// Tasks are not threads, so re-entrancy is never guessed: hand the owner to whoever may come in again. A clone is the
/// same owner. An owner means something inside its process only, to the [`Locks`](crate::Locks) that it is used with
/// and their clones.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
/// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
/// let owner = lock_core::Owner::new();
/// let outer = locks.mutex("orders/42").owner(&owner).lock().await?;
/// let inner = locks.mutex("orders/42").owner(&owner).lock().await?;
/// assert_eq!(inner.fencing_token(), outer.fencing_token());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Owner(Arc<Identity>);

/// Not of size zero, so that no two have one address.
#[derive(Debug, Default)]
struct Identity(#[allow(dead_code, reason = "only its address counts")] u8);

impl Owner {
    /// An owner like no other.
    pub fn new() -> Self {
        Self::default()
    }

    /// What tells it from every other that there is.
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}
