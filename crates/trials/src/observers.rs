//! `cargo xtask observers BACKEND`: what it costs to look on while nothing happens.

use std::time::{Duration, Instant};

use clap::Args;
use oarlock::testing::{Faulty, Verb};
use oarlock::{Locks, Observer};
use test_servers::Disk;
use tokio::task::JoinSet;

use crate::torture::{on_a_runtime, site};

/// Which store, and how many look on.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The backend on a store made for this, or the URL of one: as for `torture`.
    backend: String,
    /// How many look on, in this process.
    #[arg(long, default_value_t = 1000)]
    observers: usize,
    /// How long they are watched, in seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    on_a_runtime(async {
        let folder = test_servers::folder(Disk::Memory);
        let site = site(&options.backend, folder.path())?;
        for names in [1, options.observers] {
            let asked = idle(options, names, &site.url()).await?;
            let (backend, observers) = (&options.backend, options.observers);
            println!("{backend}: {observers} observers of {names} locks ask {asked:.1} times a second");
        }
        Ok(())
    })
}

/// How often a second the store is asked by observers of so many locks, all of which have seen the present state.
async fn idle(options: &Options, names: usize, url: &str) -> Result<f64, String> {
    let connected = oarlock::connect(url).await.map_err(|error| error.to_string())?;
    let counted = Faulty::new(connected.backend().clone());
    let locks = Locks::new(counted.backend());
    let mut observing = JoinSet::new();
    let mut seen = Vec::new();
    for number in 0..options.observers {
        let name = format!("observed-{}", number % names.max(1));
        let observer = locks.election(name.as_str()).observe().map_err(|error| error.to_string())?;
        seen.push(tokio::spawn(first(observer)));
    }
    for seen in seen {
        let mut observer = seen.await.map_err(|error| error.to_string())??;
        // Nothing happens: this does not end.
        observing.spawn(async move { observer.next().await.map(drop) });
    }
    // Those that came later than others go in step with them only now.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, since) = (counted.calls(Verb::Inspect), Instant::now());
    tokio::time::sleep(Duration::from_secs(options.seconds)).await;
    let asked = (counted.calls(Verb::Inspect) - before) as f64 / since.elapsed().as_secs_f64();
    if let Some(ended) = observing.try_join_next() {
        return Err(format!("an observer saw something, and nothing happened: {ended:?}"));
    }
    observing.shutdown().await;
    let _ = locks.shutdown(Duration::from_secs(5)).await;
    Ok(asked)
}

async fn first(mut observer: Observer) -> Result<Observer, String> {
    observer.next().await.map_err(|error| error.to_string())?;
    Ok(observer)
}
