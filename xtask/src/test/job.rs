//! One program with tests in it: started in a folder for temporary files of its own, watched, and looked after.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use watchdog::Disk;

use super::target;

/// What they said is kept there, in the target folder.
const SAID: &str = "test-output";

/// What a program starts inherits this, by which it is known.
const MARK: &str = "TEST_PROGRAM_IN";

/// How many tests of one program run at once.
const AT_ONCE: &str = "8";

/// How long what a program started may take to end after it: servers are asked before they are killed.
const TO_LEAVE: Duration = Duration::from_secs(20);

/// A program that is yet to run.
pub(crate) struct Job {
    pub(crate) name: String,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
}

impl Job {
    pub(crate) fn new(name: String, program: &Path, arguments: &[&str], folder: &Path) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { name, program: program.to_owned(), arguments, folder: folder.to_owned() }
    }

    pub(crate) fn start(self) -> Result<Running, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.name);
        let said = target().join(SAID);
        fs::create_dir_all(&said).map_err(failed)?;
        let said = said.join(self.name.replace(' ', "-"));
        let output = File::create(&said).map_err(failed)?;
        let temporary = watchdog::folder(Disk::Memory);
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder).stdin(Stdio::null());
        command.stdout(output.try_clone().map_err(failed)?).stderr(output);
        command.env("TMPDIR", temporary.path()).env(MARK, temporary.path()).env("CARGO_MANIFEST_DIR", &self.folder);
        command.env("RUST_TEST_THREADS", AT_ONCE);
        let child = command.process_group(watchdog::group()).spawn().map_err(failed)?;
        Ok(Running { name: self.name, child, said, temporary, start: Instant::now(), ended: None })
    }
}

/// A program that runs, or has ended and what it started has not.
pub(crate) struct Running {
    name: String,
    child: Child,
    said: PathBuf,
    temporary: TempDir,
    start: Instant,
    ended: Option<(Instant, ExitStatus)>,
}

/// A program that ran.
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) said: PathBuf,
    pub(crate) took: Duration,
    /// What is wrong, if anything is.
    pub(crate) wrong: Option<String>,
}

impl Running {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What came of it, once it has ended and nothing of it is left. One that takes longer than the limit is killed.
    pub(crate) fn look(&mut self, limit: Duration) -> Result<Option<Ended>, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.name);
        let Some((at, status)) = self.ended else {
            self.ended = self.child.try_wait().map_err(failed)?.map(|status| (Instant::now(), status));
            if self.ended.is_none() && self.start.elapsed() > limit {
                self.child.kill().map_err(failed)?;
                let status = self.child.wait().map_err(failed)?;
                self.ended = Some((Instant::now(), status));
            }
            return Ok(None);
        };
        let left = self.left();
        if !left.is_empty() && at.elapsed() < TO_LEAVE {
            return Ok(None);
        }
        let took = at - self.start;
        let wrong = if took > limit {
            Some(format!("did not end within {limit:?}"))
        } else if !status.success() {
            Some(status.to_string())
        } else if !left.is_empty() {
            Some(format!("left behind: {}", left.join(", ")))
        } else {
            None
        };
        for (id, _) in self.processes() {
            // It may have ended by now.
            let _ = kill_process(id, Signal::KILL);
        }
        Ok(Some(Ended { name: self.name.clone(), said: self.said.clone(), took, wrong }))
    }

    /// What there is of files and processes.
    fn left(&self) -> Vec<String> {
        let files = fs::read_dir(self.temporary.path()).into_iter().flatten().flatten();
        let files = files.map(|file| file.path().display().to_string());
        let processes = self.processes().map(|(id, what)| format!("process {} ({what})", id.as_raw_nonzero()));
        files.chain(processes).collect()
    }

    /// Those that bear its mark.
    fn processes(&self) -> impl Iterator<Item = (Pid, String)> {
        let ours = format!("{MARK}={}", self.temporary.path().display());
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        all.filter_map(move |entry| {
            let id = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
            // Of a process that has ended, and that nobody asked how, it is empty.
            let environment = fs::read(entry.path().join("environ")).ok()?;
            if !environment.split(|&byte| byte == 0).any(|variable| variable == ours.as_bytes()) {
                return None;
            }
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            Some((id, String::from_utf8_lossy(&command).replace('\0', " ").chars().take(100).collect()))
        })
    }
}
