//! The task of a client with waiters: it hears of grants by the client's bell, shows the database that the client lives,
//! and now and then looks for what the bell did not tell.
//!
//! Whatever goes wrong, the bell is made anew, with a new id, and all waiters enter anew, in their old places, but for
//! those who were granted their locks meanwhile and did not hear of it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_core::{Failures, InLine, News, OwnerId, Result, Watched};
use tokio::time::Instant;

use super::bell::{Bell, Rung};
use super::{MySqlLock, arguments, hex};
use crate::keys::duration;
use crate::modes::mark;
use crate::server::{Again, Read};

/// How often a client that has a bell looks by itself, and one that has none. A client counts as living for three such
/// turns, and the second for thirty: see `WAITS` in `statements.rs`.
pub(super) const TURNS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(100));

/// For so long a client without waiters goes on listening.
const LINGER: Duration = Duration::from_secs(60);

/// How many locks one request looks at.
const AT_ONCE: usize = 100;

/// A bell, and what it told.
type Heard = (Bell, Vec<Rung>);

/// Listens and looks until nobody has waited for some time.
pub(super) async fn keep_watching(lock: MySqlLock) {
    let mut failures = Failures::default();
    while let Err(failed) = lock.watch(&mut failures).await {
        lock.be_known_as(0);
        if !lock.waiters.try_again_after(&mut failures, &failed).await {
            return;
        }
    }
}

impl MySqlLock {
    /// Listens and looks. It ends well when nobody has waited for some time.
    async fn watch(&self, failures: &mut Failures) -> Result<()> {
        let client = (rand::random::<u64>() >> 1) as i64 | 1;
        let bell = self.hang_bell(client).await?;
        let rings = bell.as_ref().map_or(0, |bell| bell.session);
        self.show_life(client, rings).await?;
        self.be_known_as(client);
        self.waiters.enter_anew(None);
        let mut sleeping = bell.map(|bell| bell.sleep(self).boxed());
        let mut waited_for = Instant::now();
        let turn = if rings == 0 { TURNS.1 } else { TURNS.0 };
        loop {
            tokio::select! {
                rung = heard(&mut sleeping) => {
                    let (bell, rung) = rung?;
                    let arrived = self.server.clock.now();
                    for Rung { owner, token, slots, at_us } in rung {
                        let owner = OwnerId::from_store(&owner);
                        if owner.before_it_kept().is_some() {
                            // A hold that somebody here waits for may end earlier now.
                            self.waiters.look_by(Instant::now());
                            continue;
                        }
                        let told = News::Granted { token: token as u64, slots, at_us, arrived };
                        self.waiters.tell_owner(&owner, told);
                    }
                    sleeping = Some(bell.sleep(self).boxed());
                }
                () = self.waiters.due(turn) => {
                    if self.waiters.anybody() {
                        waited_for = Instant::now();
                    } else if waited_for.elapsed() > LINGER && self.waiters.is_over() {
                        return Ok(());
                    }
                    self.show_life(client, rings).await?;
                    self.look().await?;
                    failures.forget();
                }
            }
        }
    }

    /// The id by which the database knows this client, once it does.
    pub(super) fn known_as(&self) -> Option<i64> {
        Some(self.client.load(Ordering::SeqCst)).filter(|&client| client != 0)
    }

    pub(super) fn be_known_as(&self, client: i64) {
        self.client.store(client, Ordering::SeqCst);
    }

    async fn show_life(&self, client: i64, rings: i64) -> Result<()> {
        let arguments = arguments!(client.to_string().as_str(), rings);
        self.server.run(&self.statements.seen, arguments, Again::Yes).await.map(drop)
    }

    /// Looks at what is waited for, and hands over what nobody has.
    async fn look(&self) -> Result<()> {
        for some in self.waiters.watched().chunks(AT_ONCE) {
            let free = self.look_at(some).await?;
            for key in &free {
                self.serve(key).await?;
            }
            // Who has them now is seen at once where no bell tells it.
            if !free.is_empty() {
                self.look_at(some).await?;
            }
        }
        Ok(())
    }

    /// Answers which of them nobody has, or not alone.
    async fn look_at(&self, some: &[Watched<String>]) -> Result<Vec<String>> {
        let in_line = self.in_line(some).await?;
        let keys: Vec<_> = some.iter().map(|one| hex(&one.key)).collect();
        let (watched, mut free) = (&self.statements.watched, Vec::new());
        let answer = self.run(watched, [("{keys}", &keys.join(", "))], 1, Again::Yes).await?;
        let mut rows = HashMap::new();
        for row in &answer.rows {
            rows.insert(row.read::<Vec<u8>, _>("name")?, row);
        }
        let mut looked = None;
        for one in some {
            let Some(row) = rows.get(one.key.as_bytes()) else {
                // Somebody removed its row.
                self.waiters.enter_anew(Some(&one.key));
                continue;
            };
            let now_us: i64 = row.read("now_us")?;
            looked = Some(InLine { sent: answer.sent, store_us: now_us });
            let left_us: Option<i64> = row.read("left_us")?;
            let holder: Option<Vec<u8>> = row.read("owner")?;
            let holder = holder.filter(|_| left_us.is_some());
            if let Some(holder) = &holder {
                // If that is one of ours, its grant was not told: it finds it where it entered.
                self.waiters.tell_owner(&OwnerId::from_store(&String::from_utf8_lossy(holder)), News::Enter);
            }
            if !in_line.contains(one.owner.as_str().as_bytes())
                && holder.as_deref() != Some(one.owner.as_str().as_bytes())
            {
                self.waiters.enter_anew(Some(&one.key));
            }
            match left_us {
                None => free.push(one.key.clone()),
                Some(left) => {
                    if left > row.read::<i64, _>("lease_us")? {
                        self.shorten(&one.key).await?;
                    }
                    self.waiters.look_after(duration(left));
                    if holder.as_deref().is_some_and(is_mark) {
                        // Who was first in line may have died.
                        free.push(one.key.clone());
                    }
                }
            }
        }
        looked.into_iter().for_each(|looked| self.waiters.looked(looked));
        Ok(free)
    }

    /// Whose waiters' rows are there.
    async fn in_line(&self, some: &[Watched<String>]) -> Result<HashSet<Vec<u8>>> {
        let owners: Vec<_> = some.iter().map(|one| hex(one.owner.as_str())).collect();
        let values = [("{owners}", &owners.join(", "))];
        let answer = self.run(&self.statements.in_line, values, 1, Again::Yes).await?;
        answer.rows.iter().map(|row| row.read("owner")).collect()
    }
}

/// Do several hold the lock that has this owner?
fn is_mark(owner: &[u8]) -> bool {
    std::str::from_utf8(owner).is_ok_and(|owner| mark(owner).is_some())
}

/// What the bell tells next; never anything if there is none.
async fn heard(sleeping: &mut Option<BoxFuture<'_, Result<Heard>>>) -> Result<Heard> {
    match sleeping {
        Some(sleeping) => sleeping.await,
        None => std::future::pending().await,
    }
}
