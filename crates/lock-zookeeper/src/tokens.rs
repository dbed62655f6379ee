//! From the servers' transaction numbers to tokens: a node that is made once for a prefix, whose time and number of
//! creation are the [`TokenBase`].

use std::time::Duration;

use lock_core::TokenBase;
use zookeeper_client::{Client, CreateMode, Error as ZkError, Stat};

use crate::session::Session;

impl Session {
    /// The base of the prefix, which this makes if there is none.
    pub(crate) async fn token_base(&self) -> Result<TokenBase, ZkError> {
        let made = self.base.get_or_try_init(|| async {
            loop {
                match self.look_for_base().await? {
                    Some(base) => return Ok(base),
                    None => self.make_base().await?,
                }
            }
        });
        made.await.copied()
    }

    /// The same for who only looks. Without a base there is nobody who has a token, either.
    pub(crate) async fn token_base_if_any(&self) -> Result<TokenBase, ZkError> {
        if let Some(base) = self.base.get() {
            return Ok(*base);
        }
        Ok(self.look_for_base().await?.unwrap_or_else(|| TokenBase::made_at(Duration::ZERO, 0)))
    }

    async fn look_for_base(&self) -> Result<Option<TokenBase>, ZkError> {
        let path = &self.settings.names.tokens();
        let looking = |client: std::sync::Arc<Client>| async move {
            // A server that is behind the others does not have it yet.
            client.sync(path).await?;
            client.check_stat(path).await
        };
        Ok(self.ask(looking).await?.map(|stat| of(&stat)))
    }

    /// Or somebody else does.
    async fn make_base(&self) -> Result<(), ZkError> {
        let path = &self.settings.names.tokens();
        let persistent = &CreateMode::Persistent.with_acls(self.settings.acls());
        match self.ask(|client| async move { client.create(path, b"", persistent).await }).await {
            Ok(_) | Err(ZkError::NodeExists) => Ok(()),
            Err(ZkError::NoNode) => match path.rsplit_once('/') {
                Some((parent, _)) => self.make_folder(parent).await,
                None => Err(ZkError::NoNode),
            },
            Err(error) => Err(error),
        }
    }
}

/// Its time is cut off to milliseconds.
fn of(stat: &Stat) -> TokenBase {
    let time = Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default() + 1);
    TokenBase::made_at(time, stat.czxid)
}
