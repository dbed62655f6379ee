//! What runs a command: `run` and `elect`.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
use oarlock::{ErrorKind, LockName, LockValue};

use super::duration;
use super::mode::ModeArgs;
use crate::exit::{self, Failure, USAGE};

pub(super) const RUN: &str = "\
Run a command only while the lock is held.

The command finds the lock's name in $OARLOCK_NAME and its fencing token in $OARLOCK_TOKEN. Each later \
acquisition has a higher token. Pass it on to the protected resource, and let the resource reject a lower one.

The command runs in a process group of its own. oarlock passes the signals INT, TERM, HUP, QUIT, USR1 and USR2 \
on to it. If the lock is lost, the group gets SIGTERM and, after --grace, SIGKILL. The same happens if oarlock \
itself is killed. The lock is lost if oarlock is stopped, or suspended from the terminal, for longer than the \
lease. The grace may overlap with the next holder; to prevent that, use --grace 0 or check the fencing token. \
oarlock does not wait for processes that the command leaves running in the background.

With --also, the command runs only while all these locks are held. oarlock takes them in the order of their \
names, so commands that need the same locks do not deadlock. --wait bounds the acquisition of all of them. \
$OARLOCK_TOKENS has the token of each lock as JSON. \
--shared and --of apply to NAME alone; --also-shared names a lock to share with other readers.

With --shared, any number of commands hold the lock at the same time. A command without --shared waits for them, \
and then holds the lock alone. $OARLOCK_SHARED tells the command that it shares the lock. With --of N, at most N \
commands run at the same time. Each finds the number of its permit in $OARLOCK_SLOT: it is below N, and no other \
command has it meanwhile. With --permits K, the command finds its K numbers in $OARLOCK_SLOTS, separated by \
commas. All commands of one name must give the same N; `oarlock resize` changes it while the name is in use. All \
waiters stand in one line, first come, first served.

With --rate 100/min, no lock is taken. The command waits for its turn: over all hosts, the store gives no more turns in \
any period than the rate allows. Then oarlock becomes the command. Nothing is saved up: after a pause, commands begin at \
the rate, not all at once. All commands of one name must give the same rate. If --wait ends before the turn comes, \
oarlock ends at once.

With --once, one of several hosts runs the command, and the others skip it. They skip it even if their clocks \
differ, or if they come after it has ended: the lock stays taken for as long as the command counts as done. A \
host that skips the command does not wait; it says on stderr which host runs it or has run it. A command that \
fails (its code is not 0, or oarlock got INT or TERM) counts as done, unless --again-on-failure is given; the \
lock does not show how it ended. If the lock is lost, or --at-most is over, the command is ended and does not \
count as done. The next oarlock that is started runs it.";

pub(super) const ELECT: &str = "\
Run a command on one of several hosts, and show where it runs.

All candidates that use the same name stand in line for its lock. The first one leads. It shows its --value to \
all who ask with `oarlock leader`, and runs the command. The command finds $OARLOCK_NAME and $OARLOCK_TOKEN as \
with `oarlock run`.

The lock may be about to be lost, because the store is away or oarlock is stopped. The command is then ended \
before another candidate can be elected: by SIGTERM and, after --grace, by SIGKILL. Then oarlock campaigns \
again. It also campaigns again after `oarlock evict`, but it learns of that too late to end the command first. A \
--grace of more than a third of the lease is cut to a third, and oarlock says so.

A candidate whose store is away says so on stderr and retries until the store is back. A waiting candidate says \
once who leads. oarlock ends if the configuration is wrong, or if the store refuses its first request, for \
example for a wrong password.

If the command ends by itself, oarlock ends with the command's code. On SIGTERM or SIGINT, oarlock ends the \
command (by SIGTERM and, after --grace, by SIGKILL), releases the lock, and ends. It passes other signals on to \
the command. Ctrl-C at a terminal goes to the command alone.";

/// A command that runs only while a lock is held.
#[derive(Clone, Debug, Args)]
pub(crate) struct Job {
    /// The lock's name
    pub(crate) name: String,
    /// How long the store keeps the lock of a holder that has crashed
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) lease: Option<Duration>,
    /// The time between SIGTERM and SIGKILL when the command is ended
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, default_value = "10s")]
    pub(crate) grace: Duration,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

impl Job {
    /// How this holder is called where somebody looks: by the command's name, which tells more than ours.
    pub(crate) fn label(&self) -> Option<String> {
        let stem = Path::new(self.command.first()?).file_name()?.to_string_lossy();
        let allowed = |c: &char| !c.is_control() && !matches!(c, '@' | '#');
        let label: String = stem.chars().filter(allowed).take(16).collect();
        (!label.is_empty()).then_some(label)
    }

    /// The grace of a command that has to end within the time that the lock is held. With more than a third of that, the
    /// command would be ended while renewals are on time.
    pub(crate) fn grace_within(&self, remaining: Duration) -> Duration {
        self.grace.min(remaining / 3)
    }

    /// What to tell of a grace that is much shorter for that than was asked for.
    pub(crate) fn cut(&self, remaining: Duration) -> Option<String> {
        let grace = self.grace_within(remaining);
        let (asked, is) = (humantime::format_duration(self.grace), humantime::format_duration(in_millis(grace)));
        let enough = self.grace.saturating_mul(3).as_secs().saturating_add(2);
        let told = || {
            format!(
                "--grace {asked} is cut to {is}: the command ends within the lease, before another can be elected, and has a \
                 third of it for that; --lease {enough}s is long enough"
            )
        };
        // What is left of a lease is a little shorter than what was asked for: that is nothing to tell.
        (grace < self.grace / 10 * 9).then(told)
    }
}

fn in_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) job: Job,
    /// Wait for at most this time, such as 30s or 5m. Connecting counts, and has at least a second. The default is the
    /// configuration's `wait`, or no end
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, conflicts_with = "try_lock")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait for the lock. Connecting may take a second
    #[arg(long = "try")]
    pub(crate) try_lock: bool,
    /// The exit code if the lock is not free in time [default: 1]. With --once, use --skipped
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Show this text with the lock
    #[arg(long, value_name = "TEXT", value_parser = Value)]
    pub(crate) value: Option<LockValue>,
    /// Hold this lock too while the command runs: all locks or none. May be given more than once
    #[arg(long, value_name = "NAME")]
    pub(crate) also: Vec<String>,
    /// The same, shared with others who only read. May be given more than once
    #[arg(long, value_name = "NAME")]
    pub(crate) also_shared: Vec<String>,
    /// Take no lock: let so many commands begin in some time, over all hosts, such as 100/min, 5/s or 10/2h
    #[arg(long, value_name = "N/TIME", value_parser = rate)]
    pub(crate) rate: Option<(u32, Duration)>,
    #[command(flatten)]
    pub(crate) mode: ModeArgs,
    #[command(flatten)]
    pub(crate) once: OnceArgs,
}

/// `100/min`, `5/s`, `10/2h`.
fn rate(text: &str) -> Result<(u32, Duration), String> {
    const REMEDY: &str = "write so many in some time, such as 100/min, 5/s or 10/2h";
    let (permits, per) = text.split_once('/').ok_or(REMEDY)?;
    let permits: u32 = permits.trim().parse().map_err(|error| format!("{error}; {REMEDY}"))?;
    let per = per.trim();
    let per = if per.starts_with(|c: char| c.is_ascii_digit()) { per.to_owned() } else { format!("1{per}") };
    let per = humantime::parse_duration(&per).map_err(|error| format!("{error}; {REMEDY}"))?;
    match (permits, per) {
        (0, _) => Err(format!("a rate of none lets nobody begin; {REMEDY}")),
        (_, per) if per.is_zero() || per > LONGEST => {
            Err(format!("its time is zero or longer than 366 days; {REMEDY}"))
        }
        rate => Ok(rate),
    }
}

/// The command runs once.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Once")]
pub(crate) struct OnceArgs {
    /// Skip the command if another host runs it or has run it. Needs --slot, --at-least or both
    #[arg(long)]
    pub(crate) once: bool,
    /// The time for which the run was planned, in a form that all hosts share, such as 2026-11-22. It is not the time at
    /// which the run happens to start. The lock is NAME@SLOT. It counts as done for 24h, or for --at-least
    #[arg(long, value_name = "SLOT", value_parser = NonEmptyStringValueParser::new(), requires = "once")]
    pub(crate) slot: Option<String>,
    /// The time from its start during which no other host runs it, such as 5m
    #[arg(long, value_name = "DURATION", value_parser = some_time, allow_hyphen_values = true, requires = "once")]
    pub(crate) at_least: Option<Duration>,
    /// How long it may take. After that it is ended as if the lock were lost, and does not count as done
    #[arg(long, value_name = "DURATION", value_parser = some_time, allow_hyphen_values = true, requires = "once")]
    pub(crate) at_most: Option<Duration>,
    /// Let a failed command run again at once. Otherwise, it counts as done
    #[arg(long, requires = "once")]
    pub(crate) again_on_failure: bool,
    /// The exit code if the command is skipped
    #[arg(long, value_name = "CODE", default_value_t = 0, requires = "once")]
    pub(crate) skipped: u8,
}

/// What connecting may take, however short the wait.
const LEAST_TO_CONNECT: Duration = Duration::from_secs(1);

impl RunArgs {
    /// The locks that the command needs.
    pub(crate) fn names(&self) -> Vec<&str> {
        std::iter::once(&self.job.name).chain(&self.also).chain(&self.also_shared).map(String::as_str).collect()
    }

    /// Does it need more than one?
    pub(crate) fn has_others(&self) -> bool {
        !(self.also.is_empty() && self.also_shared.is_empty())
    }

    /// How long connecting may take; `None` is without a bound of ours.
    pub(crate) fn connects_within(&self) -> Option<Duration> {
        let wait = if self.try_lock { Some(Duration::ZERO) } else { self.wait };
        wait.map(|wait| wait.max(LEAST_TO_CONNECT))
    }

    /// The exit code if the lock is not free in time.
    pub(crate) fn conflict(&self) -> u8 {
        self.conflict_exit_code.unwrap_or(exit::CONFLICT)
    }

    /// What the parser does not check.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        for (is_there, option, remedy) in [
            (self.wait.is_some(), "--wait", "nobody waits for a job that another runs; leave it out"),
            (self.try_lock, "--try", "that is what --once does; leave it out"),
            (self.conflict_exit_code.is_some(), "--conflict-exit-code (-E)", "use --skipped CODE instead"),
            (self.value.is_some(), "--value", "a job that runs once shows none; leave it out"),
            (self.has_others(), "--also", "a job that runs once has one lock; leave it out"),
        ] {
            if self.once.once && is_there {
                return Err(Failure::new(USAGE, format!("--once cannot be used with {option}: {remedy}")));
            }
        }
        for (is_there, option) in [
            (self.once.once, "--once"),
            (self.value.is_some(), "--value"),
            (self.has_others(), "--also"),
            (self.mode.shared, "--shared"),
            (self.mode.of.is_some(), "--of"),
            (self.job.lease.is_some(), "--lease"),
        ] {
            if self.rate.is_some() && is_there {
                let wrong = format!("--rate cannot be used with {option}: it takes no lock; leave one out");
                return Err(Failure::new(USAGE, wrong));
            }
        }
        if self.value.is_some() && self.has_others() {
            return Err(Failure::new(
                USAGE,
                "--value cannot be used with --also: it is shown with one lock; leave one out",
            ));
        }
        self.mode.check([(self.once.once, "--once"), (self.value.is_some(), "--value")])?;
        if self.once.once && self.once.slot.is_none() && self.once.at_least.is_none() {
            let message = "for how long does it count as done? With --once goes --slot SLOT, which says for what time the \
                           command runs, or --at-least DURATION, which says how long nobody else runs it";
            return Err(Failure::new(USAGE, message));
        }
        if let Some(slot) = self.once.slot.as_ref().filter(|slot| slot.contains('@')) {
            return Err(Failure::new(USAGE, format!("--slot {slot:?} cannot have an @ in it")));
        }
        Ok(())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    pub(crate) job: Job,
    /// The text to show to all who ask, such as the address of the leader
    #[arg(long, value_name = "TEXT", value_parser = Value, required = true)]
    pub(crate) value: LockValue,
}

impl ElectArgs {
    /// What the parser does not check. A candidate may wait long for its store, and would hear of it only then.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        LockName::new(&self.job.name)?;
        Ok(())
    }
}

/// Reads a value. A function would do, but its error would repeat the text, which may be long.
#[derive(Clone, Copy, Debug)]
struct Value;

impl TypedValueParser for Value {
    type Value = LockValue;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        text: &OsStr,
    ) -> Result<LockValue, clap::Error> {
        let value = text.to_str().map(LockValue::new);
        let value = value.unwrap_or_else(|| Err(oarlock::Error::new(ErrorKind::Invalid, "it is no UTF-8")));
        let told = |error| clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("--value: {error}\n"));
        value.map_err(|error| told(error).with_cmd(command))
    }
}

/// The longest time that the library takes.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it cannot be zero; write 30s, 5m or 1h 30m".to_owned()),
        time if time > LONGEST => Err("it is longer than 366 days; write a shorter time".to_owned()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Command};
    use super::*;

    fn parsed(args: &[&str]) -> Result<RunArgs, String> {
        let all = [&["oarlock", "run", "x"], args, &["--", "/usr/bin/backup"]].concat();
        let cli = Cli::try_parse_from(all).map_err(|error| error.to_string())?;
        let Command::Run(args) = cli.command else { panic!("not run") };
        args.check().map_err(|failure| failure.message.unwrap())?;
        Ok(args)
    }

    #[test]
    fn the_label_is_the_commands_name() {
        for (command, label) in [("/usr/bin/backup", Some("backup")), ("a@b#c", Some("abc")), ("@", None)] {
            let cli = Cli::try_parse_from(["oarlock", "run", "x", "--", command]).unwrap();
            let Command::Run(args) = cli.command else { panic!("not run") };
            assert_eq!(args.job.label().as_deref(), label);
        }
    }

    #[test]
    fn once_takes_its_options() {
        let args = parsed(&["--once", "--slot", "1", "--at-least", "5m", "--at-most", "1h", "--skipped", "9"]).unwrap();
        let (once, minute) = (args.once, Duration::from_secs(60));
        assert!(once.once && !once.again_on_failure && once.slot.as_deref() == Some("1") && once.skipped == 9);
        assert_eq!((once.at_least, once.at_most), (Some(5 * minute), Some(60 * minute)));
        let once = parsed(&["--once", "--at-least", "1s", "--again-on-failure", "--lease", "9s"]).unwrap().once;
        assert!(once.again_on_failure && once.slot.is_none() && once.skipped == 0);
        assert!(!parsed(&[]).unwrap().once.once);
    }

    #[test]
    fn once_refuses_what_makes_no_sense() {
        let neither = parsed(&["--once"]).unwrap_err();
        assert!(neither.contains("--slot") && neither.contains("--at-least"), "{neither}");
        for (other, remedy) in [
            (&["--wait", "5s"][..], "leave it out"),
            (&["--try"], "leave it out"),
            (&["-E", "1"], "--skipped CODE"),
            (&["--value", "v"], "leave it out"),
        ] {
            let wrong = parsed(&[&["--once", "--slot", "1"], other].concat()).unwrap_err();
            assert!(wrong.contains("--once") && wrong.contains(other[0]) && wrong.contains(remedy), "{wrong}");
        }
        for alone in [
            &["--slot", "1"][..],
            &["--at-least", "1s"],
            &["--at-most", "1s"],
            &["--again-on-failure"],
            &["--skipped", "1"],
        ] {
            assert!(parsed(alone).unwrap_err().contains("--once"), "{alone:?}");
        }
        for (wrong, says) in [
            (["--slot", ""], "--slot"),
            (["--at-least", "0"], "zero"),
            (["--at-most", "0s"], "zero"),
            (["--at-least", "400d"], "longer than 366 days"),
            (["--at-most", "367d"], "longer than 366 days"),
            (["--at-least", "-1s"], "negative"),
            (["--at-most", "5"], "unit"),
            (["--skipped", "256"], "256"),
        ] {
            let told = parsed(&[&["--once"], &wrong[..]].concat()).unwrap_err();
            assert!(told.contains(says), "{told}");
        }
    }

    #[test]
    fn modes_refuse_what_makes_no_sense() {
        assert_eq!(parsed(&["--of", "5"]).unwrap().mode.taken(), Some((1, 5)));
        assert_eq!(parsed(&["--permits", "2", "--of", "5", "--try"]).unwrap().mode.taken(), Some((2, 5)));
        assert!(parsed(&["-s", "--wait", "5s"]).unwrap().mode.shared);
        for (wrong, says) in [
            (&["--permits", "2"][..], "--of"),
            (&["--permits", "3", "--of", "2"], "more than there are"),
            (&["--of", "0"], "1..=1024"),
            (&["--of", "1025"], "1..=1024"),
            (&["--shared", "--of", "2"], "no permits"),
            (&["--shared", "--value", "v"], "--value"),
            (&["--shared", "--once", "--slot", "1"], "--once"),
        ] {
            let told = parsed(wrong).unwrap_err();
            assert!(told.contains(says), "{told}");
        }
    }

    #[test]
    fn rates_are_read_in_each_form() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        for (text, permits, per) in
            [("100/min", 100, minute), ("5/s", 5, minute / 60), ("10/2h", 10, 2 * hour), ("1/1h 30m", 1, hour * 3 / 2)]
        {
            assert_eq!(parsed(&["--rate", text]).unwrap().rate, Some((permits, per)), "{text}");
        }
        for wrong in ["100", "/min", "x/min", "-1/s", "0/s", "1/0s", "1/400d", "1/", "1/fortnight"] {
            let told = parsed(&[&format!("--rate={wrong}")]).unwrap_err();
            assert!(told.contains("100/min"), "{wrong}: {told}");
        }
        for other in [
            &["--of", "2"][..],
            &["-s"],
            &["--also", "y"],
            &["--also-shared", "y"],
            &["--value", "v"],
            &["--lease", "9s"],
        ] {
            let told = parsed(&[&["--rate", "1/s"], other].concat()).unwrap_err();
            assert!(told.contains("it takes no lock"), "{told}");
        }
        assert!(parsed(&["--rate", "1/s", "--try", "-E", "0"]).is_ok());
    }

    #[test]
    fn a_value_is_checked_before_anything_is_done() {
        assert_eq!(parsed(&["--value", "http://a"]).unwrap().value.unwrap().as_str(), "http://a");
        parsed(&["--value", "v", "--try"]).unwrap();
        assert!(parsed(&["--value", ""]).unwrap_err().contains("cannot be empty"));
        let long = parsed(&["--value", &"x".repeat(4097)]).unwrap_err();
        assert!(long.contains("--value") && long.contains("4097") && long.len() < 400, "{long}");
        let elect = |args: &[&str]| Cli::try_parse_from([&["oarlock", "elect", "x"], args].concat());
        assert!(elect(&["--", "true"]).unwrap_err().to_string().contains("--value"));
        assert!(elect(&["--value", "v"]).unwrap_err().to_string().contains("COMMAND"));
        elect(&["--value", "v", "--grace", "1s", "--lease", "5s", "--", "true"]).unwrap();
    }

    #[test]
    fn a_grace_is_a_third_of_the_lease_at_most() {
        let job = |grace: &str| {
            let args = ["oarlock", "elect", "x", "--value", "v", "--grace", grace, "--", "true"];
            let Command::Elect(args) = Cli::try_parse_from(args).unwrap().command else { panic!("not elect") };
            args.job
        };
        let held = Duration::from_secs(29);
        assert_eq!(job("5s").grace_within(held), Duration::from_secs(5));
        assert_eq!(job("30s").grace_within(held), held / 3);
        assert_eq!((job("5s").cut(held), job("10s").cut(held)), (None, None), "the default fits the default");
        let told = job("30s").cut(held).unwrap();
        assert!(told.contains("--grace 30s is cut to 9s 666ms") && told.contains("--lease 92s"), "{told}");
        // The remedy is one.
        assert_eq!(job("30s").cut(Duration::from_secs(92 - 1)), None);
        assert_eq!(job("100ms").cut(Duration::from_millis(2000 - 200)), None);
    }
}
