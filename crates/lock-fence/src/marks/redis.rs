//! Marks in Redis.

use std::fmt;

use lock_core::Result;
use redis::aio::ConnectionLike;

use super::Marks;
use crate::Access;

/// Marks in Redis or Valkey, by a connection of the crate `redis` that can be cloned: a multiplexed one, a connection
/// manager, or that of a cluster. All servers with this Redis share them, and with [`redis::check`](crate::redis::check),
/// whose module says what a fail-over or a restart of Redis loses.
///
/// A check is one request.
#[derive(Clone)]
pub struct RedisMarks<C> {
    connection: C,
}

impl<C: ConnectionLike + Clone + Send + Sync> RedisMarks<C> {
    /// The marks in the Redis of this connection.
    pub fn new(connection: C) -> Self {
        Self { connection }
    }
}

impl<C> fmt::Debug for RedisMarks<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisMarks").finish_non_exhaustive()
    }
}

impl<C: ConnectionLike + Clone + Send + Sync> Marks for RedisMarks<C> {
    async fn check(&self, access: &Access) -> Result<()> {
        crate::redis::check(&mut self.connection.clone(), access).await
    }
}
