//! The exit codes, all in one place, and the failure that carries one.

use std::error::Error as _;
use std::ffi::OsStr;
use std::io;

use nix::sys::signal::Signal;
use oarlock::{Error, ErrorKind};

/// The lock was not free (`-E` chooses another code); an evicted lock was not held, or one that `inspect --exit-code` or
/// `leader --exit-code` was asked about; not all have arrived at a `latch`; `doctor` found something; `compare` saw two holders at once.
pub(crate) const CONFLICT: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 64;
/// The store could not be reached, refused, or did not answer.
pub(crate) const UNAVAILABLE: u8 = 69;
/// The operating system refused something, such as another process.
pub(crate) const OS_ERROR: u8 = 71;
/// The lock was lost before the command ended; `fence check` has seen a later holder.
pub(crate) const LOST: u8 = 75;
/// The configuration is wrong, or the store cannot do what is asked.
pub(crate) const CONFIG: u8 = 78;
/// The command is there but cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of a signal.
pub(crate) const SIGNAL: u8 = 128;

/// The same for the reader of `--help` and of the manual page.
pub(crate) const HELP: &str = "Exit codes:
  0    done, or skipped (`run --once`, see --skipped). `run` and `elect` end with the command's own code, or with 128+N if signal N ended it
  1    `run`: not free in time, see -E. `inspect` and `leader` with --exit-code: free. `evict`: not held, or the answer was no. `resize`: not in use. `latch`: not all arrived in time. `doctor`: findings. `compare`: too many holders at once
  64   wrong usage
  69   the store cannot be reached, refused, or did not answer
  71   the operating system refused something
  75   the lock was lost before the command ended, or --at-most was over. `fence check`: a later holder was seen
  78   wrong configuration, or something that the store cannot do, such as a shorter lease
  126  the command cannot be executed
  127  the command was not found
  128+N  interrupted by signal N";

/// Why the program ends with a code of its own.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()) }
    }

    pub(crate) fn silent(code: u8) -> Self {
        Self { code, message: None }
    }

    /// The system does not start this program.
    pub(crate) fn cannot_run(program: &OsStr, error: &io::Error) -> Self {
        let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
        Self::new(code, format!("cannot run {}: {error}", program.display()))
    }

    /// A signal asked for the end.
    pub(crate) fn signal(signal: Signal) -> Self {
        Self::silent(SIGNAL + signal as u8)
    }

    /// An error while the configuration was read and the backend chosen by it.
    pub(crate) fn config(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => Self::new(CONFIG, told(error)),
            _ => Self::from(error),
        }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Invalid => USAGE,
            ErrorKind::Unsupported => CONFIG,
            ErrorKind::Timeout => CONFLICT,
            ErrorKind::Lost | ErrorKind::Stale => LOST,
            _ => UNAVAILABLE,
        };
        Self::new(code, told(error))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<nix::errno::Errno> for Failure {
    fn from(error: nix::errno::Errno) -> Self {
        Self::from(std::io::Error::from(error))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(OS_ERROR, error.to_string())
    }
}

/// The error and what caused it, on one line.
pub(crate) fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Many an error says itself what caused it. Of ours, the kind was said.
        let cause_text = cause.to_string();
        let cause_text = match cause_text.split_once(": ") {
            Some((_, message)) if cause.is::<Error>() => message,
            _ => &cause_text,
        };
        if !text.contains(cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_said_once() {
        let first = Error::new(ErrorKind::Unavailable, "nobody is there");
        let told = |message: &str| told(&Error::new(ErrorKind::Unknown, message).with_source(first.clone()));
        assert_eq!(told("nobody is there"), "outcome unknown: nobody is there");
        assert_eq!(told("sent twice"), "outcome unknown: sent twice: nobody is there");
    }

    #[test]
    fn the_help_names_each_code() {
        for code in [CONFLICT, USAGE, UNAVAILABLE, OS_ERROR, LOST, CONFIG, NOT_EXECUTABLE, NOT_FOUND] {
            let named = HELP.lines().any(|line| line.split_whitespace().next() == Some(&code.to_string()));
            assert!(named, "{code}");
        }
        assert!(HELP.contains(&format!("{SIGNAL}+N")));
    }
}
