//! What is to be seen of a lock in several stores.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lock_core::{ErrorKind, Finding, Holder, ListQuery, LockName, LockStatus, Page, Result, Waiter};

use crate::gather::{Answers, Request};
use crate::member::Member;
use crate::{Inner, rejoin, tally};

impl Inner {
    /// What a majority sees; `None`: that store did not answer. A store may refuse, as an SQLite file does in which
    /// no lock was taken yet: then there is `nothing` in it, if others answer.
    async fn seen<'a, T: Send + Clone + 'a>(
        &'a self,
        what: &str,
        nothing: T,
        request: impl Fn(&'a Member) -> Request<'a, T>,
    ) -> Result<Vec<Option<T>>> {
        let is_seen = |answer: &Option<Result<T>>| match answer {
            Some(Err(error)) => error.kind() == ErrorKind::Refused,
            other => other.is_some(),
        };
        let count = |answers: &[Option<Result<T>>]| answers.iter().filter(|answer| is_seen(answer)).count();
        let answers = self.ask(request, |answers| count(answers) >= self.majority()).await;
        if count(&answers) < self.majority() || !answers.iter().any(|answer| matches!(answer, Some(Ok(_)))) {
            return Err(tally::refused(what, &answers));
        }
        let seen = |answer: Option<Result<T>>| match answer {
            Some(Err(error)) if error.kind() == ErrorKind::Refused => Some(nothing.clone()),
            answer => answer?.ok(),
        };
        Ok(answers.into_iter().map(seen).collect())
    }

    pub(crate) async fn holder_of(&self, name: &LockName) -> Result<Option<Holder>> {
        let seen = self.seen("holder", None, |member| Box::pin(member.holder(name)));
        Ok(holder(&seen.await?.iter().map(Option::as_ref).map(|seen| seen.map(Option::as_ref)).collect::<Vec<_>>()))
    }

    pub(crate) async fn status_of(&self, name: &LockName) -> Result<LockStatus> {
        let seen = self.seen("inspect", LockStatus::free(name.clone()), |member| Box::pin(member.inspect(name)));
        let seen = seen.await?;
        Ok(status(name, &seen.iter().map(Option::as_ref).collect::<Vec<_>>()))
    }

    /// The locks of all pages, as far as each goes. What is the quorum's own is left out.
    pub(crate) async fn page(&self, query: &ListQuery) -> Result<Page> {
        let pages = self.seen("list", Page::default(), |member| Box::pin(member.list(query)));
        let pages = pages.await?;
        let end = pages.iter().flatten().filter_map(|page| page.next.clone()).min();
        let listed = pages.iter().flatten().flat_map(|page| &page.locks).map(|lock| lock.name.clone());
        let names: BTreeSet<_> =
            listed.filter(|name| end.as_ref().is_none_or(|end| name <= end) && !rejoin::is_own(name)).collect();
        let by_name = |page: &Page| -> BTreeMap<LockName, LockStatus> {
            page.locks.iter().map(|lock| (lock.name.clone(), lock.clone())).collect()
        };
        let pages: Vec<_> = pages.iter().map(|page| page.as_ref().map(by_name)).collect();
        let mut locks = Vec::new();
        for name in names {
            let free = LockStatus::free(name.clone());
            let seen: Vec<_> =
                pages.iter().map(|page| page.as_ref().map(|page| page.get(&name).unwrap_or(&free))).collect();
            let status = status(&name, &seen);
            if status.holder().is_some() || !status.waiters.is_empty() {
                locks.push(status);
            }
        }
        let next = query.cut(&mut locks, |lock| &lock.name).or(end);
        Ok(Page::new(locks, next))
    }

    /// Whom a majority named.
    pub(crate) fn common(&self, answers: Answers<Option<Holder>>) -> Option<Holder> {
        let seen: Vec<_> = answers.into_iter().map(|answer| answer?.ok()).collect();
        holder(&seen.iter().map(Option::as_ref).map(|seen| seen.map(Option::as_ref)).collect::<Vec<_>>())
    }

    /// Those of each store, and what is amiss with the quorum itself.
    pub(crate) async fn findings(&self) -> Result<Vec<Finding>> {
        let answers = self.ask(
            |member| Box::pin(async move { member.client()?.doctor().await.map_err(|error| member.named(error)) }),
            |answers| answers.iter().all(Option::is_some),
        );
        let answers: Answers<Vec<Finding>> = answers.await;
        let answered = answers.iter().filter(|answer| matches!(answer, Some(Ok(_)))).count();
        if answered < self.majority() {
            return Err(tally::refused("doctor", &answers));
        }
        let mut findings = Vec::new();
        for ((number, member), answer) in (1..).zip(&self.members).zip(answers) {
            let amiss =
                |what: String| Finding::new(what, "one more store that fails may end the quorum", "see to this store");
            match answer {
                Some(Ok(found)) => findings.extend(found.into_iter().map(|found| {
                    Finding::new(format!("store {number}: {}", found.setting), found.voids, found.advice)
                })),
                // A file in which no lock was taken yet.
                Some(Err(error)) if error.kind() == ErrorKind::Refused && member.is_unmade().await => {}
                Some(Err(error)) => findings.push(amiss(error.to_string())),
                None => findings.push(amiss(format!("store {number} does not answer"))),
            }
        }
        findings.extend(self.young().await);
        Ok(findings)
    }

    /// Those that do not count yet.
    async fn young(&self) -> Vec<Finding> {
        let Some(longest) = self.options.rejoin_after else { return Vec::new() };
        let marks = self.ask(
            |member| Box::pin(async move { rejoin::marked(member.client()?).await }),
            |answers| answers.iter().all(Option::is_some),
        );
        let ages = marks.await.into_iter().map(|mark| mark.and_then(Result::ok).map(Option::unwrap_or_default));
        let young = (1..).zip(ages).filter_map(|(number, age): (usize, _)| Some((number, longest.checked_sub(age?)?)));
        let finding = |(number, left): (usize, Duration)| {
            Finding::new(
                format!("store {number} is new, or has lost what it kept"),
                format!("it does not count for {} s", rejoin::seconds(left)),
                "wait; if it is not new, let it save every write",
            )
        };
        young.map(finding).collect()
    }
}

/// Who holds it: the owner that a majority of the stores has, or could have if those that did not answer have it too.
/// Of what they say, the highest token, and as much time as is left with a majority. That token is the grant's, unless
/// the store that gave it is silent now, or another one granted the lock so late that it did not count.
fn holder(seen: &[Option<Option<&Holder>>]) -> Option<Holder> {
    let majority = tally::majority(seen.len());
    let silent = seen.iter().filter(|seen| seen.is_none()).count();
    let held: Vec<&Holder> = seen.iter().copied().flatten().flatten().collect();
    let same = |one: &Holder| held.iter().filter(|other| (&other.owner, other.kept) == (&one.owner, one.kept)).count();
    let most = held.iter().copied().max_by_key(|holder| same(holder))?;
    if same(most) + silent < majority {
        return None;
    }
    let mut holders: Vec<_> =
        held.iter().filter(|other| (&other.owner, other.kept) == (&most.owner, most.kept)).collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.remaining));
    let remaining = holders[holders.len().min(majority) - 1].remaining;
    let token = holders.iter().map(|holder| holder.token).max()?;
    let held_for = holders.iter().map(|holder| holder.held_for).min()?;
    let mut holder = most.clone();
    (holder.token, holder.remaining, holder.held_for) = (token, remaining, held_for);
    Some(holder)
}

/// The holder, and who stands in the line of any store.
fn status(name: &LockName, seen: &[Option<&LockStatus>]) -> LockStatus {
    let held = holder(&seen.iter().map(|seen| seen.map(LockStatus::holder)).collect::<Vec<_>>());
    let mut waiters: Vec<Waiter> = Vec::new();
    for waiter in seen.iter().flatten().flat_map(|status| &status.waiters) {
        let is_known = waiters.iter().any(|known| known.owner == waiter.owner);
        if !is_known && held.as_ref().is_none_or(|held| held.owner != waiter.owner) {
            waiters.push(waiter.clone());
        }
    }
    LockStatus::new(name.clone(), held, waiters)
}
