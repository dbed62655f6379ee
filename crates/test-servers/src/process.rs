//! What the servers have in common: a process of an unprivileged user, with its children, in a folder of its own.

use std::fmt::Display;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use rustix::process::{Resource, Rlimit, prlimit};
use tempfile::TempDir;
pub(crate) use watchdog::Disk;

use crate::ports::free_port;
use crate::{Authority, Certificate};

/// How long a server may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// The user `nobody` and its group. Database servers refuse to run as root.
const NOBODY: u32 = 65534;

/// Starts something on a free port. None: it did not, since somebody else may take a port between our finding it free
/// and its taking it.
pub(crate) fn on_free_port<T>(what: &str, mut start: impl FnMut(u16) -> Option<T>) -> (u16, T) {
    for _ in 0..20 {
        let port = free_port();
        if let Some(started) = start(port) {
            return (port, started);
        }
    }
    panic!("{what} does not start");
}

/// A program that is run as nobody if we are root, and else as ourselves.
pub(crate) fn unprivileged(program: &Path) -> Command {
    let mut command = if geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A temporary folder that such a program can write to.
pub(crate) fn folder(disk: Disk) -> TempDir {
    let folder = watchdog::folder(disk);
    give_away(folder.path());
    folder
}

pub(crate) fn give_away(path: &Path) {
    if geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
}

/// A server's certificate, its key and the CA, as files of the server's own in this folder.
pub(crate) fn certified(folder: &Path, authority: &Authority, own: &Certificate) -> [PathBuf; 3] {
    [("certificate.pem", &own.certificate), ("key.pem", &own.key), ("ca.pem", &authority.file())].map(|(name, from)| {
        let to = folder.join(name);
        fs::copy(from, &to).expect("a new file");
        // A key that others may read is refused.
        fs::set_permissions(&to, Permissions::from_mode(0o600)).expect("our own file");
        give_away(&to);
        to
    })
}

/// A server's main process. Dropping it kills it and its children.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// It ends with this process at the latest.
    pub(crate) fn spawn(command: &mut Command, package: &str) -> Self {
        let started = command.process_group(watchdog::group()).spawn();
        Self(started.unwrap_or_else(|error| panic!("install Debian's package {package}: {error}")))
    }

    /// Waits until the server is ready. False: it has ended, or takes too long.
    pub(crate) fn is_ready(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        let late = Instant::now() + PATIENCE;
        while Instant::now() < late && self.lives() {
            if ready() {
                // Another server may have answered, which had its port before.
                return self.lives();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    pub(crate) fn lives(&mut self) -> bool {
        self.0.try_wait().expect("our child").is_none()
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Stops it where it is; connections stay open and nothing is answered.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a paused one go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// May it write to files? If not, it is as on a full disk.
    pub(crate) fn may_write(&self, may: bool) {
        let limit = Rlimit { current: if may { None } else { Some(0) }, maximum: None };
        let all = [self.pid()].into_iter().chain(self.children());
        for pid in all.filter_map(|pid| rustix::process::Pid::from_raw(pid.as_raw())) {
            // It may have ended meanwhile.
            let _ = prlimit(Some(pid), Resource::Fsize, limit);
        }
    }

    /// `kill -9`, of the children too. All are dead, and their sockets closed, when it returns.
    pub(crate) fn kill(&mut self) {
        // Its id may be another's by now.
        if !self.lives() {
            return;
        }
        self.pause();
        let children = self.children();
        // It may have died just now.
        let _ = self.0.kill();
        let _ = self.0.wait();
        for &child in &children {
            let _ = kill(child, Signal::SIGKILL);
        }
        let late = Instant::now() + PATIENCE;
        while children.iter().any(|&child| status_of(child).is_some_and(|status| !status.starts_with('Z'))) {
            assert!(Instant::now() < late, "a killed server lives");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The main process first, so that it makes no more children.
    fn signal(&self, signal: Signal) {
        let _ = kill(self.pid(), signal);
        for child in self.children() {
            // It may have ended meanwhile.
            let _ = kill(child, signal);
        }
    }

    /// Asks the main process to end in good order, with what it takes for a request to do so.
    pub(crate) fn ask_to_end(&self, request: Signal) {
        // It may be dead already.
        let _ = kill(self.pid(), request);
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().expect("a process id"))
    }

    fn children(&self) -> Vec<Pid> {
        let parent = self.0.id().to_string();
        let pids = fs::read_dir("/proc").expect("/proc").filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse::<i32>().ok()?;
            let pid = Pid::from_raw(pid);
            (status_of(pid)?.split(' ').nth(1)? == parent).then_some(pid)
        });
        pids.collect()
    }
}

/// What `/proc` says of a process: its state, its parent and more. None: it is gone.
pub fn status_of(pid: impl Display) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, in parentheses, may have blanks in it.
    stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned())
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
