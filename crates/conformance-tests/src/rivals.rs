//! Who must not hold beside whom: readers share a lock, and a semaphore is as many locks as it has slots.

use std::collections::BTreeMap;

use lock_core::Mode;

use crate::acquisition::Acquisition;

/// Of some acquisitions the one with the highest rank, and the one with the highest rank among those that readers do not
/// share.
#[derive(Default)]
pub(crate) struct Rivals<'g, 'a> {
    any: Option<(u64, &'g Acquisition<'a>)>,
    writer: Option<(u64, &'g Acquisition<'a>)>,
}

impl<'g, 'a> Rivals<'g, 'a> {
    pub(crate) fn put(&mut self, rank: u64, new: &'g Acquisition<'a>) {
        let higher = |best: &(u64, _)| rank >= best.0;
        if self.any.as_ref().is_none_or(higher) {
            self.any = Some((rank, new));
        }
        if new.mode != Mode::Shared && self.writer.as_ref().is_none_or(higher) {
            self.writer = Some((rank, new));
        }
    }

    /// Among those that must not be held beside this one.
    pub(crate) fn of(&self, one: &Acquisition<'_>) -> Option<(u64, &'g Acquisition<'a>)> {
        if one.mode == Mode::Shared { self.writer } else { self.any }
    }
}

/// Those who exclude each other: all of a lock, or those of a semaphore with the same slot.
pub(crate) fn by_slot<'a>(grants: &[Acquisition<'a>]) -> Vec<Vec<Acquisition<'a>>> {
    let mut groups = BTreeMap::<Option<u32>, Vec<Acquisition<'a>>>::new();
    for grant in grants {
        // A permit of another library's may have no slot.
        if grant.slots.is_empty() && grant.mode.permits().is_none() {
            groups.entry(None).or_default().push(grant.clone());
        }
        for slot in grant.slots {
            groups.entry(Some(*slot)).or_default().push(grant.clone());
        }
    }
    groups.into_values().collect()
}

/// The first who had a permit granted when all were held, and how many were held then. Each holds until such a time.
pub(crate) fn one_too_many<'g, 'a>(
    holds: impl Iterator<Item = (&'g Acquisition<'a>, u64)>,
) -> Option<(&'g Acquisition<'a>, u32)> {
    let mut changes = Vec::new();
    for (grant, end) in holds.filter(|(grant, end)| *end > grant.answered()) {
        // Who gives back makes place for who is granted.
        changes.extend([(grant.answered(), true, grant), (end, false, grant)]);
    }
    changes.sort_by_key(|(at, begins, _)| (*at, *begins));
    let mut held = 0;
    changes.into_iter().find_map(|(_, begins, grant)| {
        let weight = grant.mode.weight();
        held = if begins { held + weight } else { held - weight };
        grant.mode.permits().filter(|of| held > *of).map(|_| (grant, held))
    })
}

/// Times at which something begins and ends, each with a weight.
#[derive(Default)]
pub(crate) struct Reasons {
    begin: Vec<(u64, u64)>,
    end: Vec<(u64, u64)>,
}

impl Reasons {
    /// Those who may be why another is denied, each for this long after its end.
    pub(crate) fn among<'a>(all: impl Iterator<Item = &'a Acquisition<'a>>, grace: u64) -> Self {
        let mut reasons = Self::default();
        for acquisition in all {
            let Some(end) = acquisition.occupies() else { continue };
            let weight = u64::from(acquisition.mode.weight());
            reasons.begin.push((acquisition.asked, weight));
            reasons.end.push((end.saturating_add(grace), weight));
        }
        for times in [&mut reasons.begin, &mut reasons.end] {
            times.sort_unstable();
            let mut sum = 0;
            for (_, weight) in times {
                sum += *weight;
                *weight = sum;
            }
        }
        reasons
    }

    /// The weights of all that are there at some time from one to the other.
    pub(crate) fn within(&self, from: u64, to: u64) -> u64 {
        let sum = |times: &[(u64, u64)], first: usize| first.checked_sub(1).map_or(0, |last| times[last].1);
        let begun = self.begin.partition_point(|(begin, _)| *begin <= to);
        let over = self.end.partition_point(|(end, _)| *end < from);
        sum(&self.begin, begun) - sum(&self.end, over)
    }
}
