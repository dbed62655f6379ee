//! A server with the check, and a client of it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use lock_fence::http::{CheckLayer, FENCING_TOKEN, NEWEST_TOKEN};
use lock_fence::{Access, Marks};
use tokio::net::TcpListener;
use tower::service_fn;

/// It ends with the test's runtime.
pub(crate) struct Site {
    address: SocketAddr,
    pub(crate) client: Client<HttpConnector, Body>,
    /// The accesses that came through, as the application saw them.
    seen: Arc<Mutex<Vec<Option<Access>>>>,
}

/// What a client hears.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) newest: Option<String>,
    pub(crate) text: String,
}

impl Site {
    pub(crate) async fn serve<M: Marks + 'static>(check: CheckLayer<M>) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = Arc::clone(&seen);
        let service = service_fn(move |request: Request| {
            sees.lock().unwrap().push(request.extensions().get::<Access>().cloned());
            async { Ok::<_, Infallible>(Response::new(Body::from("done"))) }
        });
        Self::run(Router::new().fallback_service(service).layer(check), seen).await
    }

    async fn run(app: Router, seen: Arc<Mutex<Vec<Option<Access>>>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, client: Client::builder(TokioExecutor::new()).build_http(), seen }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> Request {
        let uri = format!("http://{}{path}", self.address);
        Request::builder().method(method).uri(uri).body(Body::empty()).unwrap()
    }

    /// Sends a request with these values of the header.
    pub(crate) async fn send(&self, method: Method, path: &str, tokens: &[&str]) -> Answer {
        let mut request = self.request(method, path);
        for token in tokens {
            request.headers_mut().append(FENCING_TOKEN, token.parse().unwrap());
        }
        heard(self.client.request(request).await.unwrap().map(Body::new)).await
    }

    pub(crate) async fn put(&self, path: &str, token: &str) -> Answer {
        self.send(Method::PUT, path, &[token]).await
    }

    /// The accesses that came through, as name, token, shared or not, and slots.
    pub(crate) fn seen(&self) -> Vec<Option<Access>> {
        self.seen.lock().unwrap().clone()
    }
}

pub(crate) async fn heard(response: Response) -> Answer {
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, usize::MAX).await.unwrap();
    Answer { status: parts.status, newest: newest(&parts.headers), text: String::from_utf8(text.into()).unwrap() }
}

fn newest(headers: &HeaderMap) -> Option<String> {
    headers.get(NEWEST_TOKEN).map(|newest| newest.to_str().unwrap().to_owned())
}

impl Answer {
    #[track_caller]
    pub(crate) fn is_done(&self) {
        assert_eq!((self.status, self.text.as_str()), (StatusCode::OK, "done"));
    }

    /// It is a refusal that names both tokens.
    #[track_caller]
    pub(crate) fn is_stale(&self, name: &str, presented: u64, newest: u64) {
        let text = format!("{name}: fencing token {presented} is stale: {newest} was seen already\n");
        assert_eq!(*self, Answer { status: StatusCode::CONFLICT, newest: Some(newest.to_string()), text });
    }

    #[track_caller]
    pub(crate) fn is_refused(&self, status: StatusCode, says: &str) {
        assert!(self.status == status && self.text.contains(says), "{status} {says:?}: {self:?}");
        assert_eq!(self.newest, None);
    }
}
