//! Every fraction of time that the core goes by.

use std::time::Duration;

use rand::RngExt;

use crate::contract::Instant;

/// How much longer than its wait an acquisition may take to leave the queue and to learn who holds the lock, and how long
/// what is undone after it may keep its caller. After that the background takes over.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// How soon after a doubt of the store's the next one counts, so that a connection that keeps breaking is no storm.
pub(super) const BETWEEN_DOUBTS: Duration = Duration::from_millis(100);

/// A store that says nothing for so long may be away, and not only slow.
pub(super) const SILENCE: Duration = Duration::from_millis(500);

/// How often a lock is looked at that somebody observes.
pub(crate) const OBSERVE: Duration = Duration::from_millis(500);

/// The same where the holder's token was not there yet.
pub(super) const OBSERVE_AGAIN: Duration = Duration::from_millis(50);

/// The same where the store tells of changes: one that it did not tell of is seen by then.
pub(super) const OBSERVE_TOLD: Duration = Duration::from_secs(5);

/// How often the wall clock is compared with ours while something is held.
pub(super) const LOOK_AT_WALL: Duration = Duration::from_secs(1);

/// By how much the wall clock may be set without a doubt.
pub(super) const STEP_OF_WALL: Duration = Duration::from_secs(1);

/// The part of a lease that we do not use: for clocks of different rate, and for the time it takes to tell the holder.
pub(super) fn margin(lease: Duration) -> Duration {
    (lease / 10).min(Duration::from_secs(1))
}

/// How long after its grant a reader's hold lets in others of the process, where it may be handed over for so long. Writers
/// elsewhere wait that much longer, and are not seen from here, so it is short. It is over long before the first renewal:
/// that the store could say then who waits would be of no use.
pub(super) fn sharing(lease: Duration, hand_over_for: Duration) -> Duration {
    hand_over_for.min(lease / 20).min(Duration::from_millis(100))
}

/// When to renew a lease that we use until `until`: with two thirds of it left, and in any case not at once. What was
/// granted at the same time is spread by its number over a twelfth of the lease, so that many do not come in bursts.
pub(super) fn renewal(lease: Duration, until: Instant, now: Instant, number: u64) -> Instant {
    // Multiples of the golden ratio lie evenly in any range of numbers.
    let spread = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u32;
    // Two thirds, and a twelfth of which that is so many parts of 256.
    let early = until.saturating_sub(lease * (2048 + spread) / 3072 - margin(lease));
    early.max(now + until.saturating_duration_since(now) / 4)
}

/// A batch leaves when a renewal is due, and takes along what is due within this: each is small, so that a store is not
/// busy with one for long, and there are few.
pub(super) fn slack(lease: Duration) -> Duration {
    lease / 300
}

/// How long a renewal may go without an answer before its holds are at risk and it is sent again: so that one that hangs
/// leaves time for another.
pub(super) fn answer(lease: Duration) -> Duration {
    lease / 3
}

/// The pause before a renewal that failed is tried again.
pub(super) fn renewal_pause(lease: Duration) -> Duration {
    (lease / 20).clamp(Duration::from_millis(10), Duration::from_secs(1))
}

/// A lease that is renewed in time always has more left than this.
pub(super) fn late(lease: Duration) -> Duration {
    lease / 4
}

/// How long before the end of a wait the store is asked who holds the lock.
pub(super) fn question(wait: Duration) -> Duration {
    (wait / 2).min(Duration::from_secs(1))
}

/// Did a request that took so long before it failed stand in line? Backends repeat what was not answered, some of them
/// several times.
pub(super) fn stood_in_line(took: Duration, answers_within: Duration) -> bool {
    took > answers_within.max(Duration::from_secs(1)) * 4
}

/// The pauses before a store that failed is asked again: doubled each time, from the first to the last.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    failures: u32,
}

impl Pauses {
    pub(super) const FIRST: Duration = Duration::from_millis(20);
    const LAST: Duration = Duration::from_secs(1);

    pub(crate) fn next(&mut self) -> Duration {
        let pause = Self::FIRST.saturating_mul(1 << self.failures.min(10)).min(Self::LAST);
        self.failures += 1;
        // Not all at once, when it is back.
        pause.mul_f64(rand::rng().random_range(0.5..1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_origin(Duration::from_secs(1000) + Duration::from_millis(millis))
    }

    #[test]
    fn a_renewal_is_due_after_a_third_and_never_at_once() {
        let lease = Duration::from_secs(30);
        let until = at(30_000 - 1000);
        for number in 0..1000 {
            let due = renewal(lease, until, at(0), number).saturating_duration_since(at(0));
            assert!((Duration::from_millis(7500)..=Duration::from_secs(10)).contains(&due), "{due:?}");
        }
        // Granted late: with a quarter of what is left gone.
        assert_eq!(renewal(lease, at(4000), at(0), 0), at(1000));
        assert_eq!(renewal(lease, at(0), at(5000), 0), at(5000));
    }

    #[test]
    fn a_hold_that_is_renewed_in_time_is_not_late() {
        for lease in [10, 300, 2000, 30_000, 3_600_000].map(Duration::from_millis) {
            let until = at(0) + (lease - margin(lease));
            let due = renewal(lease, until, at(0), 0);
            assert!(until.saturating_duration_since(due) > late(lease), "{lease:?}");
            // A renewal that hangs is followed by another.
            assert!(until.saturating_duration_since(due) > answer(lease), "{lease:?}");
        }
    }

    #[test]
    fn readers_come_in_for_a_tenth_of_a_second_at_most_and_never_until_a_renewal() {
        for lease in [10, 300, 2000, 30_000, 3_600_000].map(Duration::from_millis) {
            let longest = sharing(lease, Duration::MAX);
            assert!(longest <= Duration::from_millis(100) && longest * 20 <= lease, "{lease:?}");
            let due = renewal(lease, at(0) + (lease - margin(lease)), at(0), 0);
            assert!(at(0) + longest < due, "{lease:?}");
        }
        assert_eq!(sharing(Duration::from_secs(30), Duration::from_millis(10)), Duration::from_millis(10));
        assert_eq!(sharing(Duration::from_secs(30), Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn pauses_are_doubled_up_to_a_second() {
        let mut pauses = Pauses::default();
        assert!(pauses.next() < Pauses::FIRST);
        let later: Vec<_> = (0..20).map(|_| pauses.next()).collect();
        assert!(later[0] >= Pauses::FIRST && later[19] >= Pauses::LAST / 2 && later[19] <= Pauses::LAST);
    }
}
