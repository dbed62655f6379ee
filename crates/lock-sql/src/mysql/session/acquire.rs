//! How a lock is taken in a session, at once or in line.

use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Grant, Instant, Result};

use super::connection::{Identity, Key, Session, idle};
use super::{MySqlSessionLock, hex, script};
use crate::keys::{duration, micros};
use crate::mysql::arguments;
use crate::server::{Again, Read};
use crate::session::{BySessions, DRIFT, Does, Failed, LOOK, Taken, lent, wait};

/// For so many seconds whoever need not be served in its turn stands in line before it comes again. A client that is
/// gone without a word stands there no longer.
const PATIENCE: u32 = 30;

/// The same of who has to be.
const FAIR_PATIENCE: u32 = 1_000_000;

/// A grant whose wait took more of its lease than this part, or longer than [`DRIFT`], is confirmed by another request: no
/// hold is shorter by more than that.
const PART: u32 = 20;

/// Why there is no note of this session's.
struct Seen {
    /// Does it have the server's lock? None: something ended its wait.
    got: Option<i64>,
    id: i64,
    /// Of the note that is in the way.
    name: Option<Vec<u8>>,
    owner: Option<Vec<u8>>,
    token: Option<i64>,
    lease_us: Option<i64>,
    left_us: Option<i64>,
}

impl MySqlSessionLock {
    pub(super) async fn request_in(
        &self,
        session: &mut Session,
        claim: &Claim,
        mut began: Option<Instant>,
        waits: bool,
    ) -> Result<Taken<Key>, Failed> {
        let key = self.key(&claim.name);
        let (key_text, shows) = (key.text(), claim.value.is_some());
        let value = claim.value.as_ref().map(|value| hex(value.as_str())).unwrap_or_default();
        let (name, owner) = (hex(&self.prefix.key(&claim.name)), hex(claim.owner.as_str()));
        let (lease, id) = (micros(claim.lease).to_string(), session.identity.id.to_string());
        let patience = match (waits, claim.fair) {
            (false, _) => 0,
            (true, false) => PATIENCE,
            (true, true) => FAIR_PATIENCE,
        };
        let patience = patience.to_string();
        let values = [
            ("{key}", &key_text),
            ("{name}", &name),
            ("{owner}", &owner),
            ("{lease}", &lease),
            ("{id}", &id),
            ("{patience}", &patience),
            ("{value}", &value),
            ("{waited}", &"0".to_owned()),
        ];
        let statements = &self.statements;
        let take = match (waits, shows) {
            (false, false) => &statements.take,
            (false, true) => &statements.take_showing,
            (true, false) => &statements.wait,
            (true, true) => &statements.wait_showing,
        };
        let take_over = if shows { &statements.take_over_showing } else { &statements.take_over };
        // Does the session have the server's lock already, and is that seen?
        let (mut has_it, mut is_shown, mut seen) = (false, false, false);
        loop {
            let statement = if has_it { take_over } else { take };
            let text = self.set_idle(session, claim.lease) + &script(statement, values);
            let asked = self.server.clock.now();
            let (_, results) = match waits && !has_it {
                true => wait(self, session, (statement, text), "", claim, &mut seen).await?,
                false => session.ask_in_time(&self.server, statement, text).await?,
            };
            session.idle = idle(claim.lease);
            let heard = self.server.clock.now();
            let sent = began.take().unwrap_or(asked);
            if let Some(done) = results.last().filter(|done| done.rows_affected() > 0) {
                let token = self.given(done.last_insert_id(), session.identity).await;
                let token = token.map_err(Error::after_something_was_done)?;
                if seen || is_shown {
                    let statement = &statements.waits_no_more;
                    session.ask_in_time(&self.server, statement, script(statement, values)).await?;
                }
                let valid_until =
                    match waits && heard.saturating_duration_since(asked) > (claim.lease / PART).min(DRIFT) {
                        true => self.confirm(session, claim, key).await?,
                        false => sent + duration(micros(claim.lease)),
                    };
                return Ok(Taken::Granted { grant: Grant::new(token, valid_until), key });
            }
            let found = self.seen(session, &key_text).await?;
            if found.id != session.identity.id {
                return Err(lent().into());
            }
            match found.got {
                Some(0) if waits => continue,
                Some(0) => return Ok(Taken::Busy),
                Some(_) => has_it = true,
                None => {
                    let message = format!("the server {} ended the wait for its lock", self.server.shown);
                    return Err(Error::new(ErrorKind::Unknown, message).into());
                }
            }
            if found.name.is_some_and(|name| name != self.prefix.key(&claim.name).as_bytes()) {
                let message = format!("the server {}: the lock's note is that of another name", self.server.shown);
                return Err(Error::new(ErrorKind::Refused, message).into());
            }
            if found.owner.as_deref() == Some(claim.owner.as_str().as_bytes()) {
                let token = self.given(found.token.unwrap_or_default() as u64, session.identity).await;
                let token = token.map_err(Error::after_something_was_done)?;
                let valid_until = self.confirm(session, claim, key).await?;
                return Ok(Taken::Granted { grant: Grant::new(token, valid_until), key });
            }
            let Some(left_us) = found.left_us.filter(|left| *left > 0) else { continue };
            if !waits {
                self.let_go(session, claim, &key_text).await?;
                return Ok(Taken::Busy);
            }
            if found.lease_us.is_some_and(|lease_us| left_us > lease_us) {
                // The clock went back. A lease from now on is no shorter than what the holder was promised.
                self.server.run(&statements.shorten, arguments!(key_text.as_str()), Again::Yes).await?;
            }
            if !std::mem::replace(&mut is_shown, true) {
                session.ask_in_time(&self.server, &statements.waits, script(&statements.waits, values)).await?;
            }
            tokio::time::sleep(duration(left_us).min(LOOK).min(claim.lease / 3)).await;
        }
    }

    /// What sets for how long this session may be idle; nothing if that is as it should be.
    pub(super) fn set_idle(&self, session: &Session, lease: Duration) -> String {
        match idle(lease) == session.idle {
            true => String::new(),
            false => self.statements.idle.replace("{idle}", &idle(lease).as_secs().to_string()),
        }
    }

    async fn confirm(&self, session: &mut Session, claim: &Claim, key: Key) -> Result<Instant, Failed> {
        match self.renew_in(session, claim, key).await? {
            Some(valid_until) => Ok(valid_until),
            None => Err(Error::new(ErrorKind::Unknown, "the lock was taken away as soon as it was granted").into()),
        }
    }

    async fn seen(&self, session: &mut Session, key: &str) -> Result<Seen, Failed> {
        let statement = &self.statements.seen;
        let (rows, _) = session.ask_in_time(&self.server, statement, statement.replace("{key}", key)).await?;
        let row = rows.first().ok_or_else(|| Error::new(ErrorKind::Unknown, "the server answered nothing"))?;
        Ok(Seen {
            got: row.read("got")?,
            id: row.read("id")?,
            name: row.read("name")?,
            owner: row.read("owner")?,
            token: row.read("token")?,
            lease_us: row.read("lease_us")?,
            left_us: row.read("left_us")?,
        })
    }

    /// Gives the server's lock back, without a hold.
    async fn let_go(&self, session: &mut Session, claim: &Claim, key: &str) -> Result<(), Failed> {
        let mut text = self.statements.let_go.replace("{key}", key);
        if claim.value.is_some() {
            text = format!("{text}; {}", self.statements.hide.replace("{owner}", &hex(claim.owner.as_str())));
        }
        session.ask_in_time(&self.server, &self.statements.let_go, text).await.map(drop)
    }

    /// Has it be seen for whom this session waits, and answers what it does; none: it has ended.
    pub(super) async fn look_at(&self, claim: &Claim, session: Identity, since: Instant) -> Result<Option<Does>> {
        let waited = self.server.clock.now().saturating_duration_since(since);
        let values = [
            ("{key}", &self.key(&claim.name).text()),
            ("{name}", &hex(&self.prefix.key(&claim.name))),
            ("{owner}", &hex(claim.owner.as_str())),
            ("{id}", &session.id.to_string()),
            ("{floor}", &session.floor.to_string()),
            ("{waited}", &micros(waited).to_string()),
        ];
        let answer = self.run(&self.statements.look, values, Again::Yes).await?;
        let Some(row) = answer.rows.first() else { return Ok(None) };
        let is = |column| Ok::<_, Error>(row.read::<i64, _>(column)? != 0);
        if !is("is_there")? {
            return Ok(None);
        }
        if !is("waits")? {
            // Whether it has come to the request yet, nobody can tell if it does not have the lock.
            return Ok(Some(if is("has_it")? { Does::Nothing } else { Does::Other }));
        }
        self.run(&self.statements.waits, values, Again::Yes).await?;
        Ok(Some(Does::Wait))
    }
}
