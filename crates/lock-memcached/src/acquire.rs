//! How a lock is taken.
//!
//! One request reads the lock's key, and then the key of the [tokens](crate::tokens). If the lock is free, an empty item
//! stands there from then on, for a moment. A second request replaces just that item, by its CAS number, with the hold.
//! A hold that is over is removed first, by its CAS number too, and not replaced. So
//!
//! - two who take the lock at the same time replace the same item, and the server lets only one of them;
//! - a request that lands late or twice finds another item than the one that it names. A release removes the empty
//!   item too, after which a request of its owner that is still on its way does nothing. It cannot remove the hold of
//!   somebody else, whom it knows nothing of: that is why no hold is replaced by another;
//! - a grant's token is above that of each earlier one: its CAS number is, and what that is added to was read when the
//!   earlier grant had ended, and only rises.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Grant, Instant, Result};
use tokio::time;

use crate::MemcachedLock;
use crate::connection::{Failed, Link};
use crate::error;
use crate::read::{Seen, done, removed, replaced};
use crate::record::{Found, Record};
use crate::retry::Retry;
use crate::server_time::expiry;
use crate::tokens::{Base, is_behind};
use crate::waiters::Watch;
use crate::wire::Commands;

/// So many times others may be faster.
const ROUNDS: usize = 100;

/// How often to look whether the server's clock has gone on.
const LOOK: Duration = Duration::from_millis(50);

/// For how long, at most: it takes two seconds.
const CLOCK_GOES_ON: Duration = Duration::from_secs(8);

/// The longest lease.
pub(crate) const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// What came of the second request.
enum Taken {
    /// The lock is ours.
    Granted(Grant),
    /// It is to be done once more. Is it ours meanwhile?
    Again { held: bool },
}

impl MemcachedLock {
    /// Takes the lock if it is free, or if its holder was watched for as long as its lease lasts.
    pub(crate) async fn take(&self, claim: &Claim, watch: &mut Watch) -> Result<Option<Grant>> {
        if claim.lease > LONGEST {
            return Err(Error::new(ErrorKind::Invalid, "memcached keeps no lease for longer than 366 days"));
        }
        // Held: its hold was written, and nobody was told so.
        let (mut retry, mut held) = (Retry::default(), false);
        loop {
            let link = self.client.link()?;
            match self.take_over(&link, claim, watch, &mut held).await {
                Ok(granted) => return Ok(granted),
                Err(failed) => {
                    let failed = if held { failed.after_something_was_done() } else { failed };
                    retry.after(failed, &self.client, &link)?;
                }
            }
        }
    }

    async fn take_over(
        &self,
        link: &Arc<Link>,
        claim: &Claim,
        watch: &mut Watch,
        held: &mut bool,
    ) -> Result<Option<Grant>, Failed> {
        let (clock, late) = (&self.client.server.clock, time::Instant::now() + CLOCK_GOES_ON);
        let (mut rounds, mut sent) = (0, clock.now());
        while rounds < ROUNDS {
            let seen = self.see(link, &claim.name, sent).await?;
            let taken = match seen.found {
                Found::Held(ref record) if record.owner == claim.owner.as_str() => {
                    // It was granted before, by an answer that was lost.
                    let until = expiry(seen.second, claim.lease)?;
                    let record = record.prolonged(seen.cas, claim.lease, until)?;
                    self.write(link, claim, &seen, &record, sent).await?
                }
                Found::Held(ref record) if !watch.is_over(link, seen.cas, record.lease(), clock.now()) => {
                    return Ok(None);
                }
                Found::Held(_) => {
                    self.remove_over(link, claim, seen.cas).await?;
                    Taken::Again { held: false }
                }
                Found::Free => match seen.base {
                    // The first answer of all tells no time.
                    Base::New if !seen.is_timed => Taken::Again { held: false },
                    Base::New => {
                        self.set_base(link, seen.base_cas, Base::made(seen.second, seen.base_cas)).await?;
                        Taken::Again { held: false }
                    }
                    Base::Set { from, .. } if seen.second < from => {
                        if time::Instant::now() > late {
                            let wrong = "memcached's clock stands still; look whether the server is stopped";
                            return Err(Error::new(ErrorKind::Unavailable, wrong).into());
                        }
                        time::sleep(LOOK).await;
                        sent = clock.now();
                        continue;
                    }
                    Base::Set { above, .. } if is_behind(above, seen.second, seen.cas.max(seen.base_cas)) => {
                        self.raise_base(link, &seen, above).await?;
                        Taken::Again { held: false }
                    }
                    Base::Set { above, .. } => {
                        let until = expiry(seen.second, claim.lease)?;
                        let record = Record::new(claim, above, seen.second, until);
                        self.write(link, claim, &seen, &record, sent).await?
                    }
                },
            };
            match taken {
                Taken::Granted(grant) => return Ok(Some(grant)),
                Taken::Again { held: now } => *held = now,
            }
            rounds += 1;
        }
        Err(error::overtaken().into())
    }

    /// Removes a hold that is over. If this lands late, it ends none that was renewed.
    async fn remove_over(&self, link: &Link, claim: &Claim, cas: u64) -> Result<(), Failed> {
        let mut commands = Commands::default();
        commands.remove(&self.keys.of(&claim.name), cas);
        let [answer] = done(link.ask(commands).await?)?;
        removed(answer).map(drop)
    }

    /// Puts this hold in the place of what was seen.
    async fn write(
        &self,
        link: &Link,
        claim: &Claim,
        seen: &Seen,
        record: &Record,
        sent: Instant,
    ) -> Result<Taken, Failed> {
        let (key, tokens) = (self.keys.of(&claim.name), self.keys.tokens());
        let mut commands = Commands::default();
        commands.replace(&key, seen.cas, record.until, &record.text()?);
        commands.look(&tokens);
        let [written, base] = done(link.ask(commands).await?)?;
        let Some(cas) = replaced(written)? else { return Ok(Taken::Again { held: false }) };
        // It tells the time once more.
        self.base_in(base).map_err(Error::after_something_was_done)?;
        if self.client.server.second_at(sent) > seen.second {
            // The server's clock was behind when it told the time: the item may expire too soon.
            return Ok(Taken::Again { held: true });
        }
        let token = record.token(cas).map_err(Error::after_something_was_done)?;
        Ok(Taken::Granted(Grant::new(token, sent + claim.lease)))
    }

    /// Raises what tokens are counted from to the server's clock, by a CAS number that is drawn now. It never falls.
    async fn raise_base(&self, link: &Link, seen: &Seen, above: i64) -> Result<(), Failed> {
        match self.set_base(link, seen.base_cas, seen.base).await? {
            Some(cas) if is_behind(above, seen.second, cas) => {
                self.set_base(link, cas, Base::raised(seen.second, cas)).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Sets what tokens are counted from, unless somebody else has meanwhile; and answers the CAS number of that.
    async fn set_base(&self, link: &Link, cas: u64, base: Base) -> Result<Option<u64>, Failed> {
        let mut commands = Commands::default();
        commands.set_tokens(&self.keys.tokens(), cas, base);
        let [written] = done(link.ask(commands).await?)?;
        replaced(written)
    }
}
