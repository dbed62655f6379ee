//! Models of the protocols: all that a few clients and a store can do, in every order. Each model names the code that
//! it stands for, and the rules that it checks. And each has mutations: faults, some of them once found in the code,
//! that the rules must catch.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::fmt;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model, UniformChooser};

mod etcd;
mod line;
mod modes;
mod page;
mod postgres;
mod queue;
mod quorum;
mod redis;
mod waiters;
mod zookeeper;

pub use page::page;

/// A model, without its types.
pub struct Proof {
    /// What it is called.
    pub name: &'static str,
    /// The files that it stands for.
    pub stands_for: &'static [&'static str],
    /// The rules that hold in every state, or on every path.
    pub rules: &'static [&'static str],
    /// The faults that it can be given, by name.
    pub mutations: &'static [&'static str],
    /// Explores all of the model, with this fault or none.
    pub explore: fn(mutation: Option<&'static str>) -> Explored,
    /// Walks at random through a model too large to explore, with this seed; without faults.
    pub walk: fn(seed: u64) -> Explored,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explored {
    /// How many states there were.
    pub states: usize,
    /// The rules that were broken, each with the way there.
    pub broken: Vec<(&'static str, String)>,
}

impl Explored {
    /// And what came of another model, which is looked at if no rule of this one was broken.
    fn and(mut self, other: impl FnOnce() -> Self) -> Self {
        if self.broken.is_empty() {
            let other = other();
            self.states += other.states;
            self.broken = other.broken;
        }
        self
    }
}

/// All of them.
pub const ALL: &[Proof] =
    &[etcd::PROOF, postgres::PROOF, queue::PROOF, quorum::PROOF, redis::PROOF, waiters::PROOF, zookeeper::PROOF];

/// Explores all that can happen, until a rule is broken.
pub fn explore<M>(model: M) -> Explored
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Send + Sync + Clone + PartialEq + fmt::Debug,
    M::Action: Clone + PartialEq + fmt::Debug + Send + Sync,
{
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    explored(&checker)
}

/// Explores one model after the other, until a rule is broken.
pub fn explore_each<M>(models: impl IntoIterator<Item = M>) -> Explored
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Send + Sync + Clone + PartialEq + fmt::Debug,
    M::Action: Clone + PartialEq + fmt::Debug + Send + Sync,
{
    let none = Explored { states: 0, broken: Vec::new() };
    models.into_iter().fold(none, |all, model| all.and(|| explore(model)))
}

/// Walks at random, from the start again and again, until it has come to so many states or a rule is broken.
pub fn walk<M>(model: M, seed: u64, states: usize) -> Explored
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Send + Sync + Clone + PartialEq + fmt::Debug,
    M::Action: Clone + PartialEq + fmt::Debug + Send + Sync,
{
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).target_state_count(states);
    explored(&checker.spawn_simulation(seed, UniformChooser).join())
}

/// What a checker found.
pub fn explored<M: Model>(checker: &impl Checker<M>) -> Explored
where
    M::State: Clone + PartialEq + fmt::Debug + Hash,
    M::Action: fmt::Debug + Clone + PartialEq,
{
    let broken = checker.discoveries().into_iter().map(|(rule, path)| (rule, format!("{:?}", path.into_actions())));
    Explored { states: checker.unique_state_count(), broken: broken.collect() }
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn rules_hold() {
        for proof in ALL {
            let explored = (proof.explore)(None);
            assert_eq!(explored.broken, [], "{}", proof.name);
            assert_eq!((proof.walk)(1).broken, [], "{}", proof.name);
        }
    }

    #[test]
    fn mutations_are_caught() {
        for proof in ALL {
            assert!(proof.mutations.len() >= 3, "{}", proof.name);
            for mutation in proof.mutations {
                assert_ne!((proof.explore)(Some(mutation)).broken, [], "{}: {mutation}", proof.name);
            }
        }
    }
}
