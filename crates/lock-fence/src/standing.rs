//! What of a lease the lock's own store can be asked for.

use lock_core::{Error, ErrorKind, Evidence, Lease, Result};

/// All that stands in this store as long as the lease's hold, if the lease is in order now. The name is for the error.
pub(crate) fn evidence<'a>(lease: &'a Lease, backend: &'static str, store: &str) -> Result<Vec<&'a Evidence>> {
    let found = lease.check().and_then(|()| {
        let found: Vec<_> = lease.evidence().iter().filter(|evidence| evidence.backend() == backend).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let message = format!(
            "this lock is not in {store}, so {store} cannot tell whether it is held; take it in {store}, or keep the \
             highest fencing token with the data and compare it"
        );
        Err(Error::new(ErrorKind::Unsupported, message))
    });
    found.map_err(|error| error.with_context("fence", backend, Some(lease.name())))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lock_core::{Locks, memory::MemoryLock};

    use super::*;

    #[tokio::test]
    async fn a_lease_of_another_store_and_one_that_is_over_are_errors() {
        let locks = Locks::new(Arc::new(MemoryLock::new()));
        let guard = locks.mutex("orders/42").lock().await.unwrap();
        let error = evidence(&guard, "etcd", "etcd").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("take it in etcd"), "{error}");
        assert_eq!(error.name(), Some(guard.name()));
        let lease = guard.lease();
        guard.unlock().await.unwrap();
        assert_eq!(evidence(&lease, "etcd", "etcd").unwrap_err().kind(), ErrorKind::Lost);
    }
}
