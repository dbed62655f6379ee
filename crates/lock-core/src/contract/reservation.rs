//! What a rate limiter asks of a store: a stretch of time in a line that all share.
//!
//! This is the *generic cell rate algorithm*. For each name the store keeps one instant by its own clock: until when the
//! line is taken. Whoever comes takes the next stretch, and is told how long it is until that begins. The store knows of
//! no rate: a permit of a limiter of 100 a minute is a stretch of 600 ms.

use std::time::Duration;

/// A stretch of time that is wanted, in whole microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reservation {
    /// How long it is.
    pub length: Duration,
    /// How much of it has to be over before whoever asked goes on; zero for one that goes on as soon as it begins.
    pub ahead: Duration,
    /// How long whoever asked can wait. If that is not enough, nothing is reserved.
    pub within: Duration,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reserved {
    /// Whoever asked goes on when this time is over, counted from the answer.
    In(Duration),
    /// It would have been so long, and nothing was reserved.
    TooLate(Duration),
}

impl Reservation {
    /// A stretch of this length, of which so much has to be over.
    pub fn new(length: Duration, ahead: Duration, within: Duration) -> Self {
        Self { length, ahead, within }
    }

    /// The numbers as a store is told them: the length, what is ahead, and the time to wait, in microseconds.
    pub fn micros(&self) -> [u64; 3] {
        // Far beyond what anybody waits for, and far below what SQL and Lua can count: the sums fit as well.
        const MOST: u128 = 1 << 51;
        [self.length, self.ahead, self.within].map(|time| time.as_micros().min(MOST) as u64)
    }

    /// What a store decides at `now` whose line is taken until `taken`, both in microseconds: until when the line is taken
    /// from then on, and the answer.
    pub fn decide(&self, taken: u64, now: u64) -> (u64, Reserved) {
        let [length, ahead, within] = self.micros();
        let begins = taken.max(now);
        let wait = begins - now + ahead;
        let told = Duration::from_micros(wait);
        if wait > within { (taken, Reserved::TooLate(told)) } else { (begins + length, Reserved::In(told)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn stretches_follow_each_other_and_none_is_saved_up() {
        let one = Reservation::new(us(10), us(0), us(1000));
        let (mut taken, mut waits) = (0, Vec::new());
        for now in [100, 100, 103, 500, 501] {
            let (next, Reserved::In(wait)) = one.decide(taken, now) else { panic!("too late") };
            taken = next;
            waits.push(wait);
        }
        assert_eq!(waits, [0, 10, 17, 0, 9].map(us));
    }

    #[test]
    fn who_cannot_wait_reserves_nothing() {
        let one = Reservation::new(us(10), us(5), us(7));
        assert_eq!(one.decide(102, 100), (112, Reserved::In(us(7))));
        assert_eq!(one.decide(103, 100), (103, Reserved::TooLate(us(8))));
        let never = Reservation::new(Duration::MAX, Duration::MAX, Duration::ZERO);
        assert!(matches!(never.decide(0, u64::MAX >> 1), (0, Reserved::TooLate(_))));
    }
}
