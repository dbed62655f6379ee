//! Futures that are dropped wherever they wait, and what is left of them in the process.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::runtime::Handle;

use crate::ctx::until;

/// No future of a backend needs more polls than this.
pub(crate) const POLLS: usize = 200;

/// Runs a future for at most so many polls, then drops it.
pub(crate) async fn polls<T>(most: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|context| {
        if polled == most {
            return Poll::Ready(None);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polled == most => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// How many tasks this case's runtime has.
pub(crate) fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Whatever ran in the background has ended, but for so many.
pub(crate) async fn no_task_but(many: usize) {
    until("the end of all that was left running", async || tasks() <= many).await;
}
