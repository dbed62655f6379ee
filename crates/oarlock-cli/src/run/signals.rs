//! Signals as a stream.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

use Signal::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};

/// Those that `oarlock` passes on, and those by which a terminal's job is suspended and continued.
pub(super) const SUPERVISOR: &[Signal] = &[SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT];

/// Those that reach the guardian as a member of the command's group and must neither end nor stop it.
pub(super) const GUARDIAN: &[Signal] =
    &[SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGTTIN, SIGTTOU];

/// Those that end a command that only looks.
pub(crate) const INTERRUPTIONS: &[Signal] = &[SIGINT, SIGTERM, SIGHUP];

/// The signals that arrive from now on, which do not have their usual effect any more.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// A signal that was ignored when the program started, as `nohup` and shells arrange it, stays ignored, for the
    /// command as well: a handler would undo that.
    pub(crate) fn listen(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored();
        let wanted = signals.iter().filter(|&&signal| ignored >> (signal as u32 - 1) & 1 == 0);
        wanted
            .map(|&signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next one. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The set of ignored signals, the first in the lowest bit. Asking the kernel directly would need unsafe code; where
/// there is no such file, none count as ignored.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
