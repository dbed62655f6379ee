//! What clients send, and what they hear.

use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Request, StatusCode};
use lock_core::Result;
use tower_layer::Layer;
use tower_service::Service;

use super::header::{FENCING_TOKEN, NEWEST_TOKEN, number, value};
use crate::Access;

/// Sets the header `Fencing-Token` of every request, in the place of one that is there.
///
/// It goes on after the lock was lost: the server refuses the token once it has seen a later one.
#[derive(Clone, Debug)]
pub struct TokenLayer {
    value: HeaderValue,
}

impl TokenLayer {
    /// The header of this lease, guard or access.
    pub fn new(access: impl Into<Access>) -> Self {
        Self { value: value(access) }
    }
}

impl<S> Layer<S> for TokenLayer {
    type Service = TokenService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        TokenService { inner, value: self.value.clone() }
    }
}

/// What [`TokenLayer`] makes of a service.
#[derive(Clone, Debug)]
pub struct TokenService<S> {
    inner: S,
    value: HeaderValue,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for TokenService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.headers_mut().insert(FENCING_TOKEN, self.value.clone());
        self.inner.call(request)
    }
}

/// Did a [`CheckLayer`](super::CheckLayer) refuse the request with this token? It says so by the status 409 and the
/// header [`NEWEST_TOKEN`]. All other responses are the application's business.
///
/// # Errors
/// [`ErrorKind::Stale`](lock_core::ErrorKind::Stale), with the lock's name and both tokens.
pub fn check_response(access: impl Into<Access>, status: StatusCode, headers: &HeaderMap) -> Result<()> {
    let newest = headers.get(NEWEST_TOKEN).and_then(|newest| number(newest.to_str().ok()?));
    match newest {
        Some(newest) if status == StatusCode::CONFLICT => Err(access.into().late(newest).into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stale;

    #[test]
    fn only_a_refusal_of_ours_is_an_error() {
        let access = Access::new("orders/42", 7_u64).unwrap();
        let check = |status, newest: Option<&'static str>| {
            let headers = newest.map(|newest| (NEWEST_TOKEN, HeaderValue::from_static(newest)));
            check_response(access.clone(), status, &headers.into_iter().collect())
        };
        let stale = Stale { resource: "orders/42".to_owned(), presented: 7, newest: 9 };
        assert_eq!(Stale::of(&check(StatusCode::CONFLICT, Some("9")).unwrap_err()), Some(&stale));
        for (status, newest) in
            [(StatusCode::OK, Some("9")), (StatusCode::CONFLICT, None), (StatusCode::CONFLICT, Some("later"))]
        {
            assert!(check(status, newest).is_ok(), "{status} {newest:?}");
        }
    }
}
