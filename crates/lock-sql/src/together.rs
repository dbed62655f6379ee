//! What is done with some of several locks if not all of them could be had at once.

use futures_util::future::join_all;
use lock_core::{Error, Result, Unlocked};

/// There is no grant when these releases are done.
///
/// # Errors
/// If one is not done: the caller then releases all.
pub(crate) async fn given_back<T>(
    releases: impl IntoIterator<Item = impl Future<Output = Result<Unlocked>>>,
) -> Result<Option<T>> {
    let given_back: Result<Vec<_>> = join_all(releases).await.into_iter().collect();
    given_back.map(|_| None).map_err(Error::after_something_was_done)
}
