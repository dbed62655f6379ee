//! What a client sends, and what it hears of a refusal.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Method;
use lock_core::memory::MemoryLock;
use lock_core::{ErrorKind, Locks};
use lock_fence::http::{CheckLayer, FENCING_TOKEN, TokenLayer, check_response};
use lock_fence::{Access, MemoryMarks, Stale};
use tower::{Layer, ServiceExt};

use crate::site::{Site, heard};

async fn site() -> Site {
    Site::serve(CheckLayer::new(MemoryMarks::new())).await
}

#[tokio::test]
async fn a_lease_is_sent_as_it_is_held() {
    let site = site().await;
    let locks = Locks::new(Arc::new(MemoryLock::new()));
    let alone = locks.mutex("orders/42").lock().await.unwrap();
    let shared = locks.rw_lock("catalog").unwrap().read().await.unwrap();
    let permits = locks.semaphore("exports", 5).unwrap().acquire_many(2).await.unwrap();
    for guard in [&alone, &shared, &permits] {
        let client = TokenLayer::new(guard).layer(site.client.clone());
        // It takes the place of one that is there.
        let mut request = site.request(Method::PUT, "/a");
        request.headers_mut().insert(FENCING_TOKEN, "1".parse().unwrap());
        let answer = heard(client.oneshot(request).await.unwrap().map(Body::new)).await;
        answer.is_done();
        let seen = site.seen().pop().unwrap().unwrap();
        let sent = Access::from(guard);
        assert_eq!((seen.token(), seen.is_shared(), seen.slots()), (sent.token(), sent.is_shared(), sent.slots()));
    }
}

#[tokio::test]
async fn a_refusal_is_an_error_of_the_lock() {
    let site = site().await;
    let [early, late] = [7_u64, 9].map(|token| Access::new("orders/42", token).unwrap());
    let write = async |access: &Access| {
        let client = TokenLayer::new(access).layer(site.client.clone());
        let response = client.oneshot(site.request(Method::PUT, "/a")).await.unwrap();
        check_response(access, response.status(), response.headers())
    };
    write(&early).await.unwrap();
    write(&late).await.unwrap();
    let error = write(&early).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale);
    let stale = Stale { resource: "orders/42".to_owned(), presented: 7, newest: 9 };
    assert_eq!(Stale::of(&error), Some(&stale));
}
