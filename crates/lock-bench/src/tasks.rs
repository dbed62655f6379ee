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

/// Jain's index: 1 if all have equally much, 1/n if one has all.
pub(crate) fn jain(counts: &[f64]) -> f64 {
    let sum: f64 = counts.iter().sum();
    sum * sum / (counts.len() as f64 * counts.iter().map(|count| count * count).sum::<f64>())
}
