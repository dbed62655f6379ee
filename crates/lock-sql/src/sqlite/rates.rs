//! The lines of rate limiters.

use lock_core::{LockName, Reservation, Reserved, Result};

use super::SqliteLock;
use super::statements::{Ask, RESERVE};
use crate::keys::reserved;

impl SqliteLock {
    pub(super) async fn reserve_time(&self, name: &LockName, wanted: &Reservation) -> Result<Reserved> {
        self.sweep_if_due();
        let [length, ahead, within] = wanted.micros();
        let (key, ahead) = (self.prefix.rate_key(name), ahead.to_string());
        let ask = Ask {
            statement: RESERVE,
            key: &key,
            lease_us: length as i64,
            number: within as i64,
            text: Some(&ahead),
            makes: true,
            ..Ask::default()
        };
        let answer = self.run_again(ask).await?;
        let row = answer.rows.first();
        Ok(reserved(row.is_some_and(|row| row.get::<i64>("fits") != 0), row.map_or(0, |row| row.get("wait_us"))))
    }
}
