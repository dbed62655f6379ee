//! What one script looks at, of many locks.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};

/// How many locks one script looks at: no other request is done meanwhile.
const AT_ONCE: usize = 100;

/// The places of those that one script can look at: in one slot, and not too many.
pub(crate) fn together<T, S: Ord>(items: &[T], slot: impl Fn(&T) -> S) -> Vec<Vec<usize>> {
    let mut slots: BTreeMap<S, Vec<usize>> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        slots.entry(slot(item)).or_default().push(at);
    }
    slots.values().flat_map(|places| places.chunks(AT_ONCE)).map(<[usize]>::to_vec).collect()
}

pub(crate) async fn in_time<T>(limit: Duration, future: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::new(ErrorKind::Unknown, "a node of the cluster does not answer in time");
    tokio::time::timeout(limit, future).await.map_err(late)?
}
