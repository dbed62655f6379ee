//! The clock of a server, which a test can set, and no other's on the machine.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("clock.c");

/// The wall clock of one server, right at first. A program in C, preloaded into the server, adds to what the system
/// says.
#[derive(Debug)]
pub struct ServerClock {
    library: PathBuf,
    offsets: PathBuf,
}

impl ServerClock {
    /// With files in this folder, that must last as long as the server.
    pub(crate) fn new(folder: &Path) -> Self {
        let this = Self { library: folder.join("clock.so"), offsets: folder.join("clock.offsets") };
        build(&this.library);
        this.set(0);
        this
    }

    /// What the server's environment must have.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library.clone()), ("CLOCK_OFFSETS", self.offsets.clone())]
    }

    /// From now on it is so far ahead of the right time.
    pub fn ahead(&self, by: Duration) {
        self.set(by.as_nanos().try_into().expect("less than 292 years"));
    }

    /// From now on it is so far behind the right time.
    pub fn behind(&self, by: Duration) {
        self.set(-i64::try_from(by.as_nanos()).expect("less than 292 years"));
    }

    /// In place, since the server has the file in its memory.
    fn set(&self, wall: i64) {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.offsets);
        let both = [wall.to_ne_bytes(), 0_i64.to_ne_bytes()].concat();
        file.and_then(|mut file| file.write_all(&both)).expect("the file of the offsets");
    }
}

fn build(library: &Path) {
    let source = library.with_extension("c");
    std::fs::write(&source, SOURCE).expect("a file");
    let mut build = Command::new("cc");
    build.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(library).arg(&source);
    let built = build.status().expect("cc is installed (Debian's package gcc)");
    assert!(built.success(), "the clock cannot be built");
}
