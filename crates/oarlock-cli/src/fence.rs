//! `fence`: checks of fencing tokens, for scripts.

use std::collections::BTreeMap;
use std::env;
use std::error::Error as _;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use oarlock::fence::Access;
use oarlock::fence::file::{self, Held};
use oarlock::{Error, ErrorKind};

use crate::args::{CheckArgs, FenceCommand};
use crate::exit::{Failure, OS_ERROR, USAGE, told};

pub(crate) fn fence(command: &FenceCommand) -> Result<u8, Failure> {
    let FenceCommand::Check(args) = command;
    let access = shown(args, |variable| env::var(variable).ok())?;
    let held = file::hold(&args.file, &access).map_err(|error| failure(&error))?;
    match args.command.split_first() {
        Some((program, arguments)) => Err(become_command(&held, program, arguments)?),
        None => Ok(0),
    }
}

/// Goes on as the command, which inherits the turn: whatever ends it ends the turn, and nothing else does.
fn become_command(held: &Held, program: &OsStr, arguments: &[impl AsRef<OsStr>]) -> Result<Failure, Failure> {
    for file in held.files() {
        fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    Ok(Failure::cannot_run(program, &Command::new(program).args(arguments).exec()))
}

/// What the system refuses has a code of its own here: there is no store.
fn failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Refused | ErrorKind::Unknown if error.source().is_some_and(|source| source.is::<io::Error>()) => {
            Failure::new(OS_ERROR, told(error))
        }
        _ => Failure::from(error),
    }
}

/// What the command line and the environment say of the holder.
fn shown(args: &CheckArgs, variable: impl Fn(&str) -> Option<String>) -> Result<Access, Failure> {
    let name = args.name.clone().or_else(|| variable("OARLOCK_NAME"));
    let name = name.ok_or_else(|| missing("name of a lock", "OARLOCK_NAME", "--name NAME"))?;
    if let Some(token) = &args.token {
        return access(&name, number("--token", token)?, args.shared, args.slot.clone());
    }
    let token = match variable("OARLOCK_TOKENS") {
        Some(tokens) => token_of(&name, &tokens)?,
        None => {
            let token = variable("OARLOCK_TOKEN");
            let token = token.ok_or_else(|| missing("fencing token", "OARLOCK_TOKEN", "--token TOKEN"))?;
            number("$OARLOCK_TOKEN", &token)?
        }
    };
    let shared = args.shared || variable("OARLOCK_SHARED").is_some();
    let slots = match variable("OARLOCK_SLOTS") {
        _ if !args.slot.is_empty() => args.slot.clone(),
        Some(slots) => slots.split(',').map(|slot| number("$OARLOCK_SLOTS", slot)).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    access(&name, token, shared, slots)
}

fn access(name: &str, token: u64, shared: bool, slots: Vec<u32>) -> Result<Access, Failure> {
    let access = Access::new(name, token)?.with_slots(slots);
    match (shared, access.slots().is_empty()) {
        (false, _) => Ok(access),
        (true, true) => Ok(access.shared()),
        (true, false) => {
            Err(usage("a token is a reader's or that of permits, and not both; leave out --shared or --slot"))
        }
    }
}

/// Of the tokens of several locks, that of this one.
fn token_of(name: &str, tokens: &str) -> Result<u64, Failure> {
    let tokens: BTreeMap<String, String> = serde_json::from_str(tokens)
        .map_err(|error| usage(format!("$OARLOCK_TOKENS is not as oarlock run sets it: {error}; or use --token")))?;
    match tokens.get(name) {
        Some(token) => number("$OARLOCK_TOKENS", token),
        None => {
            let names: Vec<_> = tokens.keys().map(String::as_str).collect();
            let names = names.join(", ");
            Err(usage(format!(
                "{name:?} is none of the locks that are held ({names}); name one of them, or use --token"
            )))
        }
    }
}

/// Digits alone: `parse` would take a sign too.
fn number<N: std::str::FromStr>(place: &str, text: &str) -> Result<N, Failure> {
    let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| {
        usage(format!("{place} has {text:?}, which is no such number; pass it on as oarlock run sets it"))
    })
}

fn missing(what: &str, variable: &str, option: &str) -> Failure {
    usage(format!("there is no {what} in ${variable}; run this by oarlock run, or use {option}"))
}

fn usage(message: impl Display) -> Failure {
    Failure::new(USAGE, message.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    /// The access of these arguments, and of variables such as `NAME=a`.
    fn shown(arguments: &[&str], variables: &[&str]) -> Result<Access, String> {
        let line = ["oarlock", "fence", "check", "--file", "state"].into_iter().chain(arguments.iter().copied());
        let Command::Fence(FenceCommand::Check(args)) = Cli::parse_from(line).command else { panic!("another") };
        let variable = |name: &str| {
            let of = |variable: &&str| {
                Some(variable.split_once('=')?.1.to_owned())
                    .filter(|_| variable.split_once('=').is_some_and(|(key, _)| name == format!("OARLOCK_{key}")))
            };
            variables.iter().find_map(of)
        };
        super::shown(&args, variable).map_err(|failure| {
            assert_eq!(failure.code, USAGE);
            failure.message.unwrap()
        })
    }

    fn access(name: &str, token: u64) -> Access {
        Access::new(name, token).unwrap()
    }

    #[test]
    fn an_access_is_what_the_holder_has() {
        let held = ["NAME=a", "TOKEN=7"];
        let with = |more: &[&'static str]| [&held[..], more].concat();
        let tokens = with(&[r#"TOKENS={"a":"7","b":"9"}"#]);
        for (arguments, variables, is) in [
            (&[][..], &held[..], access("a", 7)),
            (&["--name", "b"], &held, access("b", 7)),
            (&["--token", "9"], &held, access("a", 9)),
            (&["--name", "b", "--token", "9"], &[], access("b", 9)),
            (&["--shared"], &held, access("a", 7).shared()),
            (&[], &with(&["SHARED=1"]), access("a", 7).shared()),
            (&[], &with(&["SLOT=1", "SLOTS=1,3"]), access("a", 7).with_slots([1, 3])),
            (&["--slot", "2"], &with(&["SLOT=1", "SLOTS=1"]), access("a", 7).with_slots([2])),
            // Another token has none of that.
            (&["--token", "9"], &with(&["SHARED=1"]), access("a", 9)),
            (&["--token", "9"], &with(&["SLOTS=1"]), access("a", 9)),
            (&[], &tokens, access("a", 7)),
            (&["--name", "b"], &tokens, access("b", 9)),
            (&["--name", "c", "--token", "1"], &tokens, access("c", 1)),
        ] {
            assert_eq!(shown(arguments, variables), Ok(is), "{arguments:?} {variables:?}");
        }
    }

    #[test]
    fn what_is_missing_or_malformed_names_the_remedy() {
        for (arguments, variables, says) in [
            (&[][..], &[][..], "$OARLOCK_NAME; run this by oarlock run, or use --name NAME"),
            (&["--name", "a"], &[], "$OARLOCK_TOKEN; run this by oarlock run, or use --token TOKEN"),
            (&[], &["NAME=a", "TOKEN="], "$OARLOCK_TOKEN has \"\""),
            (&[], &["NAME=a", "TOKEN=-7"], "pass it on as oarlock run sets it"),
            (&["--name", "a", "--token", "x"], &[], "--token has \"x\""),
            (&["--name", "a", "--token", "9223372036854775808"], &[], "is no fencing token"),
            (&["--name", "", "--token", "7"], &[], "empty"),
            (&[], &["NAME=a", "TOKEN=7", "SLOTS=1;2"], "$OARLOCK_SLOTS has"),
            (&["--shared"], &["NAME=a", "TOKEN=7", "SLOTS=1"], "leave out --shared"),
            (&[], &["NAME=a", "TOKEN=7", "TOKENS=[]"], "$OARLOCK_TOKENS"),
            (&["--name", "c"], &["NAME=a", "TOKEN=7", r#"TOKENS={"a":"7","b":"9"}"#], "(a, b); name one of them"),
        ] {
            let told = shown(arguments, variables).unwrap_err();
            assert!(told.contains(says), "{arguments:?} {variables:?}: {told}");
        }
    }
}
