//! What stands at a lock's key, and what the server's clock says.

use lock_core::{Instant, LockName, Result};

use crate::MemcachedLock;
use crate::connection::{Failed, Link};
use crate::error;
use crate::record::Found;
use crate::server_time::LAST;
use crate::tokens::Base;
use crate::wire::{Commands, Item, Reply};

/// For how many seconds an empty item stands at a lock's key, if nobody makes it a hold.
const EMPTY: u64 = 10;

/// A lock and the server's clock, as one request found them.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) found: Found,
    /// The CAS number of what was found.
    pub(crate) cas: u64,
    pub(crate) base: Base,
    pub(crate) base_cas: u64,
    /// The second that it was at the server when the request was sent, or a later one than that.
    pub(crate) second: u64,
    /// Did the server tell it just now?
    pub(crate) is_timed: bool,
}

impl MemcachedLock {
    /// Looks at a lock to take it: at its key, something stands from then on. What tokens are counted from is read after
    /// it.
    pub(crate) async fn see(&self, link: &Link, name: &LockName, sent: Instant) -> Result<Seen, Failed> {
        let mut commands = Commands::default();
        commands.look_or_put(&self.keys.of(name), EMPTY);
        commands.look_or_put(&self.keys.tokens(), LAST);
        // Who asks for this has not changed anything yet that is worth a clean-up.
        let answered = link.ask(commands).await.map_err(Failed::not_done)?;
        let [item, base] = done(answered)?;
        let (base, second, base_cas) = self.base_in(base)?.ok_or_else(error::full)?;
        let item = there(item)?.ok_or_else(error::full)?;
        let is_timed = second > 0;
        let second = second.max(self.client.server.second_at(sent));
        Ok(Seen { found: Found::read(&item, name)?, cas: item.cas, base, base_cas, second, is_timed })
    }

    /// Looks at locks, and changes nothing. What is not there is none. The second is 0 if the server does not tell it,
    /// as when nothing was there.
    pub(crate) async fn look(&self, link: &Link, keys: &[String]) -> Result<(u64, Vec<Option<Item>>), Failed> {
        let mut commands = Commands::default();
        // This one is put, so that there is a clock.
        commands.look_or_put(&self.keys.tokens(), LAST);
        keys.iter().for_each(|key| commands.look(key));
        let mut replies = link.ask(commands).await?.into_iter();
        let base = self.base_in(replies.next().ok_or_else(error::unexpected)?)?;
        let (_, second, _) = base.ok_or_else(error::full)?;
        let items = replies.map(there).collect::<Result<Vec<_>>>()?;
        Ok((second, items))
    }

    /// What tokens are counted from, the second that it is at the server, and the item's CAS number. The first answer of
    /// an item tells no second: then it is 0.
    pub(crate) fn base_in(&self, reply: Reply) -> Result<Option<(Base, u64, u64)>> {
        let Some(item) = there(reply)? else { return Ok(None) };
        // It expires at the last second there is, so that it is a clock.
        let second = LAST.saturating_sub(item.left.unwrap_or(LAST));
        if second > 0 {
            self.client.server.heard(second);
        }
        Ok(Some((Base::read(&item)?, second, item.cas)))
    }
}

impl Commands {
    /// Another number that tokens are counted from, by what this one's item has as its CAS number.
    pub(crate) fn set_tokens(&mut self, key: &str, cas: u64, base: Base) {
        self.replace(key, cas, LAST, &base.text());
    }
}

impl Failed {
    /// Nothing that matters can have been done.
    fn not_done(self) -> Self {
        Self { error: error::not_done(self.error), ..self }
    }
}

/// As many answers as there were commands.
pub(crate) fn done<const COUNT: usize>(replies: Vec<Reply>) -> Result<[Reply; COUNT]> {
    replies.try_into().map_err(|_| error::unexpected())
}

/// What stands there.
pub(crate) fn there(reply: Reply) -> Result<Option<Item>> {
    match reply {
        Reply::Done(item) => Ok(Some(item)),
        Reply::Missing => Ok(None),
        other => Err(no(other)),
    }
}

/// The CAS number of what was written, if what was to be replaced was still there.
pub(crate) fn replaced(reply: Reply) -> Result<Option<u64>, Failed> {
    match reply {
        Reply::Done(item) => Ok(Some(item.cas)),
        Reply::Missing | Reply::Changed => Ok(None),
        other => Err(no(other).into()),
    }
}

/// Was it removed, or not there any more as it was?
pub(crate) fn removed(reply: Reply) -> Result<bool, Failed> {
    Ok(replaced(reply)?.is_some())
}

fn no(reply: Reply) -> lock_core::Error {
    if let Reply::Refused(why) = reply { error::refused(&why) } else { error::unexpected() }
}
