//! The same application on every store: nothing of it but the URL changes.

use std::time::Duration;

use oarlock::{Config, ErrorKind};

use crate::scheduled_job;

/// For what needs no lease's end.
const BOUND: Duration = Duration::from_secs(20);

/// What an application does, in two processes' stead.
async fn application(url: &str) -> oarlock::Result<()> {
    let (locks, rival) = (oarlock::connect(url).await?, oarlock::connect(url).await?);

    let guard = locks.mutex("orders/42").wait(BOUND).lock().await?;
    let first = guard.fencing_token();
    assert!(rival.mutex("orders/42").try_lock().await?.is_none());
    let late = rival.mutex("orders/42").wait(Duration::from_millis(50)).lock().await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout);
    assert_eq!(guard.run(async { 42 }).await?, 42);

    let waiting = tokio::spawn({
        let mutex = rival.mutex("orders/42").fair(true).wait(BOUND);
        async move { mutex.lock().await }
    });
    while rival.inspect("orders/42").await?.waiters.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    guard.unlock().await?;
    let guard = waiting.await.unwrap()?;
    assert!(guard.is_held() && guard.fencing_token() > first);
    assert_eq!(locks.evict("orders/42").await?.unwrap().owner, *guard.owner());
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);

    drop(rival.mutex("orders/43").lock().await?);
    for locks in [locks, rival] {
        assert!(locks.shutdown(BOUND).await.unreleased.is_empty());
    }
    Ok(())
}

/// The application, and the first example.
pub(crate) async fn works(url: &str) {
    let working = tokio::time::timeout(BOUND * 2, application(url));
    working.await.expect("in time").unwrap_or_else(|error| panic!("{error:?}"));
    scheduled_job::demo(Config::from_url(url).unwrap()).await.unwrap();
}
