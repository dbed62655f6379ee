//! 93. A server that says what no server says, from the first byte on.

mod common;
mod says;

use says::{SHORT, all, bounded, connect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_says_at_once_is_an_error_in_time() {
    bounded(async {
        for says in all() {
            let shown = says.beginning();
            assert!(connect(says.listen(None).await, SHORT).await.is_err(), "{shown:?}");
        }
    })
    .await;
}
