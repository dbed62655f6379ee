//! Two stores of a harness as one, for the suite on `both:`.

use std::sync::Arc;

use async_trait::async_trait;
use conformance_tests::{Fault, NotOffered, Store};
use lock_core::{Both, DistributedLock, LockName, TokensOf};

/// What is done to it is done to both.
pub(crate) struct BothStores {
    pub(crate) from: Box<dyn Store>,
    pub(crate) to: Box<dyn Store>,
    pub(crate) tokens: TokensOf,
}

#[async_trait]
impl Store for BothStores {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        Arc::new(Both::new(self.from.connect().await, self.to.connect().await, self.tokens).unwrap())
    }

    fn url(&self) -> Option<String> {
        let tokens = if self.tokens == TokensOf::To { "to" } else { "from" };
        Some(format!("both:?from={}&to={}&tokens={tokens}", self.from.url()?, self.to.url()?))
    }

    fn url_of_nothing(&self) -> Option<String> {
        Some(format!("both:?from={}&to={}", self.from.url()?, self.to.url_of_nothing()?))
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let (from, to) = (self.from.raw_holder(name).await, self.to.raw_holder(name).await);
        from.filter(|from| to.as_ref() == Some(from))
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        self.from.inject(fault.clone()).await?;
        self.to.inject(fault).await
    }
}
