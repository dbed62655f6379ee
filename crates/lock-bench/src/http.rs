//! What the check of fencing tokens adds to a request of HTTP, without a network: the same service with and without it.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use lock_fence::MemoryMarks;
use lock_fence::http::{CheckLayer, FENCING_TOKEN};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::{Figure, rate};

/// How many resources there are, each with a mark.
const RESOURCES: usize = 10_000;

/// A request with a token, for one of many resources: the microseconds that the check takes.
pub async fn check(rounds: usize, each: Duration) -> Figure {
    let service = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let checking = CheckLayer::new(MemoryMarks::new()).layer(service);
    let mut added = Vec::new();
    for _ in 0..rounds {
        let [base, ours] = [time(service, each).await, time(checking.clone(), each).await];
        println!("    http: a request in {:.2} us, without the check {:.2} us", ours * 1e6, base * 1e6);
        added.push((ours - base) * 1e6);
    }
    Figure::at_most("http: the check of a token, in microseconds", added, 5.0)
}

async fn time<S>(mut service: S, during: Duration) -> f64
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let mut number = 0;
    let rate = rate(during, async || {
        number += 1;
        let path = format!("/orders/{}", number % RESOURCES);
        let request = Request::put(path).header(FENCING_TOKEN, "1836021349376000007").body(Body::empty());
        let service = service.ready().await.expect("infallible");
        let response = service.call(request.expect("a request")).await.expect("infallible");
        assert!(response.status().is_success());
    });
    1.0 / rate.await
}
