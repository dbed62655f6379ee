//! The guardian's children: the command, and what the command left behind.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid, getpgrp};

use crate::exit::SIGNAL;

/// What happened to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It ended, with this exit code.
    Ended(u8),
    /// It was stopped.
    Stopped,
}

/// Asks, without waiting, what happened to the command; others that ended are seen off.
pub(super) fn change(command: Pid) -> Option<Change> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == command => return Some(Change::Ended(code as u8)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == command => {
                return Some(Change::Ended(SIGNAL + signal as u8));
            }
            Ok(WaitStatus::Stopped(pid, _)) if pid == command => return Some(Change::Stopped),
            Ok(WaitStatus::StillAlive) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// The process groups to end: ours, which the command was started in, and the one that it may have moved to, as
/// `timeout` and `setsid` do.
#[derive(Debug)]
pub(super) struct Groups {
    own: Pid,
    other: Option<Pid>,
}

impl Groups {
    pub(super) fn of(command: Pid) -> Self {
        let own = getpgrp();
        Self { own, other: getpgid(Some(command)).ok().filter(|&other| other != own) }
    }

    /// Signals the group that the command moved to, if it did.
    pub(super) fn signal_other(&self, signal: Signal) {
        if let Some(other) = self.other {
            let _ = killpg(other, signal);
        }
    }

    /// Signals all, the guardian included.
    pub(super) fn signal(&self, signal: Signal) {
        self.signal_other(signal);
        let _ = killpg(self.own, signal);
    }

    /// Is any process left, besides the guardian? A group in which nobody is left is forgotten, since its number may
    /// come to belong to strangers.
    pub(super) fn anyone_left(&mut self) -> bool {
        self.other = self.other.filter(|&other| anyone_in(other));
        self.other.is_some() || anyone_in(self.own)
    }
}

/// Children suffice: orphans of the group become the guardian's own.
fn anyone_in(group: Pid) -> bool {
    loop {
        match waitpid(Pid::from_raw(-group.as_raw()), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Tells `oarlock` that the command was stopped, as a terminal would have.
pub(super) fn tell_stopped(parent: Pid) {
    let _ = kill(parent, Signal::SIGTSTP);
}
