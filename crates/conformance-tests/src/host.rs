//! What a worker's host tells it, where a proof changes that: the time by the wall clock, and where names lead.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Where servers are that names lead to at first, and where they are later.
pub(crate) const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
pub(crate) const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A host, as the processes see it that are started on it.
#[derive(Debug)]
pub(crate) struct Host {
    /// What moves the wall clock.
    shim: PathBuf,
    /// By how many seconds.
    ahead: PathBuf,
    /// Its file `/etc/hosts`.
    names: PathBuf,
    /// Where each server's name leads.
    leads: Mutex<Vec<Ipv4Addr>>,
}

impl Host {
    /// Its files are in this folder, which is made. So many servers have names; if any have, it takes a namespace of
    /// mounts.
    pub(crate) fn new(folder: &Path, shim: &Path, servers: usize) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let [ahead, names] = ["ahead", "hosts"].map(|file| folder.join(file));
        let host = Self { shim: shim.to_owned(), ahead, names, leads: Mutex::new(vec![HERE; servers]) };
        fs::write(&host.ahead, 0_i64.to_ne_bytes())?;
        let leads = host.leads().clone();
        host.write_names(&leads)?;
        Ok(host)
    }

    /// What starts this program there.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = if self.leads().is_empty() {
            Command::new(program)
        } else {
            let mut command = Command::new("unshare");
            // Who may not make a namespace of mounts may in one of users.
            if !rustix::process::geteuid().is_root() {
                command.args(["--user", "--map-root-user"]);
            }
            command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]);
            command.arg(&self.names).arg(program);
            command
        };
        command.env("LD_PRELOAD", &self.shim).env("WALL_CLOCK_AHEAD", &self.ahead);
        command
    }

    /// Moves the wall clock, so many seconds from the true time.
    pub(crate) fn set_clock(&self, ahead: i64) -> io::Result<()> {
        File::options().write(true).open(&self.ahead)?.write_all_at(&ahead.to_ne_bytes(), 0)
    }

    /// Has a server's name lead there from now on.
    pub(crate) fn lead(&self, server: usize, to: Ipv4Addr) -> io::Result<()> {
        let mut leads = self.leads();
        leads[server] = to;
        self.write_names(&leads)
    }

    /// A URL with the servers' names in the stead of these addresses.
    pub(crate) fn named(url: &str, addresses: &[SocketAddr]) -> String {
        let mut url = url.to_owned();
        for (server, address) in addresses.iter().enumerate() {
            url = url.replace(&address.to_string(), &format!("{}:{}", name(server), address.port()));
        }
        url
    }

    fn leads(&self) -> std::sync::MutexGuard<'_, Vec<Ipv4Addr>> {
        self.leads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In place: another file would not be seen.
    fn write_names(&self, leads: &[Ipv4Addr]) -> io::Result<()> {
        let named = leads.iter().enumerate().map(|(server, to)| format!("{to} {}\n", name(server)));
        fs::write(&self.names, named.fold(format!("{HERE} localhost\n"), |all, line| all + &line))
    }
}

/// No other host has it.
fn name(server: usize) -> String {
    format!("server-{server}.test")
}

/// Builds the library that moves a process's wall clock, with the C compiler that linked this program.
pub(crate) fn build_shim(folder: &Path) -> io::Result<PathBuf> {
    let (source, library) = (folder.join("wall_clock.c"), folder.join("wall_clock.so"));
    fs::write(&source, include_str!("wall_clock.c"))?;
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
    fn names_and_clocks_are_the_hosts_own() {
        let folder = tempfile::tempdir().unwrap();
        let shim = build_shim(folder.path()).unwrap();
        let host = Host::new(&folder.path().join("host"), &shim, 2).unwrap();
        let leads = || answered(&host, "getent", &["hosts", "server-1.test"]);
        assert!(leads().starts_with("127.0.0.1 "), "{}", leads());
        host.lead(1, THERE).unwrap();
        assert!(leads().starts_with("127.0.0.2 "), "{}", leads());
        let url = Host::named("x://127.0.0.1:71,127.0.0.1:72/", &[71, 72].map(|port| (HERE, port).into()));
        assert_eq!(url, "x://server-0.test:71,server-1.test:72/");

        let now = || answered(&host, "date", &["+%s"]).trim().parse::<i64>().unwrap();
        let before = now();
        host.set_clock(3600).unwrap();
        assert!((3600..3660).contains(&(now() - before)));
    }
}
