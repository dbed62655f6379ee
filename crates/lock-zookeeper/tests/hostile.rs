//! 93. A server that says what no server says, from the first byte on.

mod says;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_says_at_once_is_an_error_in_time() {
    says::withstand_all(None).await;
}
