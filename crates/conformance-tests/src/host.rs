//! What a worker's host tells it, where a proof changes that: the time by the wall clock, where names lead, and whether
//! its disk is full.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where servers are that names lead to at first, and where they are later. What starts a process knows the last part.
pub(crate) const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
pub(crate) const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// So many servers may have names.
const SERVERS: usize = 64;

/// Where the names begin in a host's file, behind the seconds by which the wall clock is ahead.
const NAMES: u64 = 8;

/// Where it says, behind them, whether the disk is full.
const FULL: u64 = NAMES + SERVERS as u64;

/// A host, as the processes see it that are started on it.
#[derive(Debug)]
pub(crate) struct Host {
    /// What answers in the stead of the system.
    shim: PathBuf,
    /// What it answers.
    file: PathBuf,
    /// Of which files its disk says that it is full: their paths begin with this.
    disk: Option<PathBuf>,
}

impl Host {
    /// What it answers is in this file, which is made: the true time, [`HERE`], and that there is room.
    pub(crate) fn new(file: &Path, shim: &Path, disk: Option<&Path>) -> io::Result<Self> {
        let mut text = 0_i64.to_ne_bytes().to_vec();
        text.extend([HERE.octets()[3]; SERVERS]);
        text.push(0);
        fs::write(file, text)?;
        let disk = match disk.and_then(|disk| disk.parent().zip(disk.file_name())) {
            // As the system says where an open file is.
            Some((folder, name)) => Some(folder.canonicalize()?.join(name)),
            None => None,
        };
        Ok(Self { shim: shim.to_owned(), file: file.to_owned(), disk })
    }

    /// What starts this program there.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", &self.shim).env("CONFORMANCE_HOST", &self.file);
        command.envs(self.disk.as_ref().map(|disk| ("CONFORMANCE_DISK", disk)));
        command
    }

    /// Moves the wall clock, so many seconds from the true time.
    pub(crate) fn set_clock(&self, ahead: i64) -> io::Result<()> {
        self.write(&ahead.to_ne_bytes(), 0)
    }

    pub(crate) fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Fills the disk, or makes room.
    pub(crate) fn fill(&self, full: bool) -> io::Result<()> {
        self.write(&[full.into()], FULL)
    }

    /// Has a server's name lead there from now on.
    pub(crate) fn lead(&self, server: usize, to: Ipv4Addr) -> io::Result<()> {
        assert!(server < SERVERS, "only {SERVERS} servers have names");
        self.write(&to.octets()[3..], NAMES + server as u64)
    }

    /// In place: the processes that are there see it.
    fn write(&self, what: &[u8], at: u64) -> io::Result<()> {
        File::options().write(true).open(&self.file)?.write_all_at(what, at)
    }

    /// A URL with the servers' names in the stead of these addresses. No other host has them.
    pub(crate) fn named(url: &str, addresses: &[SocketAddr]) -> String {
        addresses.iter().enumerate().fold(url.to_owned(), |url, (server, address)| {
            url.replace(&address.to_string(), &format!("server-{server}.test:{}", address.port()))
        })
    }
}

/// Builds the library that answers in the system's stead, with the C compiler that linked this program.
pub(crate) fn build_shim(folder: &Path) -> io::Result<PathBuf> {
    let (source, library) = (folder.join("host.c"), folder.join("host.so"));
    fs::write(&source, include_str!("host.c"))?;
    let compiler = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).status();
    match compiler {
        Ok(status) if status.success() => Ok(library),
        Ok(status) => Err(io::Error::other(format!("cc: {status}"))),
        Err(error) => Err(io::Error::other(format!("install a C compiler, `cc`: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(host: &Host, program: &str, arguments: &[&str]) -> String {
        let answer = host.command(Path::new(program)).args(arguments).output().unwrap();
        String::from_utf8(answer.stdout).unwrap()
    }

    #[test]
    fn names_clocks_and_disks_are_the_hosts_own() {
        let folder = tempfile::tempdir().unwrap();
        let shim = build_shim(folder.path()).unwrap();
        let disk = folder.path().join("disk");
        let host = Host::new(&folder.path().join("host"), &shim, Some(&disk)).unwrap();
        let leads = || answered(&host, "getent", &["ahosts", "server-1.test"]);
        assert!(leads().starts_with("127.0.0.1 "), "{}", leads());
        host.lead(1, THERE).unwrap();
        assert!(leads().starts_with("127.0.0.2 "), "{}", leads());
        let url = Host::named("x://127.0.0.1:71,127.0.0.1:72/", &[71, 72].map(|port| (HERE, port).into()));
        assert_eq!(url, "x://server-0.test:71,server-1.test:72/");

        let now = || answered(&host, "date", &["+%s"]).trim().parse::<i64>().unwrap();
        let before = now();
        host.set_clock(3600).unwrap();
        assert!((3600..3660).contains(&(now() - before)));

        let write = |name: &str| {
            let (from, to) = (format!("if={}", shim.display()), format!("of={}", folder.path().join(name).display()));
            let done = host.command(Path::new("dd")).args([from, to]).output().unwrap();
            (done.status.success(), String::from_utf8(done.stderr).unwrap())
        };
        host.fill(true).unwrap();
        let (done, said) = write("disk-1");
        assert!(!done && said.contains("No space left"), "{said}");
        assert!(write("other").0);
        host.fill(false).unwrap();
        assert!(write("disk-1").0);
    }
}
