//! What the models of a store with a line have in common: how far a claim is, and the rules that hold of any line.

use stateright::{Model, Property};

use crate::modes::{Mode, Witness};

/// Which of the claims.
pub(crate) type Who = usize;

/// How far a claim is, as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    Asking,
    Waiting,
    Holding,
    Leaving,
    Gone,
    Dead,
}

pub(crate) const EXCLUSION: &str = "those who believe that they hold the lock may hold it together";
pub(crate) const TOKENS: &str = "a token is above that of every earlier holder whom it excludes";
pub(crate) const GONE: &str = "who was told that it has gone holds nothing and waits for nothing";
pub(crate) const SERVED: &str = "a waiter that can have the lock gets it, unless nobody was told that it came free";
pub(crate) const GOES_ON: &str = "while somebody waits, something goes on";

/// What the rules see of a state.
pub(crate) trait Seen {
    /// How far each claim is.
    fn phases(&self) -> impl Iterator<Item = Phase>;
    /// Does its client believe that it holds the lock?
    fn believes(&self, who: Who) -> bool;
    /// Has it the lock, by the store?
    fn has(&self, who: Who) -> bool;
    fn line(&self) -> &[Who];
    fn witness(&self) -> &Witness;
}

/// A model of a store with a line.
pub(crate) trait WithLine: Model<State: Seen> {
    /// How this claim wants the lock.
    fn mode(&self, who: Who) -> Mode;
    fn is_trouble(action: &Self::Action) -> bool;
}

/// The rules that hold of every line.
pub(crate) fn rules<M: WithLine>() -> Vec<Property<M>> {
    vec![
        Property::always(EXCLUSION, |model: &M, state: &M::State| {
            let believe = (0..state.phases().count()).filter(|&who| state.believes(who));
            Mode::all_fit(&believe.map(|who| model.mode(who)).collect::<Vec<_>>())
        }),
        Property::always(TOKENS, |_, state: &M::State| !state.witness().fell),
        Property::always(GONE, |_, state: &M::State| {
            let mut phases = state.phases().enumerate();
            phases.all(|(who, phase)| phase != Phase::Gone || !state.has(who) && !state.line().contains(&who))
        }),
        Property::always(GOES_ON, |model: &M, state: &M::State| {
            let waits = |phase| matches!(phase, Phase::Asking | Phase::Waiting | Phase::Leaving);
            !state.phases().any(waits) || goes_on(model, state, M::is_trouble)
        }),
    ]
}

/// Can anything happen that is no trouble?
pub(crate) fn goes_on<M: Model>(model: &M, state: &M::State, is_trouble: fn(&M::Action) -> bool) -> bool {
    let mut actions = Vec::new();
    model.actions(state, &mut actions);
    !actions.iter().all(is_trouble)
}

/// May this one come? Those who want the lock in the same way come in their order: they are alike.
pub(crate) fn comes<T: PartialEq>(wanted: &[T], who: Who, is_out: impl Fn(Who) -> bool) -> bool {
    is_out(who) && !(0..who).any(|other| wanted[other] == wanted[who] && is_out(other))
}
