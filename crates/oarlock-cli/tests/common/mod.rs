//! A store in a temporary folder, and the built program run against it.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::fs;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Not a claim about speed: after so long, a test that waits for something has failed.
const FOREVER: Duration = Duration::from_secs(60);

/// A folder for one test: the store, and whatever its commands write.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// The same, in which a lock was taken once: its store is there.
    pub(crate) fn made() -> Self {
        let place = Self::new();
        assert!(place.output(&["run", "first", "--", "true"]).status.success());
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        self.read(name).lines().map(str::to_owned).collect()
    }

    /// The program without any configuration, in this folder.
    pub(crate) fn bare(&self, args: &[&str]) -> Command {
        let mut command = heedful(env!("CARGO_BIN_EXE_oarlock"));
        for (key, _) in std::env::vars_os() {
            if key.to_string_lossy().starts_with("OARLOCK_") {
                command.env_remove(key);
            }
        }
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("HOME", self.dir.path()).env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
        command
    }

    /// The program with this folder's store.
    pub(crate) fn oarlock(&self, args: &[&str]) -> Command {
        let mut command = self.bare(args);
        command.env("OARLOCK_URL", self.url());
        command
    }

    /// Runs it to its end.
    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.oarlock(args).output().unwrap()
    }

    /// `oarlock run ARGS… -- sh -c SCRIPT`, started.
    pub(crate) fn start(&self, args: &[&str], script: &str) -> Running {
        let mut command = self.oarlock(&["run"]);
        command.args(args).args(["--", "sh", "-c", script]);
        Running::start(&mut command)
    }

    /// `oarlock inspect NAME --json`.
    pub(crate) fn inspect(&self, name: &str) -> serde_json::Value {
        let output = self.output(&["inspect", name, "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until a command has written so many lines.
    pub(crate) fn wait_lines(&self, name: &str, count: usize) -> Vec<String> {
        wait_for(&format!("{count} lines in {name}"), || {
            let text = self.read(name);
            let complete = text.matches('\n').count() >= count;
            complete.then(|| text.lines().map(str::to_owned).collect())
        })
    }
}

/// A program that ignores no signal. Whoever starts the tests may ignore some, as a shell does for what runs in the
/// background, and programs inherit that; ours keeps to it.
fn heedful(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

/// A running `oarlock`, killed at the drop.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    /// What it says goes to this file.
    pub(crate) fn start_telling(command: &mut Command, told: File) -> Self {
        Self(Some(command.stdout(Stdio::null()).stderr(told).spawn().unwrap()))
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child().try_wait().unwrap().is_some()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.0.as_ref().unwrap().id() as i32)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it was not waited for yet")
    }

    pub(crate) fn output(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }

    pub(crate) fn code(self) -> i32 {
        code(self.output().status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The processes that this one started and that still run.
pub(crate) fn children(parent: &Running) -> Vec<String> {
    let pid = parent.pid();
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().map(str::to_owned).collect()
}

/// Runs a line on a terminal of its own; `$OARLOCK` is the program.
pub(crate) fn on_terminal(place: &Place, line: &str) -> Command {
    let mut command = heedful("script");
    command.args(["-qec", line, "/dev/null"]).current_dir(place.path("."));
    command.env("OARLOCK", env!("CARGO_BIN_EXE_oarlock")).env("OARLOCK_URL", place.url()).env("TERM", "xterm");
    // `script` asks this shell to run the line.
    command.env("SHELL", "/bin/sh");
    command
}

/// A terminal with a shell on it.
pub(crate) struct Terminal(Running);

impl Terminal {
    pub(crate) fn start(place: &Place, line: &str) -> Self {
        let mut command = on_terminal(place, line);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Running(Some(command.spawn().unwrap())))
    }

    pub(crate) fn type_in(mut self, text: &str) -> Self {
        self.0.child().stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        self
    }

    /// Waits for the end; what was shown is in `stdout`.
    pub(crate) fn output(mut self) -> Output {
        // The end of its input would end the terminal before the line has ended.
        let input = self.0.child().stdin.take();
        let output = self.0.output();
        drop(input);
        output
    }
}

/// The exit code; a death by signal is none of those that the program promises.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| -status.signal().unwrap())
}

/// Polls until there is an answer.
pub(crate) fn wait_for<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(start.elapsed() < FOREVER, "waited for {what} in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Does a process still run? One that only its parent's negligence keeps in the table does not.
pub(crate) fn is_alive(pid: &str) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// Was a process stopped by a signal?
pub(crate) fn is_stopped(pid: &str) -> bool {
    state(pid) == Some('T')
}

/// The kernel's letter for it.
fn state(pid: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Waits until none of the processes runs any more.
pub(crate) fn wait_dead(pids: &[String]) {
    wait_for(&format!("the end of {pids:?}"), || pids.iter().all(|pid| !is_alive(pid)).then_some(()));
}
