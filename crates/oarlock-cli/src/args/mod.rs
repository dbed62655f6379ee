//! The command line.

mod fence;
mod mode;
mod run;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::exit;
pub(crate) use fence::{CheckArgs, FenceCommand};
pub(crate) use run::{ElectArgs, Job, OnceArgs, RunArgs};

const CONFIG_HELP: &str = "Where the locks are:
  --url, then $OARLOCK_URL, then `url` in the config file, then an SQLite file in your state folder.
  A setting such as `lease` comes from the URL's parameters, then $OARLOCK_LEASE, then the config file.
  The config file is --config, then $OARLOCK_CONFIG, then oarlock/config.toml in $XDG_CONFIG_HOME (~/.config).";

/// Run commands under distributed locks, show locks, and end holds.
#[derive(Debug, Parser)]
#[command(name = "oarlock", version, after_help = exit::HELP, after_long_help = format!("{CONFIG_HELP}\n\n{}", exit::HELP))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Settings {
    /// The store, such as sqlite:/var/lib/app/locks.db. Other users see the command line, so put a password into
    /// $OARLOCK_URL
    #[arg(long, global = true, value_name = "URL", help_heading = "Settings")]
    pub(crate) url: Option<String>,
    /// The config file
    #[arg(long, global = true, value_name = "FILE", env = "OARLOCK_CONFIG", help_heading = "Settings")]
    pub(crate) config: Option<PathBuf>,
    /// Say on stderr which store is used and what happens; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Settings")]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command only while the lock is held
    #[command(after_help = exit::HELP, long_about = run::RUN)]
    Run(RunArgs),
    /// Run a command on one of several hosts, the leader, and show where it runs
    #[command(after_help = exit::HELP, long_about = run::ELECT)]
    Elect(ElectArgs),
    /// Show who leads, and its value
    #[command(long_about = LEADER)]
    Leader(LeaderArgs),
    /// Show who holds a lock and who waits for it
    #[command(long_about = INSPECT)]
    Inspect(InspectArgs),
    /// Show the locks that are held or waited for
    List(ListArgs),
    /// End a hold by force. If `oarlock run` holds the lock, its command is ended
    Evict(EvictArgs),
    /// Change the number of permits of a semaphore that is in use
    #[command(long_about = RESIZE)]
    Resize {
        /// The semaphore's name
        name: String,
        /// How many permits it has from now on
        #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(oarlock::Mode::MOST_PERMITS)))]
        permits: u32,
    },
    /// Wait until a number of parties have arrived, or be one of them
    #[command(after_help = exit::HELP, long_about = LATCH)]
    Latch(LatchArgs),
    /// Raise fencing tokens
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Check fencing tokens, for scripts
    #[command(subcommand, long_about = fence::CHECK)]
    Fence(FenceCommand),
    /// Look for settings of the store that void a promise
    Doctor(DoctorArgs),
    /// Print the script that makes the tables, for an administrator to run
    Schema {
        /// Instead of --url
        #[arg(value_name = "URL")]
        store: Option<String>,
    },
    /// Watch the locks that are held or waited for
    #[command(long_about = TOP)]
    Top(TopArgs),
    /// Measure stores on what matters for locks
    #[command(after_help = exit::HELP, long_about = COMPARE)]
    Compare(CompareArgs),
    /// Print the completions for a shell
    Completions { shell: Shell },
    /// Print the manual page, of the program or of one of its commands
    Man { command: Option<String> },
}

/// What this program starts itself for. No help, completion or manual page shows it.
#[derive(Debug, Parser)]
#[command(name = "oarlock")]
pub(crate) enum Part {
    /// See `run::guardian`
    #[command(name = GUARD)]
    Guard(GuardArgs),
    /// See `compare::worker`
    #[command(name = WORKER)]
    Worker,
}

pub(crate) const GUARD: &str = "__guard";
pub(crate) const WORKER: &str = "__worker";

const RESIZE: &str = "\
Change the number of permits of a semaphore that is in use.

An increase serves waiters at once. A decrease takes no permit from its holder. From then on, commands must ask \
for the new number: change their --of too. If the semaphore is not in use, oarlock ends with 1: the next command \
that uses the name sets the number.";

const LATCH: &str = "Wait until a number of parties have arrived, or be one of them.

With --arrive, the party PARTY has arrived. Said again, that changes nothing: parties are a set of names, not a count. An \
arrival outlives the command, and counts for --keep. With --wait, it waits until all have arrived, for this time at most if \
one is given, and ends with 1 if they have not. With both, it arrives and waits. With neither, it says who has arrived, and ends with 1 if \
that is not all.

What is to be done several times has a --generation for each: a number that all parties share. The arrivals of one do not \
count for another. In the store an arrival is a lock that nobody holds any more, NAME@latch/GENERATION/N/PARTY: `oarlock list NAME@latch/` \
shows them, and `oarlock evict` takes one back.";

#[derive(Debug, Args)]
pub(crate) struct LatchArgs {
    /// The latch's name
    pub(crate) name: String,
    /// How many parties arrive
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(oarlock::Mode::MOST_PERMITS)))]
    pub(crate) of: u32,
    /// This party has arrived
    #[arg(long, value_name = "PARTY")]
    pub(crate) arrive: Option<String>,
    /// Wait until all have arrived, for so long at most, such as 5m
    #[arg(long, value_name = "DURATION", num_args = 0..=1, value_parser = duration, allow_hyphen_values = true)]
    pub(crate) wait: Option<Option<Duration>>,
    /// Which round this is
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) generation: u64,
    /// How long the arrival counts
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, default_value = "24h", requires = "arrive")]
    pub(crate) keep: Duration,
}

const INSPECT: &str = "\
Show who holds a lock and who waits for it.

`oarlock run --once` leaves a hold that outlives its owner. It is shown as `done by` its owner, and with --json \
as `kept`. The store does not record how the command ended. A command that failed counts as done too, unless it \
was run with --again-on-failure.";

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The lock's name
    pub(crate) name: String,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 0 if the lock is held, even by a hold that outlives its owner, and with 1 if it is free
    #[arg(long)]
    pub(crate) exit_code: bool,
}

const LEADER: &str = "\
Show who leads and its value: the holder of a lock, and what it shows.

With --watch, it prints a line for each change until it is interrupted: `free`, `held by` an owner, `done by` an \
owner whose hold outlives it, and `blind` while the store does not answer. It may miss changes between two \
looks.

With --json, the `state` is `free`, `held`, `kept` (for `done by`) or `blind`. `held` and `holder` are as in \
`oarlock inspect --json`, where a kept hold counts as held. While the state is `blind`, both are null.";

#[derive(Debug, Args)]
pub(crate) struct LeaderArgs {
    /// The lock's name
    pub(crate) name: String,
    /// Print a line for each change, until interrupted
    #[arg(long)]
    pub(crate) watch: bool,
    /// Print one JSON document; with --watch one on each line
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 0 if the lock is held, even by a hold that outlives its owner, and with 1 if it is free
    #[arg(long, conflicts_with = "watch")]
    pub(crate) exit_code: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EvictArgs {
    /// The lock's name
    pub(crate) name: String,
    /// Of several holders, end only this one. Give the owner as `oarlock inspect` shows it, or its beginning
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Do not ask first
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Give every later acquisition of a lock a token above this one
    #[command(long_about = RAISE)]
    Raise {
        /// The lock's name
        name: String,
        /// The highest token that the resource has seen
        #[arg(long, value_name = "TOKEN")]
        above: u64,
    },
}

const RAISE: &str = "\
Give every later acquisition of a lock a token above this one.

Use it for a resource that has seen higher tokens than this store grants, such as those of another store whose \
clock was far ahead. Nothing is lowered, and present holders keep their locks. ZooKeeper and etcd count for many \
locks at once, so they raise the tokens of their whole prefix.";

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

const TOP: &str = "\
Watch the locks that are held or waited for.

The table is renewed each second. The arrow keys, or j and k, choose a lock and show its waiters below. e ends \
its hold, after asking; q quits. If standard output is no terminal, or one that cannot be drawn on (TERM=dumb), \
the table is printed once.";

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The store, instead of --url
    #[arg(value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Only names that begin with this
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Print the table once
    #[arg(long)]
    pub(crate) once: bool,
}

const COMPARE: &str = "\
Measure stores on what matters for locks, with separate processes, in turns.

It measures lock and unlock without other clients; the hand-off between 2 and 8 processes and between 64 tasks; \
fairness; how soon a waiter gets the lock after a release, and after its holder was killed; the cost of 100 idle \
waiters and of 1,000 renewals; and the messages per acquisition.

The locks have a random prefix. When interrupted, it reports what it has. It leaves no lock behind; the store \
deletes its record of a free lock, such as the last token, as usual. It puts load on the stores while it runs.";

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The stores, such as redis://host, or cache=redis://host, which the report calls cache. `-` reads them from
    /// standard input, one a line: other users see the command line, and a password in it
    #[arg(value_name = "[NAME=]URL")]
    pub(crate) urls: Vec<String>,
    /// About how long to measure each store. Steps of a fixed length, such as the end of a lease, take longer
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Also write a page with plots and tables to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GuardArgs {
    /// The read end of the leash
    pub(crate) leash: i32,
    /// Where to say that the command has begun
    pub(crate) begun: i32,
    #[arg(value_parser = duration)]
    pub(crate) grace: Duration,
    /// Tell the parent when the command is stopped
    #[arg(long)]
    pub(crate) job_control: bool,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// `30s`, `1m 30s` or `0`, as in the config.
fn duration(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err("it cannot be negative; write 30s, 5m or 1h 30m".to_owned());
    }
    match text.parse::<f64>() {
        Ok(0.0) => Ok(Duration::ZERO),
        Ok(_) => Err("it needs a unit; write 30s, 5m or 1h 30m".to_owned()),
        Err(_) => humantime::parse_duration(text).map_err(|error| format!("{error}; write 30s, 5m or 1h 30m")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_read_in_each_form() {
        for (text, millis) in [("30s", 30_000), ("1m 30s", 90_000), ("5ms", 5), ("0", 0), ("0s", 0)] {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for (bad, says) in
            [("", "write"), ("-1s", "negative"), ("-1", "negative"), ("2", "unit"), ("0.25", "unit"), ("soon", "write")]
        {
            assert!(duration(bad).unwrap_err().contains(says), "{bad}");
        }
    }
}
