//! Ends what a test process started, and removes its files, however the process ends.
//!
//! A process that is killed or interrupted drops nothing, and neither are statics dropped at the end of a process. So
//! the first [`folder`] or [`group`] that a process asks for starts a watchdog: a shell in a group of its own, which
//! Ctrl-C does not reach. It waits for the end of its standard input, which comes with the end of this process. Then it
//! ends all processes of its group and removes the folders.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::fs::DirBuilder;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

/// Where files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// In memory where the host has room for that: a test does not wait for what others write to the disk.
    Memory,
    /// In the folder for temporary files, on the disk unless somebody says otherwise: for who measures.
    Real,
}

/// What tests may need at a time, in bytes.
const ROOM: u64 = 4 << 30;

/// A new folder. It is removed when it is dropped, and at the latest when this process has ended.
///
/// # Panics
/// If there can be none.
pub fn folder(disk: Disk) -> TempDir {
    let root = match disk {
        Disk::Memory => &watchdog().memory,
        Disk::Real => &watchdog().disk,
    };
    TempDir::new_in(root).expect("a temporary folder")
}

/// A process that is started in this group, by [`CommandExt::process_group`], ends at the latest when this process has
/// ended.
///
/// # Panics
/// If there is no `sh`.
pub fn group() -> i32 {
    watchdog().group
}

#[derive(Debug)]
struct Watchdog {
    group: i32,
    /// The roots of the folders. They may be in the same place.
    memory: PathBuf,
    disk: PathBuf,
    /// Closed by the end of this process.
    _leash: ChildStdin,
}

fn watchdog() -> &'static Watchdog {
    static WATCHDOG: OnceLock<Watchdog> = OnceLock::new();
    WATCHDOG.get_or_init(start)
}

#[expect(clippy::zombie_processes, reason = "the watchdog ends after this process")]
fn start() -> Watchdog {
    let temporary = std::env::temp_dir();
    let memory = Path::new("/dev/shm");
    let memory = if has_room(memory) { memory } else { &temporary };
    // A process id comes again. The name is short, for paths of sockets have to be.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis()) & 0xfff_ffff;
    let name = |kind| format!("oarlock-{:x}-{now:x}{kind}", std::process::id());
    let (memory, disk) = (memory.join(name("m")), temporary.join(name("d")));
    let mut shell = Command::new("sh");
    // It leads a group, so `setsid` starts another process, which is not in the group that it ends.
    shell.args([
        "-c",
        "trap '' HUP INT QUIT TERM; echo; exec >/dev/null; read -r end; exec setsid sh -c \"$0\" sh $$ \"$@\"",
    ]);
    shell.arg(include_str!("leave.sh")).args([&memory, &disk]).process_group(0).current_dir("/");
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a shell");
    let leash = shell.stdin.take().expect("it is piped");
    // Not before it ignores signals: the end of this process may send it one, if somebody in its group is stopped then.
    let ready = shell.stdout.take().map(|mut said| said.read_exact(&mut [0]));
    ready.expect("it is piped").expect("the shell says when it is ready");
    for folder in [&memory, &disk] {
        // Servers that run as another user go through it to folders of their own.
        DirBuilder::new().mode(0o711).create(folder).expect("a temporary folder");
    }
    Watchdog { group: shell.id().try_into().expect("a process id"), memory, disk, _leash: leash }
}

/// Is it a file system in memory, and large enough? Containers often have one of 64 MB.
fn has_room(folder: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    rustix::fs::statfs(folder).is_ok_and(|found| {
        let free = found.f_bavail.saturating_mul(found.f_bsize.try_into().unwrap_or(0));
        u64::try_from(found.f_type) == Ok(TMPFS) && free >= ROOM
    })
}
