//! What other libraries' locks do not promise, so that the oracle does not ask for it.
//!
//! A foreign holder is asked for what its store keeps for it: it counts as a holder until its session, or the time-out of
//! what it took, is over as the store confirmed it last. What it does after that is its own fault, and counted apart.

/// Rules that are not asked of a library's clients, and why.
type NotAsked = (&'static [&'static str], &'static str);

/// Of none of them.
const OF_ALL: [NotAsked; 3] = [
    (&["N1"], "tells of no loss in time"),
    (&["N2"], "knows of no end after a stop before it asks the store"),
    (&["L3"], "may wait for an answer that never comes"),
];

/// Each library, by the name of its workers, and what it does not promise besides.
const LIBRARIES: [(&str, &[NotAsked]); 10] = [
    ("kazoo", &[SILENT, ONE_SERVER]),
    ("kazoo-rw", &[SILENT, ONE_SERVER]),
    ("curator", &[SILENT, ONE_SERVER]),
    ("curator-rw", &[SILENT, ONE_SERVER]),
    ("curator-revoker", &[SILENT, ONE_SERVER]),
    ("curator-semaphore", &[NO_TOKEN, NO_SLOT]),
    ("go", &[SILENT]),
    ("go-election", &[SILENT]),
    ("etcdctl", &[SILENT]),
    ("redis-py", &[NO_TOKEN]),
];

const SILENT: NotAsked = (&["R1"], "does not tell at its release whether it held until then");

const ONE_SERVER: NotAsked = (&["I1"], "what one server of its store shows may differ from what the others do");

/// So nobody can tell what came after it, it does not come to the resource, and a hold of ours whose token is not there
/// yet looks like one of its.
const NO_TOKEN: NotAsked = (&["T1", "T2", "S0", "R1", "V1", "F1", "F2", "F3", "F4", "F5"], "has no fencing token");

const NO_SLOT: NotAsked = (&["P1"], "has no slot");

/// Another library's lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Library(usize);

impl Library {
    /// By its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        LIBRARIES.iter().position(|(known, _)| *known == name).map(Self)
    }

    /// Whose this client is; `None` if it is ours.
    pub(crate) fn of(client: &str) -> Option<Self> {
        // Its name goes on with the numbers of its place and of its successors.
        Self::named(client.rsplitn(3, '-').nth(2)?)
    }

    pub(crate) fn name(self) -> &'static str {
        LIBRARIES[self.0].0
    }

    fn not_asked(self) -> impl Iterator<Item = NotAsked> {
        OF_ALL.iter().chain(LIBRARIES[self.0].1).copied()
    }
}

/// Is this rule asked of this client?
pub(crate) fn is_asked(rule: &str, client: &str) -> bool {
    Library::of(client).is_none_or(|library| library.not_asked().all(|(rules, _)| !rules.contains(&rule)))
}

/// What none of these is asked, and what each is not asked besides, as lines of a report.
pub(crate) fn told(libraries: impl Iterator<Item = Library>) -> Vec<String> {
    let line = |who: &str, not_asked: &[NotAsked]| {
        let all: Vec<_> = not_asked.iter().map(|(rules, why)| format!("{} ({why})", rules.join(", "))).collect();
        format!("not asked of {who}: {}", all.join("; "))
    };
    let own = libraries.map(|library| LIBRARIES[library.0]).filter(|(_, not_asked)| !not_asked.is_empty());
    let own = own.map(|(name, not_asked)| line(name, not_asked));
    [line("other libraries", &OF_ALL)].into_iter().chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_by_its_name() {
        assert_eq!(Library::of("kazoo-4-0").map(Library::name), Some("kazoo"));
        assert!(Library::of("worker-4-0").is_none() && Library::of("supervisor").is_none());
        assert!(is_asked("N2", "worker-1-2") && !is_asked("N2", "kazoo-1-2") && is_asked("B1", "kazoo-1-2"));
        let told = told(["kazoo", "redis-py"].iter().filter_map(|name| Library::named(name)));
        assert!(told[0].starts_with("not asked of other libraries: N1 (tells ") && told.len() == 3, "{told:?}");
        assert!(told[2].starts_with("not asked of redis-py: T1, T2, ") && told[2].ends_with(" (has no fencing token)"));
    }
}
