//! 93. Servers that say what no server says, from the first byte on.

mod says;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    says::postgres(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    says::mysql(None).await;
}
