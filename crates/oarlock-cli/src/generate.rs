//! Shell completions and manual pages, made from the command line's own description.

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::Cli;
use crate::exit::{self, Failure, USAGE};
use crate::output;

const ENVIRONMENT: &[(&str, &str)] = &[
    ("OARLOCK_URL", "Where the locks are, if --url does not say so. The place for a URL with a password in it."),
    ("OARLOCK_CONFIG", "The config file, if --config does not say so."),
    (
        "OARLOCK_LEASE, OARLOCK_WAIT, OARLOCK_PREFIX, OARLOCK_LABEL, ...",
        "The other settings of the config file, in capitals. A parameter of the URL goes before its variable, and a \
         variable before the config file.",
    ),
    (
        "OARLOCK_NAME, OARLOCK_TOKEN, OARLOCK_TOKENS",
        "Set by oarlock run and oarlock elect for their command: the lock's name and the fencing token, and the tokens of \
         all locks as JSON.",
    ),
    (
        "OARLOCK_SLOT, OARLOCK_SLOTS",
        "Set by oarlock run --of: the number of the command's permit, which no other has meanwhile, and those of all its \
         permits, with commas.",
    ),
    ("OARLOCK_SHARED", "Set by oarlock run --shared, to 1: the command's token is a reader's."),
    ("NO_COLOR", "If set, what --verbose prints has no colours."),
];

const FILES: &[(&str, &str)] = &[
    (
        "$XDG_CONFIG_HOME/oarlock/config.toml",
        "The config file, in ~/.config unless XDG_CONFIG_HOME names another folder: the URL, the lease and other \
         settings, and below [backend] those of the store.",
    ),
    (
        "$XDG_STATE_HOME/oarlock/locks.db",
        "The locks, in SQLite, where nothing names a store; in ~/.local/state unless XDG_STATE_HOME names another \
         folder. The first lock that is taken makes the file; commands that look make nothing.",
    ),
];

const EXAMPLES: &[(&str, &str)] = &[
    ("oarlock run nightly -- ./backup.sh", "Run a script while nobody else runs it."),
    ("oarlock run nightly --try -- ./backup.sh", "The same, or end with 1 if somebody else does."),
    ("oarlock run catalog --shared -- ./report.sh", "Read beside others who only read, and not while somebody writes."),
    ("oarlock run exports --of 5 -- ./export.sh", "Run five of these at a time at most, over all hosts."),
    ("oarlock run nightly --wait 5m -E 0 -- ./backup.sh", "Wait for five minutes, and take it for done after that."),
    (
        "oarlock run nightly --once --slot \"$(date +%F)\" -- ./backup.sh",
        "In the crontab of several hosts: one of them runs it, once a day, also if their clocks differ by seconds.",
    ),
    (
        "oarlock run cleanup --once --at-least 50m --again-on-failure -- ./cleanup.sh",
        "Run it if nobody has done so in the last 50 minutes with success.",
    ),
    ("oarlock run mails --rate 100/min -- ./send.sh", "Send no more than 100 a minute, over all hosts."),
    ("oarlock latch import --of 8 --arrive \"$(hostname)\"", "Say that this one of eight hosts is ready."),
    ("oarlock latch import --of 8 --wait 5m && ./import.sh", "Wait until all eight are, for five minutes at most."),
    (
        "oarlock elect scheduler --value \"http://$(hostname):8080\" -- ./scheduler",
        "Run a service on one of several hosts, and show where.",
    ),
    ("oarlock leader scheduler --json", "Show a program who leads, and at which address."),
    ("oarlock leader scheduler --watch", "Print a line whenever that changes."),
    (
        "oarlock run report -- sh -c './compute >new; oarlock fence check --file report.state -- mv new report'",
        "Put a result into place only if nobody has had the lock since.",
    ),
    ("oarlock inspect nightly --exit-code >/dev/null && echo it runs", "Ask whether a lock is held."),
    ("oarlock list --json --url redis://cache.internal", "Show the locks of another store to a program."),
];

pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "oarlock", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

pub(crate) fn man(command: Option<&str>) -> Result<u8, Failure> {
    let mut program = Cli::command();
    program.build();
    let page = match command {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name);
            let found =
                found.ok_or_else(|| Failure::new(USAGE, format!("there is no command {name:?}: see oarlock help")))?;
            found.clone().display_name(format!("oarlock-{name}"))
        }
    };
    // What stands below the help has sections of its own here.
    let page = page.after_help(None::<&'static str>).after_long_help(None::<&'static str>);
    let mut text = Vec::new();
    Man::new(page).render(&mut text)?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    text += &section("EXIT STATUS", &exit_codes());
    for (title, rows) in [("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES), ("EXAMPLES", EXAMPLES)] {
        text += &section(title, rows);
    }
    output::print(&text)?;
    Ok(0)
}

/// Each code, and what it means.
fn exit_codes() -> Vec<(&'static str, &'static str)> {
    exit::HELP.lines().skip(1).filter_map(|line| line.trim_start().split_once("  ")).collect()
}

fn section(title: &str, rows: &[(&str, &str)]) -> String {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (term, text) in rows {
        roff.control("TP", []).text([bold(*term)]).text([roman(text.trim_start())]);
    }
    roff.to_roff()
}
