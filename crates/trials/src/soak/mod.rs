//! `cargo xtask soak`: an hour of torture, half of the workers other libraries' where a store has any, and what there is
//! more of at the end than at the beginning; and the page of it, docs/soak.md.

mod census;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use conformance_tests::torture::{self, Counts, Footprint, Report, TortureOptions};
use serde::{Deserialize, Serialize};
use test_servers::Disk;

use crate::foreign;
use crate::guarantees::wrap;
use crate::record::root;
use crate::scale::usage::{Usage, descendants};
use crate::torture::{check_duration, minutes, on_a_runtime, possible, site};
use census::{Count, FOR_A_DAY};

/// So many workers are ours, or more where there are more foreign ones, whose number is the same.
const WORKERS: usize = 4;

/// So many of ours are never killed.
const SPARED: usize = 1;

/// So many minutes.
const HOUR: f64 = 60.0;

/// By then, everything has gone that ends with its lease, or is kept for a minute.
const SWEPT: Duration = Duration::from_secs(120);

/// What goes only when it is an hour old.
const FOR_AN_HOUR: [&str; 3] = ["rows of oarlock_gone", "rows of oarlock_client", "keys of clients"];

/// What is measured of the servers' processes, and not counted in the store.
const OF_SERVERS: &str = "servers'";

/// Which stores, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The backends on stores made for this, as for `torture`, one after the other. What is left in a quorum's stores is
    /// not counted.
    #[arg(required_unless_present = "write")]
    stores: Vec<String>,
    /// For how long each; for the page, an hour.
    #[arg(long, default_value_t = HOUR, value_parser = minutes, allow_negative_numbers = true)]
    minutes: f64,
    /// What the choices come from: the same seed makes the same ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keeps what was measured, and writes docs/soak.md of all that was kept.
    #[arg(long)]
    write: bool,
}

/// What came of one store.
#[derive(Debug, Serialize, Deserialize)]
struct Soaked {
    minutes: f64,
    seed: u64,
    grants: usize,
    foreign: BTreeMap<String, usize>,
    blows: usize,
    /// Which rules, and how often.
    broken: BTreeMap<String, usize>,
    /// Of a worker of ours, in bytes, files and threads, the least in the second tenth of the time and at the end.
    worker: Option<[(u64, usize, usize); 2]>,
    counts: BTreeMap<String, [u64; 2]>,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    if options.write && options.minutes < HOUR {
        return Err(format!("--minutes: the page is of {HOUR} minutes each; leave out --write"));
    }
    let folder = root().join("docs/figures/soak");
    let mut left = Vec::new();
    for store in &options.stores {
        let soaked = soak(options, store)?;
        left.extend(soaked.more().map(|what| format!("{store}: {what}")));
        left.extend(soaked.broken.keys().map(|rule| format!("{store}: {rule} was broken")));
        if options.write {
            fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            let file = folder.join(format!("{store}.json"));
            let text = serde_json::to_string_pretty(&soaked).map_err(|error| error.to_string())?;
            fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    if options.write {
        let file = root().join("docs/soak.md");
        fs::write(&file, page(&folder)?).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
}

fn soak(options: &Options, store: &str) -> Result<Soaked, String> {
    let minutes = Duration::from_secs_f64(options.minutes * 60.0);
    let others = foreign::known(store);
    let mut torture = TortureOptions::default();
    (torture.duration, torture.seed, torture.spared) = (minutes, options.seed, SPARED);
    torture.workers = WORKERS.max(others.len() * 2);
    torture.lease = possible(store, torture.lease);
    check_duration(&torture)?;
    torture.histories = test_servers::kept_as("soak");
    let folder = test_servers::folder(Disk::Memory);
    let site = site(store, folder.path())?;
    let url = site.url();
    let before = Arc::<Mutex<Option<Count>>>::default();
    let is_one = !store.starts_with("quorum");
    let site = if is_one { site.counted(move || counts(url.clone(), Arc::clone(&before))) } else { site };
    let site = foreign::beside(site, store, &others, &mut torture)?;
    println!("soaking {store} for {minutes:?} with seed {}", options.seed);
    let report = on_a_runtime(async { torture::run(&torture, site).await.map_err(|error| error.to_string()) })?;
    println!("{store}: {report}");
    Ok(Soaked::of(options, &report))
}

/// The first time at once; the second time when there is no more of anything than then, or when it is too late for that.
fn counts(url: String, before: Arc<Mutex<Option<Count>>>) -> Counts {
    Box::pin(async move {
        let first = before.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let late = Instant::now() + SWEPT;
        loop {
            let now = match count(&url).await {
                Ok(now) => now,
                // A server may be about to start again.
                Err(_) if Instant::now() < late => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
                Err(error) => return Err(io::Error::other(error)),
            };
            let more = |first: &Count| {
                now.iter().any(|(what, now)| is_to_go(what) && *now > first.get(what).copied().unwrap_or(0))
            };
            if first.as_ref().is_none_or(|first| !more(first)) || Instant::now() > late {
                let mut all = now;
                all.extend(of_servers());
                *before.lock().unwrap_or_else(PoisonError::into_inner) = Some(all.clone());
                return Ok(all);
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    })
}

fn is_to_go(what: &str) -> bool {
    !what.starts_with(OF_SERVERS) && !FOR_AN_HOUR.contains(&what) && what != FOR_A_DAY
}

/// A client that is used sweeps, so one is meanwhile, and has gone before it is counted.
async fn count(url: &str) -> Result<Count, String> {
    let locks = oarlock::connect(url).await.map_err(|error| error.to_string())?;
    let guard = locks.mutex("torture-0").lock().await.map_err(|error| error.to_string())?;
    guard.unlock().await.map_err(|error| error.to_string())?;
    let left = locks.shutdown(Duration::from_secs(10)).await;
    if !left.unreleased.is_empty() {
        return Err(format!("it could not be left: {left:?}"));
    }
    drop(locks);
    tokio::time::sleep(Duration::from_secs(1)).await;
    census::of(url).await
}

fn of_servers() -> Count {
    let files = |id: u32| fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count) as u64;
    let files = descendants(std::process::id()).into_iter().map(files).sum();
    let megabytes = (Usage::now().server_bytes / 1e6).round() as u64;
    [(format!("{OF_SERVERS} megabytes"), megabytes), (format!("{OF_SERVERS} files"), files)].into()
}

impl Soaked {
    fn of(options: &Options, report: &Report) -> Self {
        let of = |footprint: &Footprint| (footprint.bytes, footprint.files, footprint.threads);
        Self {
            minutes: options.minutes,
            seed: options.seed,
            grants: report.grants,
            foreign: report.foreign.iter().map(|(name, its)| ((*name).to_owned(), its.grants)).collect(),
            blows: report.blows.values().sum(),
            broken: report.broken().into_iter().map(|(rule, times)| (rule.to_owned(), times)).collect(),
            worker: report.footprints.values().next().map(|[early, last]| [of(early), of(last)]),
            counts: report.counts.clone(),
        }
    }

    /// What there is more of in the store than at the beginning, and what a worker takes up half as much again of.
    fn more(&self) -> impl Iterator<Item = String> {
        let counted = self.counts.iter().filter(|(what, _)| is_to_go(what));
        let left = counted.map(|(what, [before, after])| (what.as_str(), *before, *before, *after));
        let worker = self.worker.into_iter().flat_map(|[early, last]| {
            let both = [("bytes of a worker", early.0, last.0), ("files of a worker", early.1 as u64, last.1 as u64)];
            both.map(|(what, early, last)| (what, early, early + early / 2, last))
        });
        let more = left.chain(worker).filter(|(_, _, most, last)| last > most);
        more.map(|(what, before, _, last)| format!("{before} {what} at first, {last} at the end"))
    }
}

fn page(folder: &std::path::Path) -> Result<String, String> {
    let mut page = include_str!("page.md").to_owned();
    let mut files: Vec<_> = fs::read_dir(folder).map_err(|error| error.to_string())?.flatten().collect();
    files.retain(|file| file.path().extension().is_some_and(|name| name == "json"));
    files.sort_by_key(fs::DirEntry::file_name);
    let mut counted = String::new();
    for file in files {
        let name = file.file_name().to_string_lossy().trim_end_matches(".json").to_owned();
        let text = fs::read_to_string(file.path()).map_err(|error| error.to_string())?;
        let soaked: Soaked = serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
        for (library, grants) in &soaked.foreign {
            let _ = writeln!(counted, "| {name} | grants of {library} | | {grants} |");
        }
        let broken: Vec<_> = soaked.broken.iter().map(|(rule, times)| format!("{rule} {times}")).collect();
        let broken = if broken.is_empty() { "none".to_owned() } else { broken.join(", ") };
        let [early, last] = soaked.worker.unwrap_or_default();
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let _ = writeln!(
            page,
            "| {name} | {} | {} | {} | {broken} | {:.1} → {:.1} | {} → {} | {} → {} |",
            soaked.minutes,
            soaked.grants,
            soaked.blows,
            megabytes(early.0),
            megabytes(last.0),
            early.1,
            last.1,
            early.2,
            last.2
        );
        for (what, [before, after]) in &soaked.counts {
            let _ = writeln!(counted, "| {name} | {what} | {before} | {after} |");
        }
    }
    let _ = write!(page, "\n| store | what | before | at the end |\n| --- | --- | ---: | ---: |\n{counted}");
    Ok(wrap(&page))
}
