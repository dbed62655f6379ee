//! Worker processes that take the same few locks, while they, their networks and the servers are struck at random; and
//! the oracle over all they logged.
//!
//! The workers are this same program, started again: its `main` has to begin with [`worker_main`](crate::worker_main).
//!
//! ```text
//! worker 0 ── proxy ──┐
//! worker 1 ── proxy ──┼── proxy ── server
//! worker 2 ── proxy ──┘
//! ```
//!
//! Each worker reaches each [`Server`] by a proxy of its own, and all of them by one in front of the server.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::footprint;
pub use crate::footprint::Footprint;
use crate::foreign::Library;
use crate::ghosts;
use crate::history::{Log, monotonic};
use crate::host::{Host, THERE, build_shim};
pub use crate::peer::Program;
pub use crate::plan::Blow;
use crate::plan::{Lane, plan};
use crate::protected::{Elsewhere, Places};
use crate::proxy::Proxy;
pub use crate::report::{Foreign, Report};
pub use crate::victim::Server;
use crate::victim::{Moved, Seat, Victim};
use crate::worker::{Role, Worker};
pub use crate::workload::PERMITS;
use crate::workload::{SEMAPHORE, Workload};

/// How to torture.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TortureOptions {
    /// For how long. The end of it is left in peace, see [`TortureOptions::calm`].
    pub duration: Duration,
    /// What all choices come from. (The times at which they take effect are the machine's.)
    pub seed: u64,
    /// How many processes at a time.
    pub workers: usize,
    /// How many locks there are.
    pub names: usize,
    /// The lease of the locks. What is done to whom lasts for about as long.
    pub lease: Duration,
    /// What is done. What nobody here can suffer is left out.
    pub blows: Vec<Blow>,
    /// So many of the workers are never killed, and what their processes take up is measured.
    pub spared: usize,
    /// Where the resources are that the locks protect; otherwise they are files.
    pub resources: Option<Elsewhere>,
    /// Where the histories are written, and kept if a rule was broken. It has to be there.
    pub histories: PathBuf,
}

impl Default for TortureOptions {
    /// A minute, four processes, two locks, leases of a second, all there is, and the folder for temporary files.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(60),
            seed: 1,
            workers: 4,
            names: 2,
            lease: Duration::from_secs(1),
            blows: Blow::all(),
            spared: 0,
            resources: None,
            histories: std::env::temp_dir(),
        }
    }
}

impl TortureOptions {
    /// For how long, at the end, nobody is struck: within this, somebody has to be granted a lock again.
    pub fn calm(&self) -> Duration {
        self.lease * 2 + GRACE
    }

    /// For how long a worker says nothing at most that neither was stopped nor died: it waits for five leases, and has
    /// sections of two.
    pub(crate) fn longest_silence(&self) -> Duration {
        self.lease * 7 + GRACE * 2
    }

    pub(crate) fn names(&self) -> Vec<String> {
        (0..self.names.max(1)).map(|name| format!("torture-{name}")).collect()
    }
}

/// What is tortured.
pub struct Site {
    servers: Vec<Box<dyn Server>>,
    /// A client may reach any of them instead of another.
    balanced: bool,
    url: Box<Url>,
    peers: Vec<(Library, Box<Peer>)>,
    count: Option<Box<Count>>,
    disk: Option<PathBuf>,
}

/// Counts what there is in a store.
type Count = dyn Fn() -> Counts + Send + Sync;

/// How many there are of each thing.
pub type Counts = Pin<Box<dyn Future<Output = io::Result<BTreeMap<String, u64>>> + Send>>;

/// From where each server is reached to how a client connects.
type Url = dyn Fn(&[SocketAddr]) -> String;

/// From where each server is reached to another library's lock.
type Peer = dyn Fn(&[SocketAddr]) -> Program;

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("servers", &self.servers.len()).finish_non_exhaustive()
    }
}

impl Site {
    /// A store without a server that could be struck: only the workers are.
    pub fn at(url: impl Into<String>) -> Self {
        let url = url.into();
        Self {
            servers: Vec::new(),
            balanced: false,
            url: Box::new(move |_| url.clone()),
            peers: Vec::new(),
            count: None,
            disk: None,
        }
    }

    /// Servers, and the URL of a client that reaches them at these addresses, in their order.
    pub fn of(servers: Vec<Box<dyn Server>>, url: impl Fn(&[SocketAddr]) -> String + 'static) -> Self {
        Self { servers, balanced: false, url: Box::new(url), peers: Vec::new(), count: None, disk: None }
    }

    /// Servers of one store: a balancer may lead a client to any of them instead of another.
    #[must_use]
    pub fn balanced(self) -> Self {
        Self { balanced: true, ..self }
    }

    /// Beside the workers, another library's lock takes the same ones, and is struck as they are. It reaches the servers at
    /// these addresses. What it does not promise is known by the library's name.
    ///
    /// # Panics
    /// If nothing is known of this library.
    #[must_use]
    pub fn beside(mut self, library: &str, peer: impl Fn(&[SocketAddr]) -> Program + 'static) -> Self {
        let known = Library::named(library).unwrap_or_else(|| panic!("{library} is in no row of foreign.rs"));
        self.peers.push((known, Box::new(peer)));
        self
    }

    /// What there is in the store is counted before anybody takes a lock, and when all have ended.
    #[must_use]
    pub fn counted(self, count: impl Fn() -> Counts + Send + Sync + 'static) -> Self {
        Self { count: Some(Box::new(count)), ..self }
    }

    /// The workers write to the store's file themselves, and to others beside it: their paths begin with this.
    #[must_use]
    pub fn on_disk(self, file: impl Into<PathBuf>) -> Self {
        Self { disk: Some(file.into()), ..self }
    }

    /// How a client connects that is not struck itself.
    pub fn url(&self) -> String {
        self.url_at(&self.addresses())
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.address()).collect()
    }

    /// How a client connects that reaches the servers at these addresses.
    pub(crate) fn url_at(&self, addresses: &[SocketAddr]) -> String {
        (self.url)(addresses)
    }
}

/// How much longer than its lease a dead client may be in the way of others.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// After so many rounds, each lock was taken in each way.
const WARM: u64 = 100;

/// Who does that.
pub(crate) const WARM_UP: &str = "warm-up-0";

/// Tortures a store.
///
/// # Errors
/// If a process cannot be started or does not end well, or a history cannot be read; the histories are kept then, too.
/// What the locks did wrong is in the [`Report`].
///
/// # Panics
/// If there is no free port for a proxy.
pub async fn run(options: &TortureOptions, site: Site) -> io::Result<Report> {
    let folder = tempfile::Builder::new().prefix("torture-").tempdir_in(&options.histories)?;
    match run_in(options, site, folder.path()).await {
        Ok(report) if report.violations.is_empty() => Ok(report),
        Ok(report) => Ok(Report { folder: Some(folder.keep()), ..report }),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error),
        Err(error) => {
            let folder = folder.keep();
            Err(io::Error::other(format!("{error}; what there is of the histories is in {}", folder.display())))
        }
    }
}

async fn run_in(options: &TortureOptions, mut site: Site, folder: &Path) -> io::Result<Report> {
    let log = Log::to_file("supervisor", &Workload::history(folder, "supervisor"))?;
    let (untouched, count) = (site.url(), site.count.take());
    let mut clients = vec!["supervisor".to_owned()];
    let before = match count.as_deref() {
        Some(count) => {
            clients.push(warm_up(options, &untouched, folder).await?);
            count().await?
        }
        None => BTreeMap::new(),
    };
    let victims = victims(options, site, folder)?;
    let spared: Vec<_> = victims.iter().filter_map(|(_, victim)| victim.spared()).collect();
    let start = Instant::now();
    let struck_for = options.duration.saturating_sub(options.calm());
    if let Some(blow) = options.blows.iter().find(|blow| !victims.iter().any(|(_, victim)| victim.can_suffer(**blow)))
        && options.blows.len() < Blow::all().len()
    {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{blow}: nobody here can suffer it")));
    }
    let mut suffering = JoinSet::new();
    for (lane, victim) in victims {
        let blows: Vec<_> = options.blows.iter().copied().filter(|blow| victim.can_suffer(*blow)).collect();
        let plan = plan(lane, options.seed, &blows, options.lease, struck_for);
        suffering.spawn(victim.suffer(lane, plan, start, log.clone()));
    }
    tokio::time::sleep_until(start + options.duration / 10).await;
    let early = footprint::least(&spared, start + options.duration / 5).await?;
    let mut victims = Vec::new();
    while let Some(survived) = suffering.join_next().await {
        victims.push(survived.map_err(io::Error::other)??);
    }
    // On a machine that stood still for a while, blows came late, and the calm is as long as ever.
    let end = (start + options.duration).max(Instant::now() + options.calm());
    let (last, ended) = (footprint::least(&spared, end).await?, monotonic());
    // All at once; the servers and the networks stay until the last is done.
    let (seats, others): (Vec<_>, Vec<_>) = victims.into_iter().partition(|victim| matches!(victim, Victim::Worker(_)));
    let mut ending = JoinSet::new();
    let seats =
        seats.into_iter().filter_map(|victim| if let Victim::Worker(seat) = victim { Some(*seat) } else { None });
    for seat in seats {
        ending.spawn(seat.end(options.lease + Duration::from_secs(30)));
    }
    while let Some(ended) = ending.join_next().await {
        clients.extend(ended.map_err(io::Error::other)??);
    }
    let names = options.names().into_iter().chain([SEMAPHORE.to_owned()]).collect();
    ghosts::look(names, options.lease, untouched, &log).await?;
    let after = match count.as_deref() {
        Some(count) => count().await?,
        None => BTreeMap::new(),
    };
    drop(others);
    let places = match &options.resources {
        Some(elsewhere) => Places::open(&elsewhere.urls, elsewhere.open).await?,
        None => Places::files(folder),
    };
    let mut report = Report::of(options, folder, &places, &clients, ended).await?;
    let sizes = early.into_iter().zip(last).map(|(early, last)| [early, last]);
    report.footprints = spared.into_iter().map(|(client, _)| client).zip(sizes).collect();
    report.counts = after
        .into_iter()
        .map(|(what, after)| {
            let before = before.get(&what).copied().unwrap_or(0);
            (what, [before, after])
        })
        .collect();
    Ok(report)
}

/// Takes each lock, struck by nobody, so that the store knows of them all what it keeps of one that is free.
async fn warm_up(options: &TortureOptions, url: &str, folder: &Path) -> io::Result<String> {
    let client = WARM_UP.to_owned();
    let workload = Workload {
        client: client.clone(),
        folder: folder.to_owned(),
        names: options.names(),
        places: options.resources.as_ref().map_or_else(Vec::new, |elsewhere| elsewhere.urls.clone()),
        rounds: Some(WARM),
        seed: options.seed,
        section_ms: 0,
        peer: None,
    };
    let lease_ms = options.lease.as_millis() as u64;
    let role = Role { url: url.to_owned(), lease_ms, workload: Some(workload), task: None };
    match Worker::spawn(&role, None)?.ended().await? {
        true => Ok(client),
        false => Err(io::Error::other("the first worker did not end well, though nobody struck it")),
    }
}

/// Everybody who can be struck.
fn victims(options: &TortureOptions, site: Site, folder: &Path) -> io::Result<Vec<(Lane, Victim)>> {
    let mut victims = Vec::new();
    let mut fronts = Vec::new();
    let shim = options.blows.iter().any(|blow| blow.is_of_a_host()).then(|| build_shim(folder)).transpose()?;
    for (number, server) in site.servers.into_iter().enumerate() {
        let proxy = Arc::new(Proxy::new(server.address()));
        fronts.push(proxy.address());
        victims.push((Lane::Server(number), Victim::Server { server: Some(server), proxy }));
    }
    let mut libraries: Vec<_> = site.peers.iter().map(|(library, _)| *library).collect();
    libraries.sort_unstable();
    libraries.dedup();
    // One library does not exclude another, though we exclude each, so each has locks of its own among ours.
    let names = |library: Option<Library>| {
        let part = library.and_then(|library| libraries.iter().position(|one| *one == library));
        let all = options.names().into_iter().enumerate();
        all.filter(|(at, _)| part.is_none_or(|part| at % libraries.len() == part)).map(|(_, name)| name).collect()
    };
    let ours = (0..options.workers).map(|_| None);
    for (worker, peer) in ours.chain(site.peers.iter().map(Some)).enumerate() {
        // Of other libraries nobody knows whether they ask for a name again.
        let shim = shim.as_deref().filter(|_| peer.is_none());
        let host = shim
            .map(|shim| Host::new(&folder.join(format!("host-{worker}")), shim, site.disk.as_deref()).map(Arc::new));
        let host = host.transpose()?;
        let proxies: Vec<_> = fronts.iter().map(|front| Proxy::new(*front)).collect();
        let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
        for (server, proxy) in proxies.into_iter().enumerate() {
            let others = fronts.iter().copied().filter(|front| site.balanced && *front != fronts[server]).collect();
            let there = SocketAddr::from((THERE, proxy.address().port()));
            let moved = host.as_ref().map(|host| {
                Proxy::at(there, fronts[server]).map(|proxy| Box::new(Moved { proxy, host: Arc::clone(host), server }))
            });
            let network = Victim::Network { proxy, others, moved: moved.transpose()? };
            victims.push((Lane::Network { worker, server }, network));
        }
        let names = names(peer.map(|(library, _)| *library));
        let peer = peer.map(|(library, program)| (*library, program(&addresses)));
        let url = (site.url)(&addresses);
        let url = if host.is_some() { Host::named(&url, &addresses) } else { url };
        let seat = seat(options, worker, names, url, folder, (host, peer))?;
        victims.push((Lane::Worker(worker), Victim::Worker(Box::new(seat))));
    }
    Ok(victims)
}

fn seat(
    options: &TortureOptions,
    number: usize,
    names: Vec<String>,
    url: String,
    folder: &Path,
    (host, peer): (Option<Arc<Host>>, Option<(Library, Program)>),
) -> io::Result<Seat> {
    let (options, folder) = (options.clone(), folder.to_owned());
    let lease_ms = options.lease.as_millis() as u64;
    // Another library knows none of the others; and a starved worker waits for its files, but not for other places.
    let mut suffers = vec![Blow::Stop, Blow::Kill];
    if peer.is_none() {
        suffers.extend([Blow::ReplaceRuntime, Blow::StepClock, Blow::OutOfMemory, Blow::Panic]);
        if host.as_ref().is_some_and(|host| host.has_disk()) {
            suffers.push(Blow::NoRoom);
        }
        if options.resources.is_none() {
            suffers.push(Blow::Starve);
        }
        if number < options.spared {
            suffers.retain(|blow| !matches!(blow, Blow::Kill | Blow::OutOfMemory));
        }
    }
    Seat::new(suffers, host, move |successor| {
        let kind = peer.as_ref().map_or("worker", |(library, _)| library.name());
        let client = format!("{kind}-{number}-{successor}");
        let mut rng = StdRng::seed_from_u64(options.seed ^ (number as u64) << 32 ^ successor as u64);
        let workload = Workload {
            client: client.clone(),
            folder: folder.clone(),
            names: names.clone(),
            places: options.resources.as_ref().map_or_else(Vec::new, |elsewhere| elsewhere.urls.clone()),
            rounds: None,
            seed: rng.random(),
            // Sections that renewals must keep.
            section_ms: lease_ms * 2,
            peer: peer.as_ref().map(|(_, program)| program.clone()),
        };
        (client, Role { url: url.clone(), lease_ms, workload: Some(workload), task: None })
    })
}
