//! What operators count, behind the feature `metrics`; without it, nothing. The application installs the recorder.

use crate::contract::{Error, ErrorKind};
use crate::engine::hold::End;

/// How the measurements of one `Locks` are labelled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telemetry {
    backend: &'static str,
}

/// Evaluates its arguments, and records them if the feature is on.
macro_rules! record {
    ($kind:ident $name:literal, $($label:literal => $value:expr),+; $method:ident $amount:expr) => {
        #[cfg(feature = "metrics")]
        metrics::$kind!($name, $($label => $value),+).$method($amount);
        #[cfg(not(feature = "metrics"))]
        let _ = ($($value,)+ $amount);
    };
}

impl Telemetry {
    pub(crate) fn new(backend: &'static str) -> Self {
        #[cfg(feature = "metrics")]
        describe();
        Self { backend }
    }

    /// An acquisition that began then ended so.
    pub(crate) fn acquired<T>(self, began: Began, outcome: Result<Option<&T>, &Error>) {
        let outcome = match outcome {
            Ok(Some(_)) => "granted",
            Ok(None) => "busy",
            Err(error) if error.kind() == ErrorKind::Timeout => "timeout",
            Err(_) => "failed",
        };
        record!(histogram "oarlock_wait_seconds", "backend" => self.backend, "outcome" => outcome; record began.seconds());
        if outcome == "timeout" {
            record!(counter "oarlock_timeouts_total", "backend" => self.backend; increment 1);
        }
    }

    /// A guard that was made then has gone.
    pub(crate) fn held(self, began: Began) {
        record!(histogram "oarlock_hold_seconds", "backend" => self.backend; record began.seconds());
    }

    /// A lock passed from task to task.
    pub(crate) fn handed_over(self) {
        record!(counter "oarlock_hand_overs_total", "backend" => self.backend; increment 1);
    }

    /// A hold came to be at risk.
    pub(crate) fn at_risk(self) {
        record!(counter "oarlock_at_risk_total", "backend" => self.backend; increment 1);
    }

    /// A lock was lost.
    pub(crate) fn lost(self, end: End) {
        let reason = match end {
            End::Expired => "expired",
            End::Overdue => "max_hold",
            End::NotHeld => "not_held",
            End::Shutdown => "shutdown",
            End::Released => return,
        };
        record!(counter "oarlock_lost_total", "backend" => self.backend, "reason" => reason; increment 1);
    }

    /// A batch of renewals that began then was answered; so many of them failed.
    pub(crate) fn renewed(self, began: Began, leases: usize, failed: usize) {
        record!(histogram "oarlock_renewal_seconds", "backend" => self.backend; record began.seconds());
        for (outcome, count) in [("renewed", leases - failed), ("failed", failed)] {
            record!(counter "oarlock_renewals_total", "backend" => self.backend, "outcome" => outcome; increment count as u64);
        }
    }

    /// A task waits in the process, as long as this is there.
    pub(crate) fn waiting(self) -> Waiting {
        record!(gauge "oarlock_queue_length", "backend" => self.backend; increment 1.0);
        Waiting(self)
    }
}

/// See [`Telemetry::waiting`].
#[derive(Debug)]
pub(crate) struct Waiting(Telemetry);

impl Drop for Waiting {
    fn drop(&mut self) {
        record!(gauge "oarlock_queue_length", "backend" => self.0.backend; decrement 1.0);
    }
}

/// When something began. Without the feature nobody looks at a clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    #[cfg(feature = "metrics")]
    at: std::time::Instant,
}

impl Began {
    pub(crate) fn now() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            at: std::time::Instant::now(),
        }
    }

    fn seconds(self) -> f64 {
        #[cfg(feature = "metrics")]
        return self.at.elapsed().as_secs_f64();
        #[cfg(not(feature = "metrics"))]
        0.0
    }
}

#[cfg(feature = "metrics")]
fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

    describe_histogram!("oarlock_wait_seconds", Unit::Seconds, "From the call to the lock, or to its failure.");
    describe_counter!("oarlock_timeouts_total", "Acquisitions whose wait was over.");
    describe_histogram!("oarlock_hold_seconds", Unit::Seconds, "From the grant until the guard has gone.");
    describe_counter!("oarlock_hand_overs_total", "Locks that passed from task to task without a request.");
    describe_counter!("oarlock_at_risk_total", "Holds of which a renewal failed.");
    describe_counter!("oarlock_lost_total", "Locks that were lost.");
    describe_histogram!("oarlock_renewal_seconds", Unit::Seconds, "From a batch of renewals to its answer.");
    describe_counter!("oarlock_renewals_total", "Leases that were renewed, or were not.");
    describe_gauge!("oarlock_queue_length", "Tasks that wait in the process.");
}
