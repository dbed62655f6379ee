//! `fence`: checks of fencing tokens, for scripts.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::exit;

#[derive(Debug, Subcommand)]
pub(crate) enum FenceCommand {
    /// Reject a holder that has lost its lock, by a file that keeps the highest fencing token
    #[command(after_help = exit::HELP, long_about = CHECK)]
    Check(CheckArgs),
}

pub(super) const CHECK: &str = "\
Reject a holder that has lost its lock, by a file that keeps the highest fencing token.

A command of `oarlock run` may be paused, lose its lock, and go on without knowing. `oarlock fence check --file \
STATE` compares its token, $OARLOCK_TOKEN, with the highest token of this lock that was seen, which STATE keeps. \
It rejects a lower token: it names both tokens on stderr and ends with 75. Otherwise it writes the token to \
STATE and ends with 0. It makes STATE if the file is missing. `oarlock run --shared` sets $OARLOCK_SHARED: a \
reader is rejected after a later writer, and raises nothing. With `--of`, each permit has a mark of its own.

The script may be paused between a check and the write that follows it, and another holder may write meanwhile. \
So let the check run what writes: `oarlock fence check --file STATE -- COMMAND` runs COMMAND only if it accepts \
the token. All other checks with this file wait until COMMAND has ended. They wait by flock on STATE.lock, which \
COMMAND inherits, so processes that COMMAND leaves running in the background keep them waiting too. Readers do \
not wait for each other, and neither do different permits.

A program that does not check is not held back. The file must be on a file system that all writing hosts share, \
and whose flock works between them. Each name has a line in STATE; with `oarlock run --once`, each slot is a \
name.";

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The file that keeps the highest tokens
    #[arg(long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The name of the mark in the file, instead of the lock's name in $OARLOCK_NAME. Of several locks, it chooses the
    /// one to check
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The token, instead of $OARLOCK_TOKEN. Of the other variables, only $OARLOCK_NAME is used then
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// The token is a reader's, as if $OARLOCK_SHARED were set
    #[arg(long, short)]
    pub(crate) shared: bool,
    /// The token is that of this permit, instead of those in $OARLOCK_SLOTS. May be given more than once
    #[arg(long, value_name = "N", conflicts_with = "shared")]
    pub(crate) slot: Vec<u32>,
    /// The command to run after the check, while other checks wait
    #[arg(last = true)]
    pub(crate) command: Vec<OsString>,
}
