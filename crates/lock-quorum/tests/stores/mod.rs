//! A store of the suite that is a quorum of three others.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Fault, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_quorum::{QuorumFactory, QuorumOptions};

/// What is done to it is done to all.
pub(crate) struct QuorumStores {
    pub(crate) members: Vec<Box<dyn Store>>,
    /// What all of their URLs end with.
    pub(crate) prefix: &'static str,
}

/// The same stores, and quorums of them.
pub(crate) fn with_quorum(mut registry: Registry) -> Registry {
    let members = registry.clone();
    registry.register(QuorumFactory::over(members));
    registry
}

impl QuorumStores {
    fn url_of(&self, urls: impl IntoIterator<Item = Option<String>>) -> Option<String> {
        let urls: Option<Vec<_>> = urls.into_iter().collect();
        let prefix = format!("?prefix={}", self.prefix);
        let stores = urls?.into_iter().map(|url| format!("store={}", url.trim_end_matches(&prefix)));
        Some(format!("quorum:?{}&timeout=2s&prefix={}", stores.collect::<Vec<_>>().join("&"), self.prefix))
    }
}

/// A store may know an owner that asked it before as `1#owner`.
fn as_asked(known: &str) -> String {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let owner = known.split_once('#').filter(|(number, _)| is_number(number)).map(|(_, owner)| owner);
    owner.unwrap_or(known).to_owned()
}

#[async_trait]
impl Store for QuorumStores {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        let mut clients = Vec::new();
        for member in &self.members {
            clients.push(member.connect().await);
        }
        Arc::new(QuorumOptions::default().timeout(Duration::from_secs(2)).over(clients).await.unwrap())
    }

    fn url(&self) -> Option<String> {
        self.url_of(self.members.iter().map(|member| member.url()))
    }

    fn url_of_nothing(&self) -> Option<String> {
        let numbered = (1..).zip(&self.members);
        self.url_of(numbered.map(|(number, member)| {
            // Nothing can listen there either.
            Some(member.url_of_nothing()?.replace("127.0.0.1:1", &format!("127.0.0.1:{number}")))
        }))
    }

    /// Whom a majority has.
    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let mut holders = Vec::new();
        for member in &self.members {
            holders.extend(member.raw_holder(name).await.map(|known| as_asked(&known)));
        }
        let majority = self.members.len() / 2 + 1;
        let count = |one: &String| holders.iter().filter(|other| *other == one).count();
        holders.iter().find(|holder| count(holder) >= majority).cloned()
    }

    fn connections(&self) -> Vec<u64> {
        self.members.iter().flat_map(|member| member.connections()).collect()
    }

    fn waits_over(&self) -> usize {
        self.members.len()
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        match fault {
            Fault::Swallow(server, number) => return self.members[server].inject(Fault::Swallow(0, number)).await,
            Fault::Forget(server, number) => return self.members[server].inject(Fault::Forget(0, number)).await,
            _ => {}
        }
        for member in &self.members {
            member.inject(fault.clone()).await?;
        }
        Ok(())
    }
}
