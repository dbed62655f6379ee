//! The progress bar, on a terminal, with the time left.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often it is drawn.
const EACH: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    planned: Duration,
    done: Duration,
    started: Instant,
}

impl Progress {
    /// Of steps that take this long in all, as far as one can tell beforehand.
    pub(super) fn new(planned: Duration) -> Self {
        let bar = ProgressBar::new(planned.as_millis() as u64);
        let style = ProgressStyle::with_template("{bar:30} {msg}").expect("the template is right");
        bar.set_style(style);
        bar.enable_steady_tick(EACH);
        Self { bar, planned, done: Duration::ZERO, started: Instant::now() }
    }

    /// What is done next.
    pub(super) fn begin(&self, what: &str) {
        self.bar.set_message(format!("about {} left: {what}", rounded(self.left())));
    }

    /// A step that was expected to take this long is over.
    pub(super) fn end(&mut self, planned: Duration) {
        self.done += planned;
        self.bar.set_position(self.done.as_millis() as u64);
    }

    /// By how much the steps so far took more or less than planned, the others will.
    fn left(&self) -> Duration {
        let pace = if self.done.is_zero() { 1.0 } else { self.started.elapsed().div_duration_f64(self.done) };
        self.planned.saturating_sub(self.done).mul_f64(pace)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// In whole seconds, and in tens of them where there are many.
fn rounded(left: Duration) -> String {
    let seconds = left.as_secs();
    let seconds = if seconds > 60 { seconds.next_multiple_of(10) } else { seconds.max(1) };
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}
