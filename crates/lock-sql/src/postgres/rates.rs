//! The lines of rate limiters.

use lock_core::{LockName, Reservation, Reserved, Result};

use super::statements::the_row;
use super::{PostgresLock, arguments};
use crate::keys::reserved;
use crate::server::{Again, Read};

impl PostgresLock {
    pub(super) async fn reserve_time(&self, name: &LockName, wanted: &Reservation) -> Result<Reserved> {
        self.sweep_if_due();
        let [length, ahead, within] = wanted.micros().map(|micros| micros as i64);
        let arguments = arguments!(self.prefix.rate_key(name), length, ahead, within);
        let answer = self.server.run(&self.statements.reserve, arguments, Again::Yes).await?;
        let row = the_row(&answer)?;
        Ok(reserved(row.read::<i64, _>("fits")? != 0, row.read("wait_us")?))
    }
}
