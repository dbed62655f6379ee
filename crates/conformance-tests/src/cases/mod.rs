//! The cases. Each has a fresh store and ends with a panic if the backend, or the core on top of it, breaks a promise.

mod cancellation;
mod clock;
mod dropping;
mod fairness;
mod fencing;
mod input;
mod keeping;
mod latches;
mod lease;
mod life;
mod liveness;
mod loss;
mod permits;
mod process;
mod rates;
mod readers;
mod safety;
mod several;
mod sharing;
mod values;

use std::pin::Pin;

use lock_core::Capabilities;

use crate::ctx::Ctx;

/// One case.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// It gets a store whose server is its own, to restart it or to replace what it keeps.
    pub(crate) alone: bool,
    /// Left out where the backend cannot do this and says so.
    pub(crate) needs: Option<Need>,
    pub(crate) run: fn(Ctx) -> Pin<Box<dyn Future<Output = ()>>>,
}

/// What a case needs that not every backend can do.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    Fair,
    RaisedTokens,
    Keeping,
    Values,
    Shared,
    Permits,
    Modes,
    FairShared,
    FairPermits,
    TakenTogether,
    Rates,
}

impl Need {
    pub(crate) fn is_met(self, by: &Capabilities) -> bool {
        match self {
            Self::Fair => by.fair,
            Self::RaisedTokens => by.raises_tokens,
            Self::Keeping => by.keeps,
            Self::Values => by.values,
            Self::Shared => by.modes.shared,
            Self::Permits => by.modes.permits,
            Self::Modes => by.modes.shared && by.modes.permits,
            Self::FairShared => by.fair && by.modes.shared,
            Self::FairPermits => by.fair && by.modes.permits,
            Self::TakenTogether => by.takes_all,
            Self::Rates => by.limits_rates,
        }
    }

    pub(crate) fn why_not(self) -> &'static str {
        match self {
            Self::Fair => "it is not first come, first served, as its capabilities say",
            Self::RaisedTokens => "it cannot raise tokens, as its capabilities say",
            Self::Keeping => "it cannot keep a hold without its owner, as its capabilities say",
            Self::Values => "it shows no values, as its capabilities say",
            Self::Shared => "it has no read-write locks, as its capabilities say",
            Self::Permits => "it has no semaphores, as its capabilities say",
            Self::Modes => "it has no read-write locks or no semaphores, as its capabilities say",
            Self::FairShared => "it has no fair read-write locks, as its capabilities say",
            Self::FairPermits => "it has no fair semaphores, as its capabilities say",
            Self::TakenTogether => "it takes several locks one after the other, as its capabilities say",
            Self::Rates => "it limits no rates, as its capabilities say",
        }
    }
}

macro_rules! cases {
    ($($file:ident: $($case:ident $(($tag:ident))?)*;)*) => {
        /// Every case. (One that is not listed here is dead code, which the compiler reports.)
        pub(crate) const CASES: &[Case] = &[$($(Case {
            name: stringify!($case),
            alone: cases!(@alone $($tag)?),
            needs: cases!(@needs $($tag)?),
            run: |ctx| Box::pin($file::$case(ctx)),
        },)*)*];
    };
    (@alone alone) => { true };
    (@alone keeping_alone) => { true };
    (@alone $($tag:ident)?) => { false };
    (@needs fair) => { Some(Need::Fair) };
    (@needs raised_tokens) => { Some(Need::RaisedTokens) };
    (@needs keeping) => { Some(Need::Keeping) };
    (@needs keeping_alone) => { Some(Need::Keeping) };
    (@needs values) => { Some(Need::Values) };
    (@needs shared) => { Some(Need::Shared) };
    (@needs permits) => { Some(Need::Permits) };
    (@needs modes) => { Some(Need::Modes) };
    (@needs fair_shared) => { Some(Need::FairShared) };
    (@needs fair_permits) => { Some(Need::FairPermits) };
    (@needs taken_together) => { Some(Need::TakenTogether) };
    (@needs rates) => { Some(Need::Rates) };
    (@needs $($tag:ident)?) => { None };
}

cases! {
    safety: excl_tasks excl_two_names tokens_rise token_survives_idle unlock_foreign unlock_after_expiry unlock_retry
        late_acquire_lands late_acquire_lands_after_reconnect acquire_answer_lost dup_request try_lock_denied;
    process: excl_processes holder_killed waiter_killed fenced_counter_pause lost_after_sigstop writer_stopped
        restarted_while_held(alone) restarted_with_waiters(alone) store_replaced(alone) store_down_at_start torture;
    liveness: lock_waits_then_gets lost_wakeup any_connection_swallowed timeout_exact herd_50 list_pages;
    lease: renew_keeps renew_stops_on_unlock renew_after_error renew_panics acquire_reply_late request_held_back
        answer_held_back answer_read_late promise_covered renew_reply_late last_renew_reply_late renew_refused_once
        lease_floor fixed_hold_ends extend_shorter starved_runtime renew_drops_only max_hold_ends;
    fencing: tokens_rise_over_stores tokens_raised(raised_tokens) tokens_above_a_floor(raised_tokens)
        token_known_at_grant token_from_store token_range resource_rejects_stale;
    loss: lost_on_admin_delete lost_on_evict lost_on_cut outage_shorter_than_lease lost_once unlock_after_lost;
    fairness: fifo(fair) bounded_bypass(fair) cancelled_in_queue(fair) not_reentrant_default reentrant_counts two_handles_exclude unlock_once;
    cancellation: drop_at_every_await drop_at_every_await_contended drop_during_unlock
        guard_drop_releases runtime_shutdown_held timeout_races_grant panic_in_section cancel_try_lock;
    dropping: drop_every_verb drop_every_verb_reply_late drop_every_verb_answer_held;
    life: shutdown_beside_unlock shutdown_before_an_answer shutdown_beside_requests releases_outlive_a_runtime
        renewals_outlive_a_runtime waiters_outlive_a_runtime a_panic_harms_one outage_while_waiting outage_without_end
        one_failure_for_all passed_to_nobody replaced_in_the_process;
    clock: client_wall_moved client_clock_ahead;
    input: names lease_zero_and_huge foreign_value owner_unguessable names_as_code;
    keeping: kept_hold_outlives_its_owner(keeping) kept_hold_ends_in_time(keeping) only_the_holder_keeps(keeping)
        kept_hold_survives_a_restart(keeping_alone) once_in_a_slot(keeping) once_if_replies_are_lost(keeping)
        once_again_after_a_failure(keeping);
    values: value_stands_with_its_hold(values) only_the_holder_proclaims(values) values_of_every_kind(values)
        leaders_are_seen_in_order(values) observer_in_an_outage(values);
    several: opposite_orders all_or_none modes_together(modes) taken_in_one_request(taken_together)
        not_all_are_free(taken_together);
    rates: never_above_the_rate(rates) permits_that_come_too_late(rates) limiters_are_no_locks(rates);
    latches: opens_when_all_have_arrived(keeping) arrivals_whose_replies_are_lost(keeping);
    readers: readers_together(shared) a_writer_stops_later_readers(fair_shared) a_writer_gives_up(fair_shared)
        a_dead_reader(shared) the_dead_in_turn(shared) tokens_of_readers(shared) readers_are_evicted(shared)
        readers_and_writers(shared) readers_give_up(shared) an_only_reader(shared)
        a_waiting_writer_is_killed(fair_shared);
    sharing: readers_share_in_a_process(shared) a_writer_elsewhere_gets_its_turn(fair_shared)
        a_writer_among_64_readers(fair_shared);
    permits: another_kind(modes) permits_are_counted(permits)
        many_permits_at_the_head(fair_permits) a_dead_holders_permit(permits) resized(permits) permits_of_many(permits)
        permits_that_cannot_be(permits);
}
