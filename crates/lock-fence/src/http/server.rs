//! The check of servers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use lock_core::{Error, ErrorKind, LockName, Result};
use tower_layer::Layer;
use tower_service::Service;

use super::header::{FENCING_TOKEN, NEWEST_TOKEN, read};
use crate::{Access, Marks, Stale};

/// Which requests are to have a token. One that is there is checked in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Required {
    /// All but those of methods that only read: GET, HEAD, OPTIONS and TRACE pass without a token.
    ///
    /// A holder that reads to write later sends its token with its reads too. Then no earlier holder writes after it has
    /// read.
    #[default]
    Writes,
    /// All.
    Always,
    /// None. While some clients do not send tokens yet, those that do are safe from each other only.
    Never,
}

impl Required {
    fn of(self, request: &Parts) -> bool {
        match self {
            Self::Writes => !request.method.is_safe(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

type Named = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Refuses requests with stale fencing tokens, before the service sees them.
///
/// | status | because |
/// | --- | --- |
/// | 400 | the header `Fencing-Token` is malformed, or is there twice; or the name cannot be a lock's |
/// | 409 | a later holder was seen; the text has both tokens, and `Fencing-Token-Newest` the highest |
/// | 428 | the header is [required](Required) and missing |
/// | 500 | the store of the marks refused, for example because there is no table |
/// | 503 | the store of the marks cannot be reached, or other transactions were in the way |
///
/// The text of a refusal is one line. The [`Error`], if there is one, is in the response's extensions, for layers
/// around this one that log or count. A request that passes has its [`Access`] in its extensions; a handler passes it on
/// to the data store, which closes [the gap](super#what-a-check-at-the-door-does-not-cover).
///
/// A request is checked when it arrives, in the time of [`Marks::check`]; the service is called after that. A request
/// that is dropped meanwhile may have raised the mark, which harms nobody.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use axum::{Router, routing::put};
/// use lock_fence::{MemoryMarks, http::CheckLayer};
///
/// let app: Router = Router::new()
///     .route("/orders/{id}", put(async || "written"))
///     .layer(CheckLayer::new(MemoryMarks::new()).named(|request| Some(request.uri.path().trim_matches('/').to_owned())));
/// # drop(app);
/// # }
/// ```
pub struct CheckLayer<M> {
    marks: Arc<M>,
    named: Arc<Named>,
    required: Required,
}

impl<M: Marks> CheckLayer<M> {
    /// A check by these marks. A resource is called by its path, such as `/orders/42`, as this layer sees it: below
    /// `Router::nest` of axum that is the rest of the path.
    pub fn new(marks: M) -> Self {
        let named = |request: &Parts| Some(request.uri.path().to_owned());
        Self { marks: Arc::new(marks), named: Arc::new(named), required: Required::default() }
    }

    /// Calls the resource of a request by another name, such as that of the lock. Requests for what has one lock have
    /// one name. `None` is for what no lock protects: the request passes unchecked.
    #[must_use]
    pub fn named(mut self, named: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.named = Arc::new(named);
        self
    }

    /// Requires a token of these requests.
    #[must_use]
    pub fn required(mut self, required: Required) -> Self {
        self.required = required;
        self
    }

    async fn check(&self, request: &Parts) -> Result<Option<Access>, Refusal> {
        let Some(name) = (self.named)(request) else { return Ok(None) };
        let name = LockName::new(&name).map_err(|error| Refusal::of(StatusCode::BAD_REQUEST, error))?;
        let Some(access) = shown(&name, &request.headers)? else {
            return if self.required.of(request) { Err(Refusal::missing()) } else { Ok(None) };
        };
        match self.marks.check(&access).await {
            Ok(()) => Ok(Some(access)),
            Err(error) => Err(error.into()),
        }
    }
}

/// The access that the headers tell of, if they tell of one.
fn shown(name: &LockName, headers: &HeaderMap) -> Result<Option<Access>, Refusal> {
    let mut values = headers.get_all(FENCING_TOKEN).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => read(name, value).map(Some).ok_or_else(Refusal::malformed),
        (Some(_), Some(_)) => Err(Refusal::malformed()),
    }
}

/// Why a request is not passed on.
struct Refusal {
    status: StatusCode,
    text: String,
    error: Option<Error>,
}

impl Refusal {
    fn of(status: StatusCode, error: Error) -> Self {
        Self { status, text: error.to_string(), error: Some(error) }
    }

    fn plain(status: StatusCode, text: &str) -> Self {
        Self { status, text: text.to_owned(), error: None }
    }

    fn missing() -> Self {
        let text = "this request needs a fencing token: take the lock, and send its token in the header Fencing-Token";
        Self::plain(StatusCode::PRECONDITION_REQUIRED, text)
    }

    fn malformed() -> Self {
        let text = "the header Fencing-Token is malformed: send it once, as 7, 7;shared or 7;slot=2";
        Self::plain(StatusCode::BAD_REQUEST, text)
    }

    fn response<B: From<String>>(self) -> Response<B> {
        let mut response = Response::new(B::from(self.text + "\n"));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if let Some(stale) = self.error.as_ref().and_then(Stale::of) {
            response.headers_mut().insert(NEWEST_TOKEN, stale.newest.into());
        }
        if let Some(error) = self.error {
            response.extensions_mut().insert(error);
        }
        response
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        // What a store says of itself is not for clients.
        let (status, text) = match (Stale::of(&error), error.kind()) {
            (Some(stale), _) => (StatusCode::CONFLICT, stale.to_string()),
            (None, ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Conflict) => {
                let text = "the fencing token cannot be checked just now: send the request again, with the same token";
                (StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
            }
            (None, _) => (StatusCode::INTERNAL_SERVER_ERROR, "the fencing token cannot be checked".to_owned()),
        };
        Self { status, text, error: Some(error) }
    }
}

impl<M> Clone for CheckLayer<M> {
    fn clone(&self) -> Self {
        Self { marks: Arc::clone(&self.marks), named: Arc::clone(&self.named), required: self.required }
    }
}

impl<M> fmt::Debug for CheckLayer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckLayer").field("required", &self.required).finish_non_exhaustive()
    }
}

impl<M, S> Layer<S> for CheckLayer<M> {
    type Service = CheckService<M, S>;

    fn layer(&self, inner: S) -> Self::Service {
        CheckService { check: self.clone(), inner }
    }
}

/// What [`CheckLayer`] makes of a service. Its body can be made of a text, as those of axum, `http-body-util` and
/// reqwest.
#[derive(Debug)]
pub struct CheckService<M, S> {
    check: CheckLayer<M>,
    inner: S,
}

impl<M, S: Clone> Clone for CheckService<M, S> {
    fn clone(&self) -> Self {
        Self { check: self.check.clone(), inner: self.inner.clone() }
    }
}

impl<M, S, B, R> Service<Request<B>> for CheckService<M, S>
where
    M: Marks + 'static,
    S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Send + 'static,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // It is the inner service as it is now that is ready, not a clone of it.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let check = self.check.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            match check.check(&parts).await {
                Ok(Some(access)) => drop(parts.extensions.insert(access)),
                Ok(None) => {}
                Err(refusal) => return Ok(refusal.response()),
            }
            inner.call(Request::from_parts(parts, body)).await
        })
    }
}
