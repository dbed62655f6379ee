//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::exit;

const CONFIG_HELP: &str = "Where the locks are:
  --url, then $OARLOCK_URL, then `url` in the config file, then an SQLite file in your state folder.
  A setting such as `lease` comes from the URL's parameters, then $OARLOCK_LEASE, then the config file.
  The config file is --config, then $OARLOCK_CONFIG, then oarlock/config.toml in $XDG_CONFIG_HOME (~/.config).";

/// Run a command under a distributed lock, look at locks, break one.
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
    /// The backend, such as sqlite:/var/lib/app/locks.db. Others see the command line: put a password into $OARLOCK_URL
    #[arg(long, global = true, value_name = "URL", help_heading = "Settings")]
    pub(crate) url: Option<String>,
    /// The config file
    #[arg(long, global = true, value_name = "FILE", env = "OARLOCK_CONFIG", help_heading = "Settings")]
    pub(crate) config: Option<PathBuf>,
    /// Say on stderr which backend is used and what happens; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Settings")]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command only while the lock is held
    #[command(after_help = exit::HELP, long_about = RUN)]
    Run(RunArgs),
    /// Show who holds a lock and who waits for it
    Inspect(InspectArgs),
    /// Show the locks that are held or waited for. If there are none, it says so on a terminal; elsewhere it prints the
    /// table's head alone, or with --json an empty list
    List(ListArgs),
    /// End a hold by force, whoever's it is; the holder's command is ended
    Evict(EvictArgs),
    /// Look after fencing tokens
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Look for settings of the store that void a promise
    Doctor(DoctorArgs),
    /// Print the script that makes the tables, for stores where this program has no right to make them
    Schema {
        /// Instead of --url
        #[arg(value_name = "URL")]
        store: Option<String>,
    },
    /// Watch the locks that are held or waited for; a table where that cannot be drawn
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

const RUN: &str = "Run a command only while the lock is held.

The command finds the lock's name in $OARLOCK_NAME and the fencing token in $OARLOCK_TOKEN: a number that is higher at \
each later acquisition. Pass it on to what the lock protects, and let that refuse a lower one.

The command runs in a process group of its own. The signals INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to it. \
If the lock is lost, the group gets SIGTERM and, after --grace, SIGKILL; the same happens if oarlock itself is killed. If \
oarlock is stopped, or suspended from the terminal, for longer than the lease, the lock is lost. The grace may overlap with \
the next holder: where that must not be, use --grace 0 or check the fencing token. What the command leaves running in \
the background when it ends is not waited for.";

#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// The lock's name
    pub(crate) name: String,
    /// Wait so long at most, such as 30s or 5m; connecting counts, and has at least a second. Without it as long as the
    /// configuration says, or without end
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, conflicts_with = "try_lock")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait at all. Connecting may take a second
    #[arg(long = "try")]
    pub(crate) try_lock: bool,
    /// How long the lock outlives a holder that is not heard of any more
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) lease: Option<Duration>,
    /// The exit code if the lock is not free in time
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::CONFLICT)]
    pub(crate) conflict_exit_code: u8,
    /// The time between SIGTERM and SIGKILL when the lock is lost
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, default_value = "10s")]
    pub(crate) grace: Duration,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// What connecting may take, however short the wait.
const LEAST_TO_CONNECT: Duration = Duration::from_secs(1);

impl RunArgs {
    /// How long connecting may take; `None` is without a bound of ours.
    pub(crate) fn connects_within(&self) -> Option<Duration> {
        let wait = if self.try_lock { Some(Duration::ZERO) } else { self.wait };
        wait.map(|wait| wait.max(LEAST_TO_CONNECT))
    }

    /// How this holder is called where somebody looks: by the command's name, which tells more than ours.
    pub(crate) fn label(&self) -> Option<String> {
        let stem = Path::new(self.command.first()?).file_name()?.to_string_lossy();
        let allowed = |c: &char| !c.is_control() && !matches!(c, '@' | '#');
        let label: String = stem.chars().filter(allowed).take(16).collect();
        (!label.is_empty()).then_some(label)
    }
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The lock's name
    pub(crate) name: String,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 0 if the lock is held, and with 1 if it is free
    #[arg(long)]
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
    /// Do not ask first
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Have every later acquisition of a lock get a token above this one, for a resource that has seen it
    #[command(long_about = RAISE)]
    Raise {
        /// The lock's name
        name: String,
        /// The highest token that the resource has seen
        #[arg(long, value_name = "TOKEN")]
        above: u64,
    },
}

const RAISE: &str = "Have every later acquisition of a lock get a token above this one.

For a resource that has seen tokens from where clocks do not reach, such as another store whose clock was far ahead, and refuses those of this store. \
Nothing is lowered, and holders of now keep their locks. ZooKeeper and etcd, which count for many locks at once, raise the tokens of their whole prefix.";

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

const TOP: &str = "Watch the locks that are held or waited for.

Looks each second. The arrow keys or j and k choose a lock, whose waiters are shown below; e ends its hold, after asking; q leaves. Where \
standard output is not a terminal, or one that cannot be drawn on (TERM=dumb), it prints the table once.";

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

const COMPARE: &str = "Measure stores on what matters for locks, with processes of their own, in turns.

What is measured: lock and unlock with nobody else there; the hand-off between 2 and 8 processes and between 64 tasks; fairness; how soon a waiter \
has the lock after a release, and after its holder was killed; what 100 idle waiters and 1,000 renewals cost; messages per acquisition.

The locks are under a prefix drawn for this run. Interrupted, it reports what it has. It leaves no lock; what a store keeps of a lock that is free, \
such as its last token, goes when the store drops that anyway. It puts load on the stores, for as long as it takes.";

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The stores, such as redis://host or cache=redis://host, by which name the report calls it. `-` reads them from
    /// standard input, a line each: others see the command line, and with it a password
    #[arg(value_name = "[NAME=]URL")]
    pub(crate) urls: Vec<String>,
    /// About how long to measure each store; what is of fixed length, such as the end of a lease, comes on top
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Write a page with plots and tables to this file too
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

    #[test]
    fn the_label_is_the_commands_name() {
        for (command, label) in [("/usr/bin/backup", Some("backup")), ("a@b#c", Some("abc")), ("@", None)] {
            let cli = Cli::try_parse_from(["oarlock", "run", "x", "--", command]).unwrap();
            let Command::Run(args) = cli.command else { panic!("not run") };
            assert_eq!(args.label().as_deref(), label);
        }
    }
}
