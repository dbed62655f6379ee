//! `cargo xtask scale`: what becomes dearer when there are more clients, waiters, names or kept locks, and the page of it.

mod numbers;
mod page;
pub(crate) mod usage;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::record::root;
use crate::torture::on_a_runtime;

/// Those of the page.
const STORES: [&str; 9] =
    ["sqlite", "redis", "memcached", "postgres", "postgres-session", "mysql", "mysql-session", "etcd", "zookeeper"];

/// What to count up.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The backends of the page, on stores made for this; all if none is named.
    stores: Vec<String>,
    /// Of what there are more and more.
    #[arg(long, value_delimiter = ',')]
    of: Vec<Crowd>,
    /// How long one step may take, in seconds. The first that takes longer is the last.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// No step goes beyond this number.
    #[arg(long, default_value_t = 1_000_000)]
    up_to: usize,
    /// The figures that the page is written from. What is measured again takes the place of what was there.
    #[arg(long, default_value = "docs/figures/scale.json")]
    record: PathBuf,
    /// Writes docs/scale.md.
    #[arg(long)]
    write: bool,
    /// Measures nothing: the page is of what was measured before.
    #[arg(long, requires = "write")]
    as_measured: bool,
}

/// Of what there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Crowd {
    /// Clients, each with a connection of its own, that take one lock in turn.
    ClientsOfOne,
    /// Clients that take a lock each.
    ClientsApart,
    /// Those in line for one lock.
    Waiters,
    /// Locks that are held.
    Held,
    /// Locks that were held and are free.
    Free,
    /// Locks that one client keeps renewing.
    Kept,
}

/// One step: what it costs at this number. Times are in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) number: usize,
    /// What one operation takes: the median, or with clients the time divided by the acquisitions of all.
    pub(crate) time: f64,
    /// What one operation sends over the network: segments of TCP of all connections of the machine.
    pub(crate) segments: f64,
    /// What one operation costs the servers' processors.
    pub(crate) server_cpu: f64,
    /// The same of this process.
    pub(crate) client_cpu: f64,
    /// The memory that one more of the crowd takes of the servers, in bytes.
    pub(crate) server_bytes: f64,
    /// And of this process.
    pub(crate) client_bytes: f64,
}

/// The steps of one crowd at one store, and why there is no higher one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stairs {
    /// The day on which they were measured, as in `2026-11-26`.
    #[serde(default)]
    pub(crate) on: String,
    pub(crate) steps: Vec<Step>,
    pub(crate) ended: Option<String>,
}

/// By crowd and store.
pub(crate) type Record = BTreeMap<Crowd, BTreeMap<String, Stairs>>;

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut record = read(options)?;
    let named: Vec<_> = options.stores.iter().map(String::as_str).collect();
    if let Some(unknown) = named.iter().find(|name| !STORES.contains(name)) {
        return Err(format!("{unknown:?} cannot be measured: name some of {}", STORES.join(", ")));
    }
    let all = options.of.is_empty();
    let stores = if named.is_empty() { &STORES[..] } else { &named };
    for store in if options.as_measured { &[] } else { stores } {
        for &crowd in Crowd::value_variants().iter().filter(|crowd| all || options.of.contains(crowd)) {
            let stairs = climb(options, store, crowd)?;
            record.entry(crowd).or_default().insert((*store).to_owned(), stairs);
            let text = serde_json::to_string_pretty(&record).map_err(|error| error.to_string())?;
            fs::write(&options.record, text).map_err(|error| format!("{}: {error}", options.record.display()))?;
        }
    }
    if options.write {
        let file = root().join("docs/scale.md");
        return fs::write(&file, page::page(&record)).map_err(|error| format!("{}: {error}", file.display()));
    }
    Ok(())
}

fn read(options: &Options) -> Result<Record, String> {
    match fs::read_to_string(&options.record) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", options.record.display())),
        Err(_) => Ok(Record::new()),
    }
}

/// Each number on a store of its own, so that none pays for the one before.
fn climb(options: &Options, store: &str, crowd: Crowd) -> Result<Stairs, String> {
    let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    let mut stairs = Stairs { on: now[..10].to_owned(), ..Stairs::default() };
    for &number in crowd.numbers().iter().filter(|&&number| number <= options.up_to) {
        let limit = Duration::from_secs(options.seconds);
        let step = on_a_runtime(async {
            match tokio::time::timeout(limit, numbers::step(store, crowd, number)).await {
                Ok(step) => step,
                Err(_) => Err(format!("{number} take longer than {} s", options.seconds)),
            }
        });
        match step {
            Ok(step) => {
                println!("{store} {crowd:?} {}", page::line(&step));
                stairs.steps.push(step);
            }
            Err(why) => {
                println!("{store} {crowd:?}: {why}");
                stairs.ended = Some(why);
                break;
            }
        }
    }
    Ok(stairs)
}

impl Crowd {
    fn numbers(self) -> &'static [usize] {
        match self {
            Self::ClientsOfOne | Self::ClientsApart => &[1, 10, 100, 1_000],
            Self::Waiters => &[10, 100, 1_000, 10_000, 100_000],
            Self::Held | Self::Free => &[10, 100, 1_000, 10_000, 100_000, 1_000_000],
            Self::Kept => &[100, 1_000, 10_000, 100_000],
        }
    }
}
