//! ZooKeeper: how long a session is sure to live, and the line of its nodes. Two models, one after the other: the line
//! needs of a session only that the client ends its holds before the servers end the session, and that is what the first
//! one shows.

mod line;
mod session;

use crate::{Proof, explore, walk};

pub(crate) const PROOF: Proof = Proof {
    name: "zookeeper",
    stands_for: &[
        "crates/lock-zookeeper/src/session.rs",
        "crates/lock-zookeeper/src/acquire.rs",
        "crates/lock-zookeeper/src/release.rs",
        "crates/lock-zookeeper/src/supervise.rs",
    ],
    rules: &[session::SURE, line::EXCLUSION, line::RISING, line::SEEN, line::NO_LOST_WAITER, line::GONE],
    mutations: &[
        session::ONE_WRITE,
        session::AT_ONCE,
        session::FROM_ANSWER,
        session::PINGS,
        session::NO_MARGIN,
        session::LATE_REPORT,
        line::WRITTEN_TO,
        line::DELETED,
        line::OWN_END,
        line::BLIND_WATCH,
        line::GIVEN_UP,
        line::BEHIND,
    ],
    // Two ticks, the shortest time that servers give a session, and ten.
    explore: |mutation| match mutation {
        Some(of_line) if line::MUTATIONS.contains(&of_line) => explore(line::Line::new(3, 1, mutation)),
        _ => explore(session::Proving::new(8, mutation)).and(|| explore(line::Line::new(3, 1, mutation))),
    },
    walk: |seed| {
        walk(session::Proving::new(40, None), seed, 200_000).and(|| walk(line::Line::new(6, 6, None), seed, 200_000))
    },
};
