//! How the stores are connected to, at first and later, and which may be a part of a quorum.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Capabilities, Clock, Error, ErrorKind, Result, Scope, SystemClock};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use crate::gather::{Request, gather};
use crate::member::{Client, Member};
use crate::options::QuorumOptions;
use crate::{Inner, QuorumLock, rejoin, tally};

impl QuorumLock {
    /// Connects to a majority at least.
    pub(crate) async fn open(members: Vec<Member>, options: QuorumOptions) -> Result<Self> {
        let majority = tally::majority(members.len());
        let requests = members.iter().enumerate().map(|(place, member)| {
            let request: Request<'_, Client> = Box::pin(async move {
                match member.known() {
                    Some(client) => Ok(Arc::clone(client)),
                    None => member.try_connect().await,
                }
            });
            (place, request)
        });
        let connected =
            |answers: &[Option<Result<Client>>]| answers.iter().filter(|answer| matches!(answer, Some(Ok(_)))).count();
        let answers = gather(&members, requests, options.timeout * 2, |answers| connected(answers) >= majority).await;
        for (member, answer) in members.iter().zip(&answers) {
            match answer {
                Some(Ok(client)) => check(&client.capabilities(), &options).map_err(|error| member.named(error))?,
                // What is wrong with a URL does not mend itself.
                Some(Err(error)) if is_for_good(error) => return Err(error.clone()),
                _ => {}
            }
        }
        if connected(&answers) < majority {
            return Err(tally::refused("too few stores can be reached", &answers));
        }
        for (member, answer) in members.iter().zip(answers) {
            if let Some(answer) = answer {
                member.tell(answer, false);
            }
        }
        let clients: Vec<_> = members.iter().filter_map(Member::known).cloned().collect();
        // What only looks on makes no store.
        let unmade = join_all(members.iter().map(|member| timeout(options.timeout, member.is_unmade()))).await;
        let unmade: Vec<_> = unmade.into_iter().map(|unmade| unmade.unwrap_or(false)).collect();
        let apart = OnceCell::new();
        if !unmade.contains(&true) {
            check_apart(&members, &options).await?;
            apart.set(()).expect("it is new");
        }
        if options.rejoin_after.is_some() {
            let made = members.iter().zip(unmade).filter(|(_, unmade)| !unmade);
            for client in made.filter_map(|(member, _)| member.known()) {
                // One that fails gets its mark by the first grant.
                let marked = timeout(options.timeout, rejoin::marked_for(client)).await;
                tracing::debug!(?marked, "a store's mark");
            }
        }
        let clock = clients.first().map_or_else(|| Arc::new(SystemClock) as Arc<dyn Clock>, |client| client.clock());
        let capabilities = common(clients.iter().map(|client| client.capabilities()), &options);
        let holds = Mutex::new(HashMap::new());
        Ok(Self(Arc::new(Inner { members, clock, capabilities, options, apart, holds })))
    }

    /// Before the first lock is taken: no two stores are the same, also of those that it makes.
    pub(crate) async fn check_apart(&self) -> Result<()> {
        if self.0.apart.initialized() {
            return Ok(());
        }
        let inner = Arc::clone(&self.0);
        // A task of its own: whoever waits for it may be gone while a probe is held.
        let checking = tokio::spawn(async move {
            let Inner { members, options, apart, .. } = &*inner;
            apart.get_or_try_init(|| check_apart(members, options)).await.copied()
        });
        checking.await.unwrap_or_else(|ended| Err(Error::new(ErrorKind::Unavailable, "not checked").with_source(ended)))
    }

    /// Connects in the background to stores that could not be reached.
    pub(crate) fn reach_all(&self) {
        for (place, member) in self.0.members.iter().enumerate() {
            member.begin(|| {
                let inner = Arc::clone(&self.0);
                async move {
                    let member = &inner.members[place];
                    let joined = async {
                        let client = member.try_connect().await?;
                        check(&client.capabilities(), &inner.options).map_err(|error| member.named(error))?;
                        check_one_apart(&inner.members, place, &client, &inner.options).await?;
                        Ok(client)
                    };
                    let joined: Result<Client> = joined.await;
                    let for_good = joined.as_ref().is_err_and(is_for_good);
                    member.tell(joined, for_good);
                }
            });
        }
    }
}

fn is_for_good(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported)
}

/// May this store be a part of a quorum?
fn check(capabilities: &Capabilities, options: &QuorumOptions) -> Result<()> {
    let backend = capabilities.backend;
    let refused =
        |why: &str| Err(Error::new(ErrorKind::Unsupported, format!("{backend} cannot be in a quorum: {why}")));
    if !capabilities.raises_tokens {
        return refused("it takes no floor under its tokens, without which those of a quorum do not rise");
    }
    if !capabilities.numbers_grants {
        return refused("it numbers a claim when that joins its line, so a floor comes too late for those that wait");
    }
    if options.rejoin_after.is_some() && !capabilities.keeps {
        return refused("rejoin_after needs stores that keep a lock for an owner that has gone");
    }
    Ok(())
}

/// No two of the stores are one and the same: what is held in one by a claim is not held in another.
async fn check_apart(members: &[Member], options: &QuorumOptions) -> Result<()> {
    for (place, member) in members.iter().enumerate() {
        if let Some(client) = member.known() {
            check_one_apart(&members[..place], place, client, options).await?;
        }
    }
    Ok(())
}

/// How soon a probe is tried again that another client has.
const MOMENT: Duration = Duration::from_millis(5);

/// This store, which has that place, is none of the others. What does not answer is taken for another one.
async fn check_one_apart(members: &[Member], place: usize, client: &Client, options: &QuorumOptions) -> Result<()> {
    let others: Vec<_> =
        members.iter().enumerate().filter(|(at, other)| *at != place && other.known().is_some()).collect();
    if others.is_empty() {
        return Ok(());
    }
    // One that a dead client left behind ends while this waits for it.
    let probe = rejoin::own(rejoin::probe(), client, options.timeout / 2);
    let taking = async {
        // Others may have it for a moment.
        while client.try_lock(&probe).await.ok()?.is_none() {
            sleep(MOMENT).await;
        }
        Some(())
    };
    let is_same = |answer: &Option<Result<bool>>| matches!(answer, Some(Ok(true)));
    let mut same = None;
    if let Ok(Some(())) = timeout(options.timeout, taking).await {
        let probe = &probe;
        // All at once: one that is silent hides no other.
        let looks = others.into_iter().map(|(at, other)| {
            let look: Request<'_, bool> = Box::pin(async move {
                let holder = other.client()?.holder(&probe.name).await?;
                Ok(holder.is_some_and(|holder| holder.owner == probe.owner))
            });
            (at, look)
        });
        let answers = gather(members, looks, options.timeout, |answers| answers.iter().any(is_same)).await;
        same = answers.iter().position(is_same);
    }
    // If it fails, the lease ends it.
    let released = timeout(options.timeout, client.unlock(&probe)).await;
    tracing::trace!(?released, "a probe");
    match same {
        Some(at) => {
            let wrong = format!("stores {} and {} are the same store", at + 1, place + 1);
            Err(Error::new(ErrorKind::Invalid, wrong))
        }
        None => Ok(()),
    }
}

/// The shortest lease of a quorum: a grant takes two rounds, and slow stores are waited for in each.
const SHORTEST: Duration = Duration::from_millis(100);

/// What all of them can do, and a quorum of them too. It has no line, values, modes and kept holds.
fn common(stores: impl Iterator<Item = Capabilities>, options: &QuorumOptions) -> Capabilities {
    let mut quorum = Capabilities::new("quorum", Scope::Network);
    quorum.raises_tokens = true;
    quorum.numbers_grants = true;
    quorum.max_lease = options.rejoin_after;
    quorum.min_lease = SHORTEST;
    for store in stores {
        quorum.scope = quorum.scope.min(store.scope);
        quorum.min_lease = quorum.min_lease.max(store.min_lease);
        quorum.max_lease = quorum.max_lease.into_iter().chain(store.max_lease).min();
        quorum.answers_within = quorum.answers_within.max(store.answers_within.min(options.timeout));
    }
    quorum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_cannot_take_a_floor_is_refused_with_the_reason() {
        let plain = QuorumOptions::default;
        for (raises, numbers, keeps, options, why) in [
            (false, true, true, plain(), "takes no floor"),
            (true, false, true, plain(), "joins its line"),
            (true, true, false, plain().rejoin_after(Duration::from_secs(1)), "rejoin_after needs"),
        ] {
            let mut store = Capabilities::new("paper", Scope::Host);
            (store.raises_tokens, store.numbers_grants, store.keeps) = (raises, numbers, keeps);
            let error = check(&store, &options).unwrap_err();
            assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains(why), "{error}");
            (store.raises_tokens, store.numbers_grants, store.keeps) = (true, true, true);
            check(&store, &options).unwrap();
        }
    }

    #[test]
    fn it_can_do_no_more_than_its_weakest_store() {
        let mut stores = [Scope::Network, Scope::Host, Scope::Network].map(|scope| Capabilities::new("paper", scope));
        stores[0].min_lease = Duration::from_secs(2);
        stores[1].max_lease = Some(Duration::from_secs(30));
        stores.iter_mut().for_each(|store| store.fair = true);
        let quorum = common(stores.into_iter(), &QuorumOptions::default().rejoin_after(Duration::from_secs(60)));
        assert_eq!((quorum.scope, quorum.min_lease), (Scope::Host, Duration::from_secs(2)));
        assert_eq!((quorum.max_lease, quorum.fair), (Some(Duration::from_secs(30)), false));
    }
}
