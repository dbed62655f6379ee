//! The lines of rate limiters.

use std::time::Duration;

use lock_core::{LockName, Reservation, Reserved, Result};

use crate::RedisLock;
use crate::answers::read;
use crate::connection::Again;
use crate::scripts::RESERVE;

impl RedisLock {
    pub(crate) async fn reserve_time(&self, name: &LockName, wanted: &Reservation) -> Result<Reserved> {
        let key = self.keys.rate(name);
        let arguments = wanted.micros().map(|micros| micros.to_string());
        let arguments = arguments.each_ref().map(|argument| argument.as_bytes());
        let answer = self.servers.run(&RESERVE, &[&key], &arguments, Again::Yes).await?;
        let (fits, wait): (i64, u64) = read(answer.value)?;
        let wait = Duration::from_micros(wait);
        Ok(if fits == 1 { Reserved::In(wait) } else { Reserved::TooLate(wait) })
    }
}
