//! How a hold goes on without its owner and its session, and how its owner shows something else with it.

use std::time::Duration;

use lock_core::{Claim, Error, Kept, LockValue, Proclaimed, Result};

use super::connection::Identity;
use super::release::of_session;
use super::{MySqlSessionLock, arguments, changed, hex, script};
use crate::keys::micros;
use crate::server::{Again, Answer, Read};
use crate::session::{BySessions, keep};

impl MySqlSessionLock {
    pub(super) async fn keep_on(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        let rest = micros(rest).to_string();
        let (owner, keeps) = (hex(claim.owner.as_str()), &self.statements.keep);
        let keeping =
            |key: super::Key| (keeps, script(keeps, [("{key}", &key.text()), ("{owner}", &owner), ("{rest}", &rest)]));
        keep(self, claim, keeping, async |session| self.keep_without(claim, &rest, session).await).await
    }

    /// The same over another connection, which then ends the session: whoever has the server's lock after that one
    /// finds the hold that goes on.
    async fn keep_without(&self, claim: &Claim, rest: &String, session: Option<Identity>) -> Result<Kept> {
        let key = self.key(&claim.name);
        let of_session = of_session(session);
        let session = self.session_of(claim, key, session).await?;
        let owner = hex(claim.owner.as_str());
        let values = [("{key}", &key.text()), ("{owner}", &owner), ("{rest}", rest), ("{of_session}", &of_session)];
        let answer = self.run(&self.statements.keep_alone, values, Again::Yes).await?;
        let mut is_kept = counts(&answer)?;
        if let Some(session) = session {
            let ended = self.end_session(session).await.map_err(Error::after_something_was_done)?;
            if !ended {
                return Err(self.not_ended().after_something_was_done());
            }
            // Until its end the session may have come to a request of its own, which keeps a hold that is over as well.
            if !is_kept {
                let now = self.run(&self.statements.is_kept, values, Again::Yes).await;
                is_kept = now.and_then(|now| counts(&now)).map_err(Error::after_something_was_done)?;
            }
        }
        self.claims.settle(&claim.owner);
        if is_kept { Ok(Kept::Kept) } else { answer.not_kept() }
    }

    pub(super) async fn show(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        let key = self.key(&claim.name).text();
        let (value, owner, said) = (value.as_str(), claim.owner.as_str(), self.server.said_us());
        let arguments = arguments!(value, said, key.as_str(), owner, said, value, said);
        let answer = self.server.run(&self.statements.proclaim, arguments, Again::Yes).await?;
        // Rows that were found count as well.
        Ok(if changed(&answer, 0) > 0 { Proclaimed::Shown } else { Proclaimed::NotHeld })
    }
}

/// Does the answer count a hold that goes on?
fn counts(answer: &Answer<sqlx::MySql>) -> Result<bool> {
    Ok(answer.rows.first().map_or(Ok(0), |row| row.read::<i64, _>(0))? > 0)
}
