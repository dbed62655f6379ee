//! What tokens are counted from: see `schema.sql`.

use std::sync::PoisonError;

use lock_core::{Error, ErrorKind, Result, StoreToken};

use super::connection::Identity;
use super::statements::AHEAD;
use super::{MySqlSessionLock, arguments, changed, hex};
use crate::mysql::inserted;
use crate::server::{Again, Read, SHAPE};

/// What a client knows of the limit on the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ceiling {
    /// Of which start of which server.
    floor: i64,
    /// Tokens below this one are below the limit, too.
    above: i64,
}

impl MySqlSessionLock {
    /// The first since the server started has the table of notes count on from above all that it ever counted. If
    /// several do, each leaps over the others.
    pub(super) async fn begin(&self) -> Result<()> {
        let answer = self.server.run(&self.statements.floor, arguments!(), Again::Yes).await?;
        let row = answer.rows.first().ok_or_else(|| self.no_limit())?;
        if row.read::<Option<i64>, _>("floor")?.is_some() {
            return Ok(());
        }
        let server = hex(&row.read::<String, _>("me")?);
        let leapt = self.server.run(&self.statements.leap, arguments!(), Again::Yes).await?;
        let floor = StoreToken::new(inserted(&leapt, 0)).map_err(|_| self.no_limit())?;
        // Both over one connection: none of it is done without the other after a start.
        let values = [("{floor}", &floor.get().to_string()), ("{server}", &server)];
        self.run(&self.statements.begin, values, Again::Yes).await.map(drop)
    }

    /// Has all tokens be above the server's clock.
    pub(super) async fn raise_to_clock(&self) -> Result<()> {
        let answer = self.server.run(&self.statements.now, arguments!(), Again::Yes).await?;
        let now_us: i64 = answer.rows.first().map_or(Ok(0), |row| row.read(0))?;
        self.raise(StoreToken::new(now_us.unsigned_abs())?).await
    }

    /// Has all tokens be above this one.
    pub(super) async fn raise(&self, above: StoreToken) -> Result<()> {
        self.begin().await?;
        self.lift(above.get() as i64).await?;
        let floor = above.get().to_string();
        let counted = self.run(&self.statements.count_on, [("{floor}", &floor)], Again::Yes).await;
        counted.map(drop).map_err(Error::after_something_was_done)
    }

    /// A token as the table counted it. It counts once it is below the limit on the disk.
    pub(super) async fn given(&self, token: u64, session: Identity) -> Result<StoreToken> {
        let token = StoreToken::new(token)?;
        let number = token.get() as i64;
        if number <= session.floor {
            // Somebody emptied the table while the server ran.
            self.raise(StoreToken::new(session.floor as u64)?).await?;
            let message = format!("the server {} counted tokens from the start again; try again", self.server.shown);
            return Err(Error::new(ErrorKind::Unknown, message));
        }
        let known = *self.ceiling.lock().unwrap_or_else(PoisonError::into_inner);
        if known.floor != session.floor || number >= known.above {
            let above = self.lift(number).await?;
            *self.ceiling.lock().unwrap_or_else(PoisonError::into_inner) = Ceiling { floor: session.floor, above };
        }
        Ok(token)
    }

    /// Has the limit be far above this token, and answers what it is at least.
    async fn lift(&self, token: i64) -> Result<i64> {
        let ceiling = token.saturating_add(AHEAD);
        let lifted = self.server.run(&self.statements.lift_ceiling, arguments!(ceiling), Again::Yes).await?;
        if changed(&lifted, 0) == 0 {
            return Err(self.no_limit());
        }
        Ok(ceiling)
    }

    fn no_limit(&self) -> Error {
        Error::new(SHAPE.kind, format!("the server {}: {}", self.server.shown, SHAPE.wrong))
    }
}
