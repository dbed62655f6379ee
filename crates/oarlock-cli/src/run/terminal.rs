//! The terminal's foreground: lent to the command's group, taken back at the end.

use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// Is the terminal ours to lend? It is if standard input is one and we are in its foreground.
pub(super) fn is_ours() -> bool {
    io::stdin().is_terminal() && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// Makes `group` the foreground.
pub(super) fn lend(group: Pid) {
    // It fails if the terminal is gone; then nobody is in its foreground.
    let _ = tcsetpgrp(io::stdin(), group);
}

/// Makes us the foreground again.
pub(super) fn take_back() {
    // Asking for this from the background stops the asker, unless it blocks the signal.
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    let _ = stop.thread_block();
    let _ = tcsetpgrp(io::stdin(), getpgrp());
    let _ = stop.thread_unblock();
}
