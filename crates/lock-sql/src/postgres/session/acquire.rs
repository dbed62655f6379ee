//! How a lock is taken in a session, at once or in line.

use lock_core::{Claim, Error, ErrorKind, Grant, Instant, Result, StoreToken};

use super::connection::{Identity, Session, numbers};
use super::statements::literal;
use super::{PostgresSessionLock, arguments, idle};
use crate::keys::{duration, micros};
use crate::server::{Again, Read};
use crate::session::{BySessions, DRIFT, Does, Failed, LOOK, Taken, lent, wait};

/// For so many milliseconds whoever need not be served in its turn stands in line before it comes again; each time for
/// twice as long as before, so that those who come again sooner do not pass it for ever.
const PATIENCE: u32 = 10_000;

/// For so many at most: so long deleted rows stay in the tables of others.
const LONGEST_PATIENCE: u32 = 300_000;

impl PostgresSessionLock {
    pub(super) async fn request_in(
        &self,
        session: &mut Session,
        claim: &Claim,
        mut began: Option<Instant>,
        waits: bool,
    ) -> Result<Taken<i64>, Failed> {
        let (name, owner) = (literal(&self.prefix.key(&claim.name)), literal(claim.owner.as_str()));
        let lease_us = micros(claim.lease);
        let (take, shown) = match &claim.value {
            Some(value) => (&self.statements.take_showing, format!(", {}", literal(value.as_str()))),
            None => (&self.statements.take, String::new()),
        };
        let Identity { pid, began_us } = session.identity;
        let (mut how, mut patience) = (i32::from(waits), if claim.fair { 0 } else { PATIENCE });
        let mut seen = false;
        loop {
            let set = self.set_idle(session, claim.lease);
            let mark = session.mark();
            let text = format!("{mark}{set}{take}{name}, {owner}, {lease_us}, {began_us}, {how}, {patience}{shown})");
            let sent = began.take().unwrap_or_else(|| self.server.clock.now());
            let (rows, _) = match how {
                1 => wait(self, session, (take, text), &mark, claim, &mut seen).await?,
                _ => session.ask_in_time(&self.server, take, text).await?,
            };
            let heard = self.server.clock.now();
            session.idle = idle(claim.lease);
            let [token, time_us, answered_by, key] = numbers(&rows)?;
            if answered_by != Some(pid.into()) {
                return Err(lent().into());
            }
            match (token, time_us) {
                (Some(token), Some(after_us)) => {
                    let (token, key) = (StoreToken::new(token as u64)?, key.unwrap_or_default());
                    let lease = duration(lease_us);
                    let after = duration(after_us);
                    // By the server's clock it was granted so long after it began, and it began after it was sent.
                    let valid_until = match after > DRIFT {
                        true => self.confirm(session, claim, key).await?,
                        false => (sent + after).min(heard) + lease,
                    };
                    return Ok(Taken::Granted { grant: Grant::new(token, valid_until), key });
                }
                (None, Some(..0)) => patience = patience.saturating_mul(2).min(LONGEST_PATIENCE),
                (None, Some(left_us)) => {
                    how = 2;
                    tokio::time::sleep(duration(left_us).min(LOOK).min(claim.lease / 3)).await;
                }
                _ => return Ok(Taken::Busy),
            }
        }
    }

    async fn confirm(&self, session: &mut Session, claim: &Claim, key: i64) -> Result<Instant, Failed> {
        match self.renew_in(session, claim, key).await? {
            Some(valid_until) => Ok(valid_until),
            None => {
                Err(Error::new(ErrorKind::Unknown, "the lock was taken from its waiter as soon as it was granted")
                    .into())
            }
        }
    }

    /// Has it be seen for whom this session waits, and answers what it does; none: it has ended.
    pub(super) async fn look_at(&self, claim: &Claim, session: Identity, mark: &str) -> Result<Option<Does>> {
        let name = self.prefix.key(&claim.name);
        let arguments = arguments!(session.pid, session.began_us, name, claim.owner.as_str(), mark);
        let answer = self.server.run(&self.statements.look, arguments, Again::Yes).await?;
        let Some(row) = answer.rows.first() else { return Ok(None) };
        let does: Option<String> = row.read("does")?;
        Ok(does.map(|does| match (does.as_str(), row.read("begun")) {
            ("idle", Ok(Some(false))) => Does::Other,
            ("idle", _) => Does::Nothing,
            _ => Does::Wait,
        }))
    }
}
