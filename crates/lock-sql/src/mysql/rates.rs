//! The lines of rate limiters.

use lock_core::{LockName, Reservation, Reserved, Result};

use super::{MySqlLock, arguments, inserted};
use crate::keys::reserved;
use crate::server::Again;

impl MySqlLock {
    pub(super) async fn reserve_time(&self, name: &LockName, wanted: &Reservation) -> Result<Reserved> {
        self.sweep_if_due();
        let [length, ahead, within] = wanted.micros().map(|micros| micros as i64);
        let key = self.prefix.rate_key(name);
        loop {
            let arguments = arguments!(ahead, within, within, length, key.as_str());
            let answer = self.server.run(&self.statements.reserve, arguments, Again::Yes).await?;
            match inserted(&answer, 0).checked_sub(1) {
                Some(told) => return Ok(reserved(told % 2 == 1, (told / 2) as i64)),
                None => self.make(&key).await?,
            }
        }
    }
}
