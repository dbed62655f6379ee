//! `fence`: checks of fencing tokens, for scripts.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::exit;

#[derive(Debug, Subcommand)]
pub(crate) enum FenceCommand {
    /// Refuse a holder that comes too late, by a file with the highest fencing token that was seen
    #[command(after_help = exit::HELP, long_about = CHECK)]
    Check(CheckArgs),
}

pub(super) const CHECK: &str = "\
Refuse a holder that comes too late, by a file with the highest fencing token that was seen.

A command that `oarlock run` runs may be paused, lose its lock, and go on without knowing. `oarlock fence check \
--file STATE` compares its token, $OARLOCK_TOKEN, with the highest that was seen of this lock, which STATE keeps. A \
lower token is refused: it names both on stderr and ends with 75. Any other is written to STATE before it ends with \
0. STATE is made if it is not there. `oarlock run --shared` sets $OARLOCK_SHARED: a reader is refused after a later \
writer and raises nothing. With `--of`, each permit has a mark of its own.

Between a check and the write that follows it, the script may be paused and another holder write. So let the check \
run what writes: `oarlock fence check --file STATE -- COMMAND` runs COMMAND only if the token is not refused, and \
keeps all other checks by this file waiting until COMMAND has ended. They wait by flock on STATE.lock, which COMMAND \
inherits: what it leaves running in the background keeps them waiting too. Readers have their turns at the same \
time, and so have different permits.

Only those who check are held back. The file must be where all hosts that write see it, on a file system whose flock \
holds between them. Each name has a line in STATE; with `oarlock run --once`, each slot is a name.";

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The file that keeps the highest tokens
    #[arg(long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// What the mark in the file is called, instead of the lock's name in $OARLOCK_NAME; of several locks, the one to
    /// check
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The token, instead of $OARLOCK_TOKEN; the other variables are not looked at then, but for the name
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// The token is a reader's, as where $OARLOCK_SHARED is set
    #[arg(long, short)]
    pub(crate) shared: bool,
    /// The token is that of this permit, instead of those in $OARLOCK_SLOTS. May be given more than once
    #[arg(long, value_name = "N", conflicts_with = "shared")]
    pub(crate) slot: Vec<u32>,
    /// What to run after the check, while others are kept waiting
    #[arg(last = true)]
    pub(crate) command: Vec<OsString>,
}
