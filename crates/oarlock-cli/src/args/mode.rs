//! How `run` takes its lock: alone, beside others who share it, or as some of a number of permits.

use clap::Args;
use oarlock::Mode;

use crate::exit::{Failure, USAGE};

/// The command may run beside others.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Beside others")]
pub(crate) struct ModeArgs {
    /// Share the lock with other commands that have --shared. A command without it holds the lock alone
    #[arg(long, short)]
    pub(crate) shared: bool,
    /// Let at most N commands run at the same time, over all hosts: the lock is a semaphore
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(Mode::MOST_PERMITS)))]
    pub(crate) of: Option<u32>,
    /// Take K of the permits of --of [default: 1]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..), requires = "of")]
    pub(crate) permits: Option<u32>,
}

impl ModeArgs {
    /// How many permits, and of how many.
    pub(crate) fn taken(&self) -> Option<(u32, u32)> {
        self.of.map(|of| (self.permits.unwrap_or(1), of))
    }

    /// What the parser does not check, with the options that are for a lock alone.
    pub(crate) fn check(&self, alone: [(bool, &str); 2]) -> Result<(), Failure> {
        let ours = match (self.shared, self.taken()) {
            (false, None) => return Ok(()),
            (true, None) => "--shared",
            (false, Some((take, of))) if take <= of => "--of",
            (false, Some((take, of))) => {
                return Err(Failure::new(USAGE, format!("--permits {take} are more than there are with --of {of}")));
            }
            (true, Some(_)) => {
                return Err(Failure::new(
                    USAGE,
                    "--shared cannot be used with --of: a lock that is shared has no permits",
                ));
            }
        };
        match alone.into_iter().find(|(is_there, _)| *is_there) {
            Some((_, option)) => {
                let wrong = format!("{ours} cannot be used with {option}, which needs the lock for itself alone");
                Err(Failure::new(USAGE, wrong))
            }
            None => Ok(()),
        }
    }
}
