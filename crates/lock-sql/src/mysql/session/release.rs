//! How a lock is given back, and how nothing is left of a claim whose session is gone.

use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Result, Unlocked};
use tokio::time::{Instant, sleep};

use super::connection::{Identity, Key};
use super::{MySqlSessionLock, arguments, changed, hex, script};
use crate::mysql::number_of;
use crate::server::{Again, Read};
use crate::session::{AnsweredBy, BySessions};

/// For so long at most it is waited for that a session ends.
const ENDS_WITHIN: Duration = Duration::from_millis(600);

/// How long after it was told to end a session is looked for first.
const PAUSE: Duration = Duration::from_millis(1);

/// There is no such session.
const NO_SESSION: u16 = 1094;

impl MySqlSessionLock {
    pub(super) fn release_text(&self, claim: &Claim, key: Key) -> String {
        let owner = hex(claim.owner.as_str());
        let text = script(&self.statements.release, [("{key}", &key.text()), ("{owner}", &owner)]);
        match claim.value {
            Some(_) => format!("{text}; {}", self.statements.hide.replace("{owner}", &owner)),
            None => text,
        }
    }

    /// Ends the session that asked for this claim, or the one that the note names, and then frees the lock.
    pub(super) async fn end(&self, claim: &Claim, session: Option<Identity>, again: Again) -> Result<Unlocked> {
        let key = self.key(&claim.name);
        let of_session = of_session(session);
        let session = self.session_of(claim, key, session).await?;
        if let Some(session) = session
            && !self.end_session(session).await?
        {
            return Err(self.not_ended());
        }
        let first = claim.owner.before_it_kept();
        let values = [
            ("{key}", &key.text()),
            ("{owner}", &hex(claim.owner.as_str())),
            ("{first_owner}", &hex(first.as_ref().unwrap_or(&claim.owner).as_str())),
            ("{of_session}", &of_session),
        ];
        let answer = self.run(&self.statements.free, values, again).await?;
        self.claims.settle(&claim.owner);
        Ok(if changed(&answer, 0) > 0 { Unlocked::Released } else { Unlocked::NotHeld })
    }

    /// This session, or else the one that the owner's note names.
    pub(super) async fn session_of(
        &self,
        claim: &Claim,
        key: Key,
        session: Option<Identity>,
    ) -> Result<Option<Identity>> {
        if session.is_some() {
            return Ok(session);
        }
        let arguments = arguments!(key.text().as_str(), claim.owner.as_str());
        let answer = self.server.run(&self.statements.noted, arguments, Again::Yes).await?;
        let Some(row) = answer.rows.first() else { return Ok(None) };
        let (id, floor): (_, Option<i64>) = (row.read("id")?, row.read("floor")?);
        Ok(floor.map(|floor| Identity { id, floor }))
    }

    /// Ends a session, and waits until it is gone. Answers whether it is.
    pub(super) async fn end_session(&self, session: Identity) -> Result<bool> {
        let values = [("{id}", &session.id.to_string()), ("{floor}", &session.floor.to_string())];
        let began = Instant::now();
        match self.run(&self.statements.end, values, Again::Yes).await {
            Ok(_) => {}
            Err(error) if number_of(&error) == Some(NO_SESSION) => {}
            Err(error) => return Err(error),
        }
        let mut pause = PAUSE;
        loop {
            let answer = self.run(&self.statements.is_there, values, Again::Yes).await?;
            // No row: the server started anew.
            if answer.rows.first().map_or(Ok(0), |row| row.read::<i64, _>(0))? == 0 {
                return Ok(true);
            }
            if began.elapsed() > ENDS_WITHIN.min(self.server.timeout) {
                return Ok(false);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE * 20);
        }
    }
}

/// The condition that a note is of this session. One that asked later holds on, should what is asked land late.
pub(super) fn of_session(session: Option<Identity>) -> String {
    session.map_or(String::new(), |Identity { id, .. }| format!(" AND session = {id}"))
}

/// What the release of a lock, or that it is kept, was answered.
pub(super) fn had_it((rows, results): &AnsweredBy<MySqlSessionLock>) -> Result<bool> {
    if let Some(row) = rows.first() {
        return Ok(row.read::<i64, _>(0)? > 0);
    }
    let done = results.first().ok_or_else(|| Error::new(ErrorKind::Unknown, "the server answered nothing"))?;
    Ok(done.rows_affected() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_frees_the_hold_of_a_session_leaves_that_of_another() {
        assert_eq!(of_session(Some(Identity { id: 7, floor: 1 })), " AND session = 7");
        assert_eq!(of_session(None), "");
    }
}
