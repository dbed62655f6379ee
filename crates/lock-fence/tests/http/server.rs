//! What a server lets through.

use axum::http::{Method, StatusCode};
use lock_fence::http::{CheckLayer, Required};
use lock_fence::{Access, MemoryMarks};

use crate::site::Site;

async fn site() -> Site {
    Site::serve(CheckLayer::new(MemoryMarks::new())).await
}

#[tokio::test]
async fn a_writer_that_was_paused_is_refused() {
    let site = site().await;
    for token in ["7", "7", "9"] {
        site.put("/orders/42", token).await.is_done();
    }
    site.put("/orders/42", "7").await.is_stale("/orders/42", 7, 9);
    site.put("/orders/42?force=1", "8").await.is_stale("/orders/42", 8, 9);
    // Its neighbour has a lock of its own.
    site.put("/orders/43", "7").await.is_done();
    let seen: Vec<_> = site.seen().into_iter().flatten().map(|access| access.token()).collect();
    assert_eq!(seen, [7, 7, 9, 7], "the application sees nothing that is refused");
}

#[tokio::test]
async fn readers_are_refused_after_a_later_writer_alone() {
    let site = site().await;
    site.put("/catalog", "5").await.is_done();
    for reader in ["9;shared", "6;shared", "5;shared"] {
        site.send(Method::GET, "/catalog", &[reader]).await.is_done();
    }
    site.put("/catalog", "8").await.is_done();
    site.send(Method::GET, "/catalog", &["7;shared"]).await.is_stale("/catalog", 7, 8);
    site.send(Method::GET, "/catalog", &["9;shared"]).await.is_done();
    assert_eq!(site.seen()[1], Some(Access::new("/catalog", 9_u64).unwrap().shared()));
}

#[tokio::test]
async fn each_slot_has_a_mark() {
    let site = site().await;
    site.put("/exports", "9;slot=1").await.is_done();
    site.put("/exports", "7;slot=0").await.is_done();
    site.put("/exports", "8;slot=1").await.is_stale("/exports", 8, 9);
    site.put("/exports", "8;slot=0;slot=1").await.is_stale("/exports", 8, 9);
    // That has raised no mark of the two.
    site.put("/exports", "7;slot=0").await.is_done();
    assert_eq!(site.seen()[0], Some(Access::new("/exports", 9_u64).unwrap().with_slots([1])));
}

/// A holder that has read is as safe as one that has written.
#[tokio::test]
async fn a_read_with_a_token_raises_the_mark() {
    let site = site().await;
    site.put("/a", "7").await.is_done();
    site.send(Method::GET, "/a", &["9"]).await.is_done();
    site.put("/a", "7").await.is_stale("/a", 7, 9);
}

#[tokio::test]
async fn a_missing_token_is_refused_where_it_is_required() {
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS];
    let writes = [Method::PUT, Method::POST, Method::PATCH, Method::DELETE];
    for (required, may_read, may_write) in
        [(Required::Writes, true, false), (Required::Always, false, false), (Required::Never, true, true)]
    {
        let site = Site::serve(CheckLayer::new(MemoryMarks::new()).required(required)).await;
        for (methods, may) in [(&reads[..], may_read), (&writes[..], may_write)] {
            for method in methods {
                let answer = site.send(method.clone(), "/a", &[]).await;
                let expected = if may { StatusCode::OK } else { StatusCode::PRECONDITION_REQUIRED };
                assert_eq!(answer.status, expected, "{required:?} {method}");
            }
        }
        assert!(site.seen().iter().all(Option::is_none), "without a token there is no access");
        // What is there is checked in any case.
        site.put("/a", "9").await.is_done();
        site.put("/a", "7").await.is_stale("/a", 7, 9);
    }
    let answer = site().await.send(Method::PUT, "/a", &[]).await;
    answer.is_refused(StatusCode::PRECONDITION_REQUIRED, "send its token in the header Fencing-Token");
}

#[tokio::test]
async fn a_malformed_token_is_refused() {
    let site = site().await;
    for tokens in
        [&[""][..], &["x"], &["-7"], &["7;slot=x"], &["7;shared;slot=1"], &["9223372036854775808"], &["7", "7"]]
    {
        for method in [Method::PUT, Method::GET] {
            let answer = site.send(method, "/a", tokens).await;
            answer.is_refused(StatusCode::BAD_REQUEST, "send it once, as 7, 7;shared or 7;slot=2");
        }
    }
    let long = format!("/{}", "a".repeat(600));
    site.put(&long, "7").await.is_refused(StatusCode::BAD_REQUEST, "cannot be the name of a lock");
    assert_eq!(site.seen(), []);
}

/// The function that names a resource decides which requests share a lock, and which have none.
#[tokio::test]
async fn a_resource_is_called_as_the_application_says() {
    let check = CheckLayer::new(MemoryMarks::new()).named(|request| {
        let first = request.uri.path().split('/').nth(1)?;
        (first != "health").then(|| first.to_owned())
    });
    let site = Site::serve(check).await;
    site.put("/orders/42", "9").await.is_done();
    site.put("/orders/43/items", "7").await.is_stale("orders", 7, 9);
    site.put("/users/1", "7").await.is_done();
    // No lock protects it.
    site.send(Method::POST, "/health", &[]).await.is_done();
    site.put("/health", "9").await.is_done();
    site.put("/health", "7").await.is_done();
}
