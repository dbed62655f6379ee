//! What runs and what remains, in one line, and at the end what took longest.

use std::collections::HashMap;
use std::fs;
use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use super::job::Ended;
use super::target;

/// In the target folder: how long each program took when it ran last, `seconds name` in each line.
const TIMES: &str = "test-times";

/// So many are named that took longest.
const SLOWEST: usize = 10;

/// So much of what a program said is shown if it failed.
const SHOWN: usize = 20_000;

/// So many lines are repeated of a program that failed and names no test.
const LAST: usize = 10;

/// What was known of it at the last run.
pub(crate) fn times() -> HashMap<String, Duration> {
    let text = fs::read_to_string(target().join(TIMES)).unwrap_or_default();
    let line = |line: &str| {
        let (seconds, name) = line.split_once(' ')?;
        Some((name.to_owned(), Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?))
    };
    text.lines().filter_map(line).collect()
}

pub(crate) struct Report {
    start: Instant,
    /// When everything was built.
    built: Duration,
    programs: usize,
    ended: Vec<(Duration, String)>,
    failed: Vec<String>,
    /// Of each program that failed, how.
    how: String,
    counts: Counts,
    /// A terminal shows one line that changes.
    live: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Report {
    pub(crate) fn new(start: Instant, programs: usize) -> Self {
        let (ended, failed, how, counts) = (Vec::new(), Vec::new(), String::new(), Counts::default());
        Self { start, built: start.elapsed(), programs, ended, failed, how, counts, live: stdout().is_terminal() }
    }

    /// Takes note of a program that has ended.
    pub(crate) fn ended<'a>(&mut self, ended: Ended, running: impl Iterator<Item = &'a str>, waiting: usize) {
        let said = fs::read(&ended.said).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let mut counts = counted(&said);
        // A program without a harness is one test.
        if counts == Counts::default() && !said.contains("test result: ") {
            counts.passed = 1;
        }
        if let Some(wrong) = &ended.wrong {
            if counts.failed == 0 {
                (counts.passed, counts.failed) = (counts.passed.saturating_sub(1), 1);
            }
            self.erase();
            println!(
                "{}\n== {} failed: {wrong}; all that it said is in {}",
                end_of(&said),
                ended.name,
                ended.said.display()
            );
            self.failed.push(ended.name.clone());
            self.how += &how(&ended.name, wrong, &said);
        }
        self.counts.passed += counts.passed;
        self.counts.failed += counts.failed;
        self.counts.skipped += counts.skipped;
        self.ended.push((ended.took, ended.name));
        if !self.live {
            println!("{}", self.line(running, waiting));
        }
    }

    /// Shows how far it is, where that can be shown in place.
    pub(crate) fn show<'a>(&self, running: impl Iterator<Item = &'a str>, waiting: usize) {
        if self.live {
            // What is longer than a line would stay when the next is shown.
            let line: String = self.line(running, waiting).chars().take(width()).collect();
            print!("\r\x1b[K{line}");
            let _ = stdout().flush();
        }
    }

    fn line<'a>(&self, running: impl Iterator<Item = &'a str>, waiting: usize) -> String {
        let failed = if self.failed.is_empty() { String::new() } else { format!(", {} failed", self.failed.len()) };
        let running: Vec<_> = running.collect();
        format!(
            "[{}/{}{failed}, {}] running: {}{}",
            self.ended.len(),
            self.programs,
            time(self.start.elapsed()),
            running.join(", "),
            if waiting > 0 { format!("; {waiting} more") } else { String::new() }
        )
    }

    fn erase(&self) {
        if self.live {
            print!("\r\x1b[K");
        }
    }

    /// Says what came of it.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.erase();
        self.ended.sort_by(|one, other| other.cmp(one));
        println!("\nThe slowest:");
        for (took, name) in self.ended.iter().take(SLOWEST) {
            println!("{:>6.1} s  {name}", took.as_secs_f64());
        }
        let Counts { passed, failed, skipped } = self.counts;
        println!("Total {}, of which {} to build", time(self.start.elapsed()), time(self.built));
        print!("{}", self.how);
        println!("\n{passed} passed, {failed} failed, {skipped} skipped");
        self.remember();
        if self.failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", self.failed.join(", "))) }
    }

    /// For the next time. Those that did not run now keep what they have.
    fn remember(&self) {
        let mut times = times();
        times.extend(self.ended.iter().map(|(took, name)| (name.clone(), *took)));
        let lines = times.iter().map(|(name, took)| format!("{:.1} {name}\n", took.as_secs_f64()));
        // Without it, the next run begins with something else.
        let _ = fs::write(target().join(TIMES), lines.collect::<String>());
    }
}

/// What test harnesses say at their ends, added up.
fn counted(said: &str) -> Counts {
    let mut counts = Counts::default();
    for line in said.lines().filter_map(|line| line.split_once("test result: ")) {
        for part in line.1.split(['.', ';']) {
            let mut words = part.split_whitespace();
            if let (Some(Ok(number)), Some(what)) = (words.next().map(str::parse::<usize>), words.next()) {
                match what {
                    "passed" => counts.passed += number,
                    "failed" => counts.failed += number,
                    "ignored" => counts.skipped += number,
                    _ => {}
                }
            }
        }
    }
    counts
}

/// The tests of a program that failed, and the panics of each without their backtraces: what of a long report one wants to
/// read first. Of a program that failed otherwise, how it did and what it said last.
fn how(name: &str, wrong: &str, said: &str) -> String {
    let tests = failures(said);
    if !tests.is_empty() {
        return format!("\n{name}: {wrong}\n{tests}");
    }
    let last: Vec<_> = said.lines().rev().filter(|line| !line.trim().is_empty()).take(LAST).collect();
    let last: String = last.iter().rev().map(|line| format!("    {line}\n")).collect();
    format!("\n{name}: {wrong}\n{last}")
}

fn failures(said: &str) -> String {
    let (mut how, mut of_a_failure, mut of_a_panic) = (String::new(), false, false);
    for line in said.lines() {
        let name = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" ----"));
        if let Some(name) = name {
            let with_output = name.strip_suffix(" stdout");
            how += &format!("\n{}\n", with_output.unwrap_or(name));
            // Without its output, all that is said of it is how it failed.
            (of_a_failure, of_a_panic) = (true, with_output.is_none());
        } else if line == "failures:" {
            of_a_failure = false;
        } else if of_a_failure {
            let over = line.is_empty() || line == "stack backtrace:" || line.starts_with("note: ");
            of_a_panic = (of_a_panic && !over) || line.contains(" panicked at ");
            if of_a_panic {
                how += &format!("    {line}\n");
            }
        }
    }
    how
}

fn end_of(said: &str) -> &str {
    let begin = (said.len().saturating_sub(SHOWN)..said.len()).find(|&at| said.is_char_boundary(at));
    &said[begin.unwrap_or(0)..]
}

fn time(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

/// How much of a line fits.
fn width() -> usize {
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_harnesses_say_is_added_up() {
        let said = "running 3 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                    all doctests ran in 1.5s\ntest result: FAILED. 7 passed; 3 failed; 0 ignored; finished in 3 passed";
        assert_eq!(counted(said), Counts { passed: 9, failed: 3, skipped: 1 });
        assert_eq!(counted("it says nothing of 3 passed"), Counts::default());
    }

    #[test]
    fn a_failure_is_told_without_its_backtrace() {
        let said = "test one ... FAILED\n\nfailures:\n\n---- some::one stdout ----\nit begins\n\n\
                    thread 'some::one' (7) panicked at src/one.rs:3:5:\nit is two\n  left: 1\nstack backtrace:\n   0: begin\n\
                    note: more\n\n---- other stdout ----\nError: \"none\"\n\nfailures:\n    other\n    some::one\n";
        let told = "\nsome::one\n    thread 'some::one' (7) panicked at src/one.rs:3:5:\n    it is two\n      left: 1\n\nother\n";
        assert_eq!(failures(said), told);
        assert_eq!(
            failures("failures:\n\n---- of the suite ----\nnot in time: this\n\nmore\n"),
            "\nof the suite\n    not in time: this\n"
        );
        assert_eq!(failures("test result: ok. 2 passed"), "");
        assert!(
            how("lock-x some", "exit status: 101", said).starts_with("\nlock-x some: exit status: 101\n\nsome::one\n")
        );
    }

    #[test]
    fn of_a_program_that_names_no_test_the_end_is_told() {
        let said = format!("{}\n\nthe last\n", "one more\n".repeat(LAST));
        let told = how("lock-x some", "signal: 6", &said);
        assert_eq!(told.lines().count(), 2 + LAST);
        assert!(
            told.starts_with("\nlock-x some: signal: 6\n    one more\n") && told.ends_with("    the last\n"),
            "{told}"
        );
    }

    #[test]
    fn the_end_of_what_was_said_is_shown_in_whole_letters() {
        assert_eq!(end_of("short"), "short");
        let long = "ä".repeat(SHOWN);
        assert_eq!(end_of(&long).len(), SHOWN);
        assert_eq!(end_of(&format!("{long}x")).chars().last(), Some('x'));
    }
}
