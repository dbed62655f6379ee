//! What the torture does to whom, and when: drawn from the seed beforehand, so that the same seed makes the same plan.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::proxy::Proxy;

/// One thing that the torture does. Most last for a time that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Blow {
    /// A worker is stopped, for longer than its lease.
    Stop,
    /// A worker is killed, and another takes its place.
    Kill,
    /// A worker can open no more files and connections.
    Starve,
    /// A worker gets no more memory. If it dies of that, another takes its place.
    OutOfMemory,
    /// The wall clock of a worker's host is set an hour ahead or back, and right again.
    StepClock,
    /// A worker's runtime is dropped with all that runs on it, and its locks go on on another.
    ReplaceRuntime,
    /// A worker cannot write to the store's files, as on a full disk.
    NoRoom,
    /// A worker's backend panics in the middle of its next calls, one of each kind.
    Panic,
    /// Nothing goes through, and what was on its way is lost.
    Cut,
    /// The same for requests alone.
    CutRequests,
    /// The same for answers alone.
    CutAnswers,
    /// Nothing goes through, and arrives later.
    Hold,
    /// The same for requests alone.
    HoldRequests,
    /// The same for answers alone.
    HoldAnswers,
    /// One connection swallows what is sent over it, either way, and neither side is told; others work.
    Swallow,
    /// One connection ends for the server, and its client is not told; others work.
    Forget,
    /// The answers of one connection come seconds late, and what a server tells unasked; others work.
    Lag,
    /// Connections end for their clients, who ask again over others; what was sent over the old ones arrives after that.
    LateRequests,
    /// Everything takes longer.
    Delay,
    /// Requests take longer.
    DelayRequests,
    /// Answers take longer.
    DelayAnswers,
    /// Connections are reset.
    Reset,
    /// Connections are reset, and new ones refused.
    Refuse,
    /// Connections lead to another server of the store, as through a balancer.
    Balance,
    /// A server's name leads to another address, and nobody listens at the old one.
    Rename,
    /// A server is stopped.
    PauseServer,
    /// A server is killed, and started again after a while.
    KillServer,
    /// A server is shut down in good order, and started again at once.
    RestartServer,
    /// A server is cut off from the others of its store; its clients reach it.
    CutServer,
    /// A server cannot write to its files, as on a full disk. If it ends for that, it is started again.
    FullDisk,
    /// A store drops the past that it keeps for those who look back, and a server tidies its file, which blocks it.
    Compact,
}

/// Does this to one of the connections that are open, by chance: a client may have several, or none.
fn to_one(proxy: &Proxy, chance: Duration, act: fn(&Proxy, u64)) {
    let open = proxy.open();
    if let Some(&number) = open.get(chance.subsec_nanos() as usize % open.len().max(1)) {
        act(proxy, number);
    }
}

/// Who can be struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Worker,
    Network,
    Server,
}

/// Each with its name, who is struck, and for how many leases it lasts.
const BLOWS: [(Blow, &str, Victim, Range<f64>); 31] = [
    (Blow::Stop, "stop", Victim::Worker, 1.2..2.5),
    (Blow::Kill, "kill", Victim::Worker, 0.0..0.0),
    (Blow::Starve, "starve", Victim::Worker, 0.5..3.0),
    (Blow::OutOfMemory, "out-of-memory", Victim::Worker, 0.5..3.0),
    (Blow::StepClock, "step-clock", Victim::Worker, 0.2..4.0),
    (Blow::ReplaceRuntime, "replace-runtime", Victim::Worker, 0.0..0.0),
    (Blow::NoRoom, "no-room", Victim::Worker, 0.2..2.0),
    (Blow::Panic, "panic", Victim::Worker, 0.0..0.0),
    (Blow::Cut, "cut", Victim::Network, 0.2..2.5),
    (Blow::CutRequests, "cut-requests", Victim::Network, 0.2..2.5),
    (Blow::CutAnswers, "cut-answers", Victim::Network, 0.2..2.5),
    (Blow::Hold, "hold", Victim::Network, 0.2..2.5),
    (Blow::HoldRequests, "hold-requests", Victim::Network, 0.2..2.5),
    (Blow::HoldAnswers, "hold-answers", Victim::Network, 0.2..2.5),
    (Blow::Swallow, "swallow", Victim::Network, 1.0..6.0),
    (Blow::Forget, "forget", Victim::Network, 1.0..6.0),
    (Blow::Lag, "lag", Victim::Network, 1.0..4.0),
    (Blow::LateRequests, "late-requests", Victim::Network, 0.2..2.5),
    (Blow::Delay, "delay", Victim::Network, 1.0..3.0),
    (Blow::DelayRequests, "delay-requests", Victim::Network, 1.0..3.0),
    (Blow::DelayAnswers, "delay-answers", Victim::Network, 1.0..3.0),
    (Blow::Reset, "reset", Victim::Network, 0.0..0.0),
    (Blow::Refuse, "refuse", Victim::Network, 0.2..1.5),
    (Blow::Balance, "balance", Victim::Network, 0.5..4.0),
    (Blow::Rename, "rename", Victim::Network, 0.5..4.0),
    (Blow::PauseServer, "pause-server", Victim::Server, 0.2..2.0),
    (Blow::KillServer, "kill-server", Victim::Server, 0.0..1.0),
    (Blow::RestartServer, "restart-server", Victim::Server, 0.0..0.0),
    (Blow::CutServer, "cut-server", Victim::Server, 0.2..2.5),
    (Blow::FullDisk, "full-disk", Victim::Server, 0.2..2.0),
    (Blow::Compact, "compact", Victim::Server, 0.0..0.0),
];

impl Blow {
    /// All there are.
    pub fn all() -> Vec<Self> {
        BLOWS.iter().map(|(blow, ..)| *blow).collect()
    }

    /// What it is called, as in `hold-answers`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> &'static (Self, &'static str, Victim, Range<f64>) {
        BLOWS.iter().find(|(blow, ..)| *blow == self).expect("every blow has its row")
    }

    /// Is it up to the kind of server whether it can suffer this? See
    /// [`Server::suffers`](crate::torture::Server::suffers).
    pub(crate) fn is_particular(self) -> bool {
        matches!(self, Self::CutServer | Self::FullDisk | Self::Compact)
    }

    /// Does it take a [host](crate::host::Host) of the worker's own?
    pub(crate) fn is_of_a_host(self) -> bool {
        matches!(self, Self::StepClock | Self::Rename | Self::NoRoom)
    }

    /// Does this to what goes through.
    pub(crate) fn strike(self, proxy: &Proxy, delay: Duration) {
        let delay = delay / 2..delay;
        match self {
            Self::Cut | Self::Hold => proxy.hold(),
            Self::CutRequests | Self::HoldRequests => proxy.hold_c2s(),
            Self::CutAnswers | Self::HoldAnswers => proxy.hold_s2c(),
            Self::Swallow => to_one(proxy, delay.end, Proxy::swallow),
            Self::Forget => to_one(proxy, delay.end, Proxy::forget),
            Self::Lag => to_one(proxy, delay.end, Proxy::hold_answers_of),
            Self::LateRequests => {
                proxy.hold_c2s_of_present();
                proxy.end_for_clients();
            }
            Self::DelayRequests => proxy.delay_c2s(delay),
            Self::DelayAnswers => proxy.delay_s2c(delay),
            Self::Delay => {
                proxy.delay_c2s(delay.clone());
                proxy.delay_s2c(delay);
            }
            Self::Refuse => {
                proxy.refuse();
                proxy.reset();
            }
            _ => proxy.reset(),
        }
    }

    /// Ends it.
    pub(crate) fn relieve(self, proxy: &Proxy) {
        if matches!(self, Self::Cut | Self::CutRequests | Self::CutAnswers | Self::Swallow | Self::Forget) {
            proxy.reset();
        }
        proxy.forward();
        // What is made anew leads to where it did before.
        if self == Self::Balance {
            proxy.reset();
        }
    }
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Blow {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = BLOWS.iter().find(|(_, known, ..)| *known == name);
        known.map(|(blow, ..)| *blow).ok_or_else(|| {
            let names: Vec<_> = BLOWS.iter().map(|(_, name, ..)| *name).collect();
            format!("{name:?} is none of {}", names.join(", "))
        })
    }
}

/// One who is struck again and again, never twice at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Worker(usize),
    /// The way from a worker to a server.
    Network {
        worker: usize,
        server: usize,
    },
    /// A server, and the network in front of it.
    Server(usize),
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(worker) => write!(f, "worker-{worker}"),
            Self::Network { worker, server } => write!(f, "network-{worker}-{server}"),
            Self::Server(server) => write!(f, "server-{server}"),
        }
    }
}

impl Lane {
    fn suffers(self, victim: Victim) -> bool {
        match self {
            Self::Worker(_) => victim == Victim::Worker,
            Self::Network { .. } => victim == Victim::Network,
            Self::Server(_) => victim != Victim::Worker,
        }
    }

    /// For how many leases it is left in peace between two blows.
    fn peace(self) -> Range<f64> {
        match self {
            Self::Worker(_) => 0.5..4.0,
            Self::Network { .. } => 1.0..5.0,
            Self::Server(_) => 1.5..5.0,
        }
    }

    /// Sets it apart from others of the same seed.
    fn number(self) -> u64 {
        match self {
            Self::Worker(worker) => worker as u64,
            Self::Network { worker, server } => (1 + server as u64) << 32 | worker as u64,
            Self::Server(server) => 1 << 63 | server as u64,
        }
    }
}

/// A blow in a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// When, since the beginning.
    pub(crate) at: Duration,
    pub(crate) lasting: Duration,
    pub(crate) blow: Blow,
    /// How much longer things take, if it delays.
    pub(crate) delay: Duration,
}

/// What is done to one who is struck, until the end of the time.
pub(crate) fn plan(lane: Lane, seed: u64, blows: &[Blow], lease: Duration, time: Duration) -> Vec<Step> {
    // A server is struck as often as the network in front of it, though there are more ways to break that.
    let kinds = [Victim::Worker, Victim::Network, Victim::Server].map(|victim| {
        let suffered = blows.iter().copied().filter(|blow| lane.suffers(victim) && blow.row().2 == victim);
        suffered.collect::<Vec<_>>()
    });
    let kinds: Vec<_> = kinds.into_iter().filter(|kind| !kind.is_empty()).collect();
    let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ lane.number());
    let mut leases = |range: &Range<f64>| {
        let many = if range.is_empty() { range.start } else { rng.random_range(range.clone()) };
        lease.mul_f64(many)
    };
    let (mut steps, mut over) = (Vec::new(), Duration::ZERO);
    // Of its own, so that fewer kinds of blows keep the times of the rest.
    let mut choice = StdRng::seed_from_u64(seed ^ lane.number());
    while let Some(&blow) = kinds.choose(&mut choice).and_then(|kind| kind.choose(&mut choice)) {
        let at = over + leases(&lane.peace());
        let (lasting, delay) = (leases(&blow.row().3), leases(&(0.1..0.9)));
        over = at + lasting;
        if over > time {
            break;
        }
        steps.push(Step { at, lasting, blow, delay });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(1);
    const TIME: Duration = Duration::from_secs(3600);
    const LANES: [Lane; 4] =
        [Lane::Worker(0), Lane::Worker(1), Lane::Network { worker: 0, server: 0 }, Lane::Server(0)];

    fn drawn(lane: Lane, seed: u64) -> Vec<Step> {
        plan(lane, seed, &Blow::all(), LEASE, TIME)
    }

    #[test]
    fn a_seed_repeats_its_plan_and_another_makes_another() {
        for lane in LANES {
            assert_eq!(drawn(lane, 7), drawn(lane, 7));
            assert_ne!(drawn(lane, 7), drawn(lane, 8));
        }
        assert_ne!(drawn(LANES[0], 7), drawn(LANES[1], 7));
    }

    #[test]
    fn blows_come_one_after_the_other_and_leave_the_end_in_peace() {
        for lane in LANES {
            let steps = drawn(lane, 7);
            assert!(steps.windows(2).all(|pair| pair[0].at + pair[0].lasting < pair[1].at));
            let last = steps.last().unwrap();
            assert!(last.at + last.lasting <= TIME);
        }
    }

    #[test]
    fn everybody_suffers_what_is_meant_for_them_and_all_of_it() {
        let mut all = Vec::new();
        for (lane, wanted) in [(LANES[0], 8), (LANES[2], 17), (LANES[3], 23)] {
            let mut kinds: Vec<_> = drawn(lane, 7).iter().map(|step| step.blow).collect();
            kinds.sort_unstable();
            kinds.dedup();
            assert_eq!(kinds.len(), wanted, "{lane}: {kinds:?}");
            all.extend(kinds);
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, Blow::all());
        assert_eq!(plan(LANES[0], 7, &[Blow::Cut], LEASE, TIME), []);
    }

    #[test]
    fn blows_go_by_their_names() {
        for blow in Blow::all() {
            assert_eq!(blow.name().parse(), Ok(blow));
        }
        assert!("tickle".parse::<Blow>().unwrap_err().contains("hold-answers"));
    }
}
