//! Marks that several servers share, and those that cannot be asked.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use lock_core::{Error, ErrorKind, Result};
use lock_fence::http::{CheckLayer, FENCING_TOKEN};
use lock_fence::{Access, Marks, MemoryMarks, SqlMarks, sql};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{Executor, Sqlite, SqlitePool};
use tower::{Layer, ServiceExt, service_fn};

use crate::site::Site;

async fn pool(folder: &tempfile::TempDir) -> SqlitePool {
    let file = SqliteConnectOptions::new().filename(folder.path().join("marks.db")).create_if_missing(true);
    SqlitePool::connect_with(file.journal_mode(SqliteJournalMode::Wal)).await.unwrap()
}

#[tokio::test]
async fn two_servers_share_the_marks_of_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = [pool(&folder).await, pool(&folder).await];
    one.execute(sql::schema::<Sqlite>()).await.unwrap();
    let first = Site::serve(CheckLayer::new(SqlMarks::new(one.clone()))).await;
    let second = Site::serve(CheckLayer::new(SqlMarks::new(other))).await;
    first.put("/a", "7").await.is_done();
    second.put("/a", "9").await.is_done();
    first.put("/a", "7").await.is_stale("/a", 7, 9);
    first.send(Method::GET, "/a", &["8;shared"]).await.is_stale("/a", 8, 9);
    first.put("/a", "9").await.is_done();
    // Slots, of which one is stale: the marks of both stay.
    first.put("/b", "9;slot=1").await.is_done();
    second.put("/b", "7;slot=0;slot=1").await.is_stale("/b", 7, 9);
    second.put("/b", "5;slot=0").await.is_done();
    second.put("/b", "10;slot=0;slot=1").await.is_done();
    first.put("/b", "9;slot=0").await.is_stale("/b", 9, 10);
    // The check with the data goes by the same marks.
    let mut tx = one.begin().await.unwrap();
    let late = sql::check(&mut tx, ("/a", 8)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Stale);
}

#[tokio::test]
async fn without_a_table_nothing_passes() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::serve(CheckLayer::new(SqlMarks::new(pool(&folder).await))).await;
    let answer = site.put("/a", "7").await;
    answer.is_refused(StatusCode::INTERNAL_SERVER_ERROR, "cannot be checked");
    assert!(!answer.text.contains("oarlock_fence"), "what the store says is not for clients");
    assert_eq!(site.seen(), []);
}

/// Marks whose store always fails so.
struct Failing(ErrorKind);

impl Marks for Failing {
    async fn check(&self, _: &Access) -> Result<()> {
        Err(Error::new(self.0, "a secret of the store"))
    }
}

#[tokio::test]
async fn what_cannot_be_checked_does_not_pass_and_may_be_sent_again() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Unknown, ErrorKind::Conflict] {
        let called = Arc::new(Mutex::new(false));
        let calls = Arc::clone(&called);
        let inner = service_fn(move |_: Request<Body>| {
            *calls.lock().unwrap() = true;
            async { Ok::<_, Error>(Response::new(Body::empty())) }
        });
        let request = Request::put("/a").header(FENCING_TOKEN, "7").body(Body::empty()).unwrap();
        let response = CheckLayer::new(Failing(kind)).layer(inner).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.extensions().get::<Error>().unwrap().kind(), kind, "it is there for layers that log");
        assert!(!*called.lock().unwrap());
    }
}

/// The layers of several routes may share marks.
#[tokio::test]
async fn marks_may_be_shared_in_the_process() {
    let marks = Arc::new(MemoryMarks::new());
    let first = Site::serve(CheckLayer::new(Arc::clone(&marks))).await;
    let second = Site::serve(CheckLayer::new(marks)).await;
    first.put("/a", "9").await.is_done();
    second.put("/a", "7").await.is_stale("/a", 7, 9);
}
