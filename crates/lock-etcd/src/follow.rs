//! The line of a semaphore as one of those who wait knows it: as it was at one moment, and what was heard of it since.
//!
//! What is heard may come late, and some of it never; so only that is believed which stays true. A key that has ended does
//! not come again: whoever was ahead with it is not ahead any more, and has no permits. And who has which permits is known
//! for as long as nobody writes it anew, which the store compares. Whoever has permits and did not stand in the line at that
//! moment has them until the line is looked at once more.

use std::collections::HashMap;
use std::sync::Arc;

use etcd_client::KeyValue;
use lock_core::StoreToken;
use tokio::time::Instant;

use crate::permits::{Permits, Stands, Taken, View, weight};
use crate::requests::Spot;
use crate::waiters::Entry;

/// What is told to those who follow a line.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// What was created under this name before this revision is gone.
    Ended { key: Arc<str>, at: i64 },
    /// Who has which permits now.
    Permits(Arc<Permits>),
    /// Something that only a look shows was heard then.
    Look(Instant),
}

impl News {
    pub(crate) fn look() -> Self {
        Self::Look(Instant::now())
    }

    /// Of a key of the line.
    pub(crate) fn of_line(happened: &Happened<'_>) -> Option<Self> {
        match happened.put {
            None => Some(Self::Ended { key: happened.key.into(), at: happened.at }),
            // Who comes is behind all who wait.
            Some(put) if put.create_revision() == happened.at => None,
            Some(_) => Some(Self::look()),
        }
    }

    /// Of the key that says who has which permits.
    pub(crate) fn of_permits(happened: &Happened<'_>) -> Self {
        match happened.put.map(Permits::read) {
            Some(Ok(permits)) => Self::Permits(Arc::new(permits)),
            _ => Self::look(),
        }
    }
}

/// What a watch tells of.
pub(crate) struct Happened<'a> {
    pub(crate) key: &'a str,
    pub(crate) at: i64,
    /// None: it was deleted.
    pub(crate) put: Option<&'a KeyValue>,
}

/// Where a claim stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It has taken these.
    Has(Taken),
    /// It is to take its permits.
    Take,
    Wait,
    /// Behind this key, which hangs on no lease.
    Stray(String),
    Gone,
}

pub(crate) struct Followed {
    view: Arc<View>,
    /// Before it was asked for.
    pub(crate) asked: Instant,
    /// The last that is known.
    permits: Option<Arc<Permits>>,
    /// What was created under these names before these revisions is gone.
    ended: HashMap<Arc<str>, i64>,
    /// The same of whose keys they were.
    left: Vec<(String, i64)>,
    /// Who had these permits has them no more.
    over: Vec<(String, Option<StoreToken>)>,
}

impl Followed {
    pub(crate) fn new(view: Arc<View>, asked: Instant) -> Self {
        let permits = view.permits.clone();
        let is_away = |taken: &&Taken| !view.line.iter().any(|one| one.owner == taken.owner);
        let over = permits.iter().flat_map(|permits| &permits.taken).filter(is_away).map(Taken::id).collect();
        Self { view, asked, permits, ended: HashMap::new(), left: Vec::new(), over }
    }

    /// Was anything heard since it was asked for?
    pub(crate) fn has_news(&self) -> bool {
        !self.ended.is_empty() || self.permits.as_ref().map(|permits| permits.put) != self.put()
    }

    fn put(&self) -> Option<i64> {
        self.view.permits.as_ref().map(|permits| permits.put)
    }

    /// Since when the line is to be looked at, if it is.
    pub(crate) fn hear(&mut self, news: News) -> Option<Instant> {
        match news {
            News::Look(at) => return Some(at).filter(|at| *at >= self.asked),
            // It is in what was answered.
            News::Ended { at, .. } if at <= self.view.at => {}
            News::Ended { key, at } => {
                let has_ended = |one: &&Stands| *one.entry.key == *key && one.entry.created < at;
                if let Some(one) = self.view.line.iter().find(has_ended) {
                    self.left.push((one.owner.clone(), at));
                    self.ended.insert(key, at);
                }
            }
            News::Permits(permits) if self.permits.as_ref().is_some_and(|known| known.put < permits.put) => {
                self.permits = Some(permits);
            }
            News::Permits(_) => {}
        }
        // Who left since that was put had it until then. Whoever writes it anew and has not heard of that writes it again.
        let taken = self.permits.iter().flat_map(|permits| permits.taken.iter().map(|taken| (taken, permits.put)));
        for (taken, put) in taken {
            let has_left = self.left.iter().any(|(owner, at)| *owner == taken.owner && *at > put);
            if has_left && !self.over.contains(&taken.id()) {
                self.over.push(taken.id());
            }
        }
        None
    }

    /// The last that is known of who has which permits.
    pub(crate) fn permits(&self) -> Option<&Permits> {
        self.permits.as_deref()
    }

    /// Those who have permits, and have not left as far as is known.
    pub(crate) fn holders(&self) -> Vec<Taken> {
        let taken = self.permits.iter().flat_map(|permits| &permits.taken);
        taken.filter(|taken| !self.over.contains(&taken.id())).cloned().collect()
    }

    fn is_there(&self, one: &Stands) -> bool {
        self.ended.get(&*one.entry.key).is_none_or(|before| one.entry.created >= *before)
    }

    fn ahead(&self, own: &Entry) -> impl Iterator<Item = &Stands> + Clone {
        let before = self.view.line.iter().take_while(|one| one.entry.created < own.created);
        before.filter(|one| self.is_there(one))
    }

    /// The permits that this owner has by what is known.
    pub(crate) fn taken_by(&self, owner: &str) -> Option<&Taken> {
        self.permits.as_ref()?.of_owner(owner)
    }

    /// Whose turn it is, of the claim that has this key. These permits of the same owner are of an earlier key, which is gone.
    pub(crate) fn turn(&self, spot: &Spot, own: &Entry, earlier: Option<&Taken>) -> Turn {
        if !self.view.line.iter().any(|one| one.entry == *own && self.is_there(one)) {
            return Turn::Gone;
        }
        let Some(permits) = &self.permits else { return Turn::Gone };
        if let Some(taken) = self.taken_by(spot.owner.as_str()).filter(|taken| Some(*taken) != earlier) {
            return Turn::Has(taken.clone());
        }
        let ahead = self.ahead(own);
        if let Some(stray) = ahead.clone().find(|one| !one.has_lease) {
            return Turn::Stray(stray.entry.key.clone());
        }
        if weight(ahead).saturating_add(spot.mode.weight()) <= permits.of { Turn::Take } else { Turn::Wait }
    }

    /// Is it the turn of somebody ahead, too, who has not taken its permits yet? Of two who do that at the same time, one is
    /// refused.
    pub(crate) fn others_take(&self, own: &Entry) -> bool {
        let has_some = |one: &Stands| self.permits().is_some_and(|permits| permits.of_owner(&one.owner).is_some());
        self.ahead(own).any(|one| !has_some(one))
    }
}

#[cfg(test)]
mod tests {
    use lock_core::{Claim, LockName, Mode, OwnerId, Slots};

    use super::*;
    use crate::keys::Keys;

    const OF: u32 = 2;

    /// Stands in line with a key that was created then; one of our own is the last.
    fn stands(owner: &str, created: i64) -> Stands {
        let entry = Entry { key: format!("app/x/permit/{owner}"), created };
        Stands { entry, owner: owner.to_owned(), weight: 1, has_lease: true }
    }

    /// Put then: these have a permit each.
    fn permits(put: i64, owners: &[(&str, u64)]) -> Arc<Permits> {
        let taken = owners.iter().zip(0..).map(|((owner, token), slot)| Taken {
            owner: (*owner).to_owned(),
            slots: Slots::new([slot]),
            token: StoreToken::new(*token).ok(),
        });
        Arc::new(Permits { of: OF, put, taken: taken.collect() })
    }

    fn spot(owner: &str) -> Spot {
        let mode = Mode::Permits { take: 1, of: OF };
        let owner = OwnerId::from_store(owner);
        let mut claim = Claim::new(LockName::new("x").unwrap(), owner, std::time::Duration::MAX);
        claim.mode = mode;
        Spot::new(&Keys::new("app").unwrap(), &claim, 26, 0)
    }

    /// `a` and `b` have the permits, `c` and `d` wait.
    fn line() -> Followed {
        let line = [("a", 1), ("b", 2), ("c", 6), ("d", 7)].map(|(owner, created)| stands(owner, created)).to_vec();
        Followed::new(Arc::new(View { at: 8, line, permits: Some(permits(5, &[("a", 3), ("b", 4)])) }), Instant::now())
    }

    fn ended(owner: &str, at: i64) -> News {
        News::Ended { key: format!("app/x/permit/{owner}").into(), at }
    }

    fn turn(line: &Followed, owner: &str, created: i64) -> Turn {
        line.turn(&spot(owner), &stands(owner, created).entry, None)
    }

    fn holders(line: &Followed) -> Vec<String> {
        line.holders().into_iter().map(|taken| taken.owner).collect()
    }

    #[test]
    fn it_is_ones_turn_when_those_ahead_have_ended() {
        let mut line = line();
        assert_eq!((turn(&line, "c", 6), turn(&line, "d", 7)), (Turn::Wait, Turn::Wait));
        // Of before that was asked for, and of an earlier claim with the same name.
        for old in [ended("a", 8), ended("a", 1)] {
            assert_eq!(line.hear(old), None);
        }
        assert!(!line.has_news() && turn(&line, "c", 6) == Turn::Wait);
        line.hear(ended("b", 9));
        assert!(line.has_news());
        assert_eq!((turn(&line, "c", 6), turn(&line, "d", 7)), (Turn::Take, Turn::Wait));
        assert!(!line.others_take(&stands("c", 6).entry));
        // It is both's turn, and `c` takes its permit first.
        line.hear(ended("a", 10));
        assert_eq!((turn(&line, "d", 7), holders(&line).is_empty()), (Turn::Take, true));
        assert!(line.others_take(&stands("d", 7).entry));
        line.hear(News::Permits(permits(11, &[("c", 6)])));
        assert!(!line.others_take(&stands("d", 7).entry) && holders(&line) == ["c"]);
        assert_eq!((turn(&line, "d", 7), turn(&line, "x", 3)), (Turn::Take, Turn::Gone));
        line.hear(ended("d", 12));
        assert_eq!(turn(&line, "d", 7), Turn::Gone);
    }

    /// Whoever had not heard of it writes it down again.
    #[test]
    fn who_has_left_has_no_permits_whatever_is_written_later() {
        for first in [true, false] {
            let mut line = line();
            let news = [ended("b", 9), News::Permits(permits(8, &[("a", 3), ("b", 4)]))];
            let news = if first {
                news
            } else {
                let [a, b] = news;
                [b, a]
            };
            assert!(news.into_iter().all(|news| line.hear(news).is_none()));
            assert_eq!(holders(&line), ["a"], "{first}");
            line.hear(News::Permits(permits(11, &[("a", 3), ("b", 4)])));
            assert_eq!(holders(&line), ["a"], "{first}");
            // Older than that.
            line.hear(News::Permits(permits(10, &[])));
            assert_eq!(holders(&line), ["a"], "{first}");
        }
    }

    /// Whoever heard of the end of that key gives them to others.
    #[test]
    fn what_an_earlier_key_had_is_not_had() {
        let mut line = Followed::new(
            Arc::new(View { at: 8, line: vec![stands("a", 8)], permits: Some(permits(5, &[("a", 3), ("b", 4)])) }),
            Instant::now(),
        );
        let (spot, own) = (spot("a"), stands("a", 8).entry);
        let earlier = line.taken_by("a").cloned();
        let turn = |line: &Followed, earlier: Option<&Taken>| line.turn(&spot, &own, earlier);
        assert!(matches!(turn(&line, None), Turn::Has(_)));
        assert_eq!(turn(&line, earlier.as_ref()), Turn::Take);
        // Somebody who did not hear of that end wrote them again.
        line.hear(News::Permits(permits(9, &[("a", 3)])));
        assert_eq!(turn(&line, earlier.as_ref()), Turn::Take);
        line.hear(News::Permits(permits(10, &[("a", 9)])));
        assert!(matches!(turn(&line, earlier.as_ref()), Turn::Has(_)));
    }

    /// Nobody knows of it where its key is, so it has its permit.
    #[test]
    fn who_is_not_known_to_have_left_has_its_permits() {
        let mut line = line();
        line.hear(ended("a", 9));
        line.hear(News::Permits(permits(12, &[("b", 4), ("new", 6)])));
        assert_eq!(holders(&line), ["b", "new"]);
        line.hear(ended("new", 13));
        assert_eq!(holders(&line), ["b", "new"]);
        // The same owner, later: other permits than those that it had.
        line.hear(ended("b", 14));
        line.hear(News::Permits(permits(16, &[("b", 15), ("new", 6)])));
        assert_eq!(holders(&line), ["b", "new"]);
        // Known from the answer: whoever is not in the line has none.
        let (one, known) = (vec![stands("c", 6)], permits(5, &[("a", 3), ("c", 4)]));
        assert_eq!(
            holders(&Followed::new(Arc::new(View { at: 8, line: one, permits: Some(known) }), Instant::now())),
            ["c"]
        );
    }

    #[test]
    fn what_was_heard_before_is_not_looked_at() {
        let before = Instant::now();
        let mut line = line();
        let after = Instant::now();
        assert_eq!(line.hear(News::Look(after)), Some(after));
        assert_eq!(line.hear(News::Look(before - std::time::Duration::from_secs(1))), None);
    }
}
