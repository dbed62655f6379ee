//! What goes out: answers on stdout, remarks and traces on stderr.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use tracing_subscriber::EnvFilter;
use unicode_width::UnicodeWidthChar;

use crate::exit::{Failure, SIGNAL};

/// Writes an answer. Nobody reading it ends the program as the signal for that would, without a word.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Err(Failure::silent(SIGNAL + nix::sys::signal::Signal::SIGPIPE as u8))
        }
        result => Ok(result?),
    }
}

/// Writes an answer as one JSON document.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    print(&format!("{}\n", tame(&text)))
}

/// The same on one line.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(io::Error::from)?;
    print(&format!("{}\n", tame(&text)))
}

/// JSON need not escape all that steers a terminal. What is left of it stands in strings, but for the ends of lines.
fn tame(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) && c != '\n' {
            text.push_str(&format!("\\u{:04x}", c as u32));
        } else {
            text.push(c);
        }
    }
    text
}

/// A remark to the user.
pub(crate) fn say(text: impl AsRef<str>) {
    // There is nowhere left to report that stderr is gone, and it must not end a command that runs.
    let _ = writeln!(io::stderr(), "oarlock: {}", clean(text.as_ref()));
}

/// What a store holds was written by others: it shall not steer the terminal.
pub(crate) fn clean(text: &str) -> String {
    text.replace(steers, "\u{fffd}")
}

/// Controls, and what turns the direction of the text or begins a line.
fn steers(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// As much of a text as so many columns hold.
pub(crate) fn cut(text: &str, width: usize) -> String {
    let mut used: usize = 0;
    let fits = |c: &char| {
        used = used.saturating_add(c.width().unwrap_or(0));
        used <= width
    };
    text.chars().take_while(fits).collect()
}

/// The same, which shows whether there was more.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    let all = cut(text, width);
    if all.len() == text.len() { all } else { format!("{}…", cut(text, width.saturating_sub(1))) }
}

/// Switches the library's own reports on.
pub(crate) fn trace(verbose: u8) {
    let filter = match verbose {
        0 => return,
        1 => "info,sqlx=warn",
        _ => "debug,sqlx=warn",
    };
    let is_asked_for_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && !is_asked_for_none)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_gets_out() {
        let value = "a\u{1b}[2J\u{9b}31m\u{7f}\r\n\u{202e}\u{2069}\u{2028}\u{200f}b";
        assert_eq!(clean(value).replace('\u{fffd}', ""), "a[2J31mb");
        for json in [serde_json::to_string(value).unwrap(), serde_json::to_string_pretty(&[value]).unwrap()] {
            let tamed = tame(&json);
            assert!(!tamed.chars().any(|c| steers(c) && c != '\n'), "{tamed:?}");
            let read: serde_json::Value = serde_json::from_str(&tamed).unwrap();
            assert_eq!(read.get(0).unwrap_or(&read), value);
        }
    }
}
