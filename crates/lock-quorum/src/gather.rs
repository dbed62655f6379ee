//! How several stores are asked at once, and how long the slow ones are waited for.

use std::pin::Pin;
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lock_core::Result;
use tokio::time::{Instant, timeout_at};

use crate::member::Member;

/// What is asked of one store.
pub(crate) type Request<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// By the places of the stores in the quorum; `None`: it did not answer, or was not asked.
pub(crate) type Answers<T> = Vec<Option<Result<T>>>;

/// How much longer than the majority a store is waited for. Once, if it does not answer: then it is late. It is long
/// enough for one that is busy, so that a lock is seldom held in fewer stores than could be.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// Asks these stores, each by its place, all at once. Ends a moment after the answers have `decided`, and drops what
/// still runs then. Whoever did not answer in time the last time is not waited for then.
///
/// # Cancel safety
/// That of the requests.
pub(crate) async fn gather<'a, T: Send + 'a>(
    members: &[Member],
    requests: impl IntoIterator<Item = (usize, Request<'a, T>)>,
    limit: Duration,
    decided: impl Fn(&[Option<Result<T>>]) -> bool,
) -> Answers<T> {
    let mut running = FuturesUnordered::new();
    let mut waiting = Vec::new();
    for (place, request) in requests {
        waiting.push(place);
        running.push(request.map(move |answer| (place, answer)));
    }
    let mut answers: Answers<T> = members.iter().map(|_| None).collect();
    let (mut end, mut is_decided) = (Instant::now() + limit, false);
    while !waiting.is_empty() {
        if is_decided && waiting.iter().all(|place| members[*place].was_late()) {
            break;
        }
        let Ok(Some((place, answer))) = timeout_at(end, running.next()).await else {
            waiting.iter().for_each(|place| members[*place].is_late(true));
            break;
        };
        waiting.retain(|waiting| *waiting != place);
        members[place].is_late(false);
        answers[place] = Some(answer);
        if !is_decided && decided(&answers) {
            is_decided = true;
            end = end.min(Instant::now() + GRACE);
        }
    }
    answers
}
