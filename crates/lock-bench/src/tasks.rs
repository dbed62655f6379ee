//! Tasks of one process, each of which goes round a cycle for some time.

use std::time::{Duration, Instant};

use lock_core::Locks;

/// What they did together.
pub(crate) struct Run {
    /// Cycles per second.
    pub(crate) rate: f64,
    /// Jain's index over the tasks: 1 if all had equally many cycles.
    pub(crate) fairness: f64,
    /// From the begin of each cycle to the moment that it answered; sorted.
    times: Vec<Duration>,
}

impl Run {
    /// The time that this share of the cycles was no slower than.
    pub(crate) fn at(&self, share: f64) -> Duration {
        let last = self.times.len().checked_sub(1).expect("at least one cycle");
        self.times[(last as f64 * share) as usize]
    }
}

/// Runs cycles in so many tasks, which are told their numbers, for this long. A cycle answers the moment that counts.
pub(crate) async fn run<F>(tasks: usize, during: Duration, cycle: impl Fn(usize) -> F + Clone + Send + 'static) -> Run
where
    F: Future<Output = Instant> + Send,
{
    let start = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let cycle = cycle.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                loop {
                    let begun = Instant::now();
                    if begun - start >= during {
                        return times;
                    }
                    times.push(cycle(task).await - begun);
                }
            })
        })
        .collect();
    let (mut counts, mut times) = (Vec::new(), Vec::new());
    for task in running {
        let its = task.await.expect("no panic");
        counts.push(its.len() as f64);
        times.extend(its);
    }
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    times.sort_unstable();
    Run { rate, fairness: jain(&counts), times }
}

/// Runs so many tasks, each of which takes and gives back a lock of its own.
pub(crate) async fn apart(locks: &Locks, tasks: usize, during: Duration) -> Run {
    let locks = locks.clone();
    let cycle = move |task: usize| {
        let mutex = locks.mutex(task.to_string());
        async move {
            let held = mutex.lock().await.expect("free");
            let taken = Instant::now();
            held.unlock().await.expect("answered");
            taken
        }
    };
    run(tasks, during, cycle).await
}

/// So many tasks on names of their own, per as many bare pairs, in each round.
pub(crate) async fn per_pair<P, F>(
    store: &str,
    locks: &Locks,
    (bare, pair): (P, fn(P, String) -> F),
    rounds: usize,
    during: Duration,
) -> Vec<f64>
where
    P: Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    const TASKS: usize = 64;
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let ours = apart(locks, TASKS, during).await.rate;
        let bare = bare.clone();
        let base = run(TASKS, during, move |task| {
            let pair = pair(bare.clone(), task.to_string());
            async {
                pair.await;
                Instant::now()
            }
        });
        let base = base.await.rate;
        println!("    {store}: {TASKS} tasks on {TASKS} names {ours:.0}/s, bare pairs {base:.0}/s");
        ratios.push(ours / base);
    }
    drop(locks.shutdown(Duration::from_secs(1)).await);
    ratios
}

/// Jain's index: 1 if all have equally much, 1/n if one has all.
pub(crate) fn jain(counts: &[f64]) -> f64 {
    let sum: f64 = counts.iter().sum();
    sum * sum / (counts.len() as f64 * counts.iter().map(|count| count * count).sum::<f64>())
}
