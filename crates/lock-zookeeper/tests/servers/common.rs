//! What the tests with servers share.

use std::time::Duration;

/// Never over while a test runs.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// For what needs no lease's end.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, future).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
