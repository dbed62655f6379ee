//! Counters behind a server for HTTP, which has the layer of `fence::http` in front.
//!
//! - `GET /LOCK/RESOURCE` reads the counter, and `PUT /LOCK/RESOURCE/VALUE` sets it; both with a token.
//! - `GET /log/RESOURCE` answers the log, without a token.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Extension, Json, Router};
use conformance_tests::protected::{Protected, Shown, Wanted};
use conformance_tests::resource::{Access, Kind};
use oarlock::fence::http::{CheckLayer, FENCING_TOKEN, Required, check_response, value};
use oarlock::fence::{self, Marks, MemoryMarks};
use oarlock::{ErrorKind, Result};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The scheme of a server whose layer refuses nobody.
pub(super) const UNCHECKED: &str = "unchecked";

/// Marks that are none: what a resource is without a check, so that the oracle has something to find.
struct NoMarks;

impl Marks for NoMarks {
    async fn check(&self, _: &fence::Access) -> Result<()> {
        Ok(())
    }
}

/// What came of accesses to each resource: kind, token and value.
type Logs = Arc<Mutex<HashMap<String, Vec<(Kind, u64, u64)>>>>;

/// The server, in a thread of its own until it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    scheme: &'static str,
    _end: oneshot::Sender<()>,
}

impl Server {
    pub(super) async fn start(checks: bool) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let app = if checks { app(MemoryMarks::new()) } else { app(NoMarks) };
        let (end, ended) = oneshot::channel::<()>();
        // It has one thread, and from the check to the answer it waits for nothing. So the check and the access are one
        // step, and the layer alone has to keep late holders out.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("it is not blocking");
                tokio::select! {
                    done = axum::serve(listener, app) => done.expect("it goes on for ever"),
                    _ = ended => {}
                }
            });
        });
        Ok(Self { address, scheme: if checks { "http" } else { UNCHECKED }, _end: end })
    }

    pub(super) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }
}

fn app<M: Marks + 'static>(marks: M) -> Router {
    // The lock of `/LOCK/RESOURCE`; nothing protects the log.
    let lock = |path: &str| path.split('/').nth(1).filter(|lock| *lock != "log").map(str::to_owned);
    let check = CheckLayer::new(marks).required(Required::Always).named(move |request| lock(request.uri.path()));
    Router::new()
        .route("/log/{resource}", get(log))
        .route("/{lock}/{resource}", get(read))
        .route("/{lock}/{resource}/{value}", axum::routing::put(write))
        .layer(check)
        .with_state(Logs::default())
}

async fn log(State(logs): State<Logs>, Path(resource): Path<String>) -> Json<Vec<(Kind, u64, u64)>> {
    let logs = logs.lock().unwrap_or_else(PoisonError::into_inner);
    Json(logs.get(&resource).cloned().unwrap_or_default())
}

async fn read(
    State(logs): State<Logs>,
    Extension(access): Extension<fence::Access>,
    Path((_, resource)): Path<(String, String)>,
) -> String {
    let kind = if access.is_shared() { Kind::Share } else { Kind::Read };
    put_down(&logs, resource, &access, kind, None).to_string()
}

async fn write(
    State(logs): State<Logs>,
    Extension(access): Extension<fence::Access>,
    Path((_, resource, value)): Path<(String, String, u64)>,
) -> String {
    put_down(&logs, resource, &access, Kind::Write, Some(value)).to_string()
}

/// Puts down an access. Answers the value after it, which is this one if there is one.
fn put_down(logs: &Logs, resource: String, access: &fence::Access, kind: Kind, value: Option<u64>) -> u64 {
    let mut logs = logs.lock().unwrap_or_else(PoisonError::into_inner);
    let log = logs.entry(resource).or_default();
    let value = value.or(log.last().map(|(_, _, value)| *value)).unwrap_or_default();
    log.push((kind, access.token(), value));
    value
}

/// The client.
pub(super) struct Counters {
    url: String,
    client: reqwest::Client,
}

impl Counters {
    /// At a server with this URL.
    pub(super) fn open(url: &str) -> Box<dyn Protected> {
        let url = url.replacen(UNCHECKED, "http", 1);
        Box::new(Self { url, client: reqwest::Client::new() })
    }
}

#[async_trait]
impl Protected for Counters {
    async fn access(&self, resource: &str, shown: &Shown, wanted: Wanted) -> io::Result<Option<u64>> {
        let (access, url) = (super::access(shown)?, format!("{}/{}/{resource}", self.url, shown.lock));
        let request = match wanted {
            Wanted::Write(value) => self.client.put(format!("{url}/{value}")),
            Wanted::Read | Wanted::Share => self.client.get(url),
        };
        let sent = request.header(FENCING_TOKEN, value(&access)).send().await;
        let response = sent.map_err(io::Error::other)?;
        match check_response(&access, response.status(), response.headers()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Stale => return Ok(None),
            Err(error) => return Err(io::Error::other(error)),
        }
        let text = response.error_for_status().map_err(io::Error::other)?.text().await.map_err(io::Error::other)?;
        text.parse().map(Some).map_err(io::Error::other)
    }

    async fn log(&self, resource: &str) -> io::Result<Vec<Access>> {
        let sent = self.client.get(format!("{}/log/{resource}", self.url)).send().await;
        let response = sent.and_then(reqwest::Response::error_for_status).map_err(io::Error::other)?;
        let body = response.bytes().await.map_err(io::Error::other)?;
        let accesses: Vec<(Kind, u64, u64)> = serde_json::from_slice(&body).map_err(io::Error::other)?;
        Ok(super::log(accesses))
    }
}
