//! A server that is one process, on one port, in a folder of its own.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use conformance_tests::torture;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::process::{Process, on_free_port};
use crate::tortured::{Store, apart};

/// What such a server runs.
pub trait Program: Debug + Send + 'static {
    /// What it is called.
    const NAME: &str;

    /// What it ends in good order for.
    const GOODBYE: Signal = Signal::SIGTERM;

    /// Starts it, and waits until it is ready. None: it is not, as when another has the port.
    fn spawn(folder: &Path, port: u16, arguments: &[String], environment: &[(&str, PathBuf)]) -> Option<Process>;

    /// Removes what a process that is dead keeps outside of its folder.
    fn tidy(_folder: &Path) {}

    /// Does it know all that it had confirmed after it is started again?
    fn keeps(_arguments: &[String]) -> bool {
        true
    }
}

/// One process of a program. Dropping it kills it and removes its files.
#[derive(Debug)]
pub struct Single<P: Program> {
    /// Before the folder, which it uses until it is dropped.
    process: Process,
    folder: TempDir,
    port: u16,
    arguments: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
    program: PhantomData<P>,
}

impl<P: Program> Single<P> {
    /// The arguments may have free ports in them, which another process may take as well.
    pub(crate) fn start_in(
        folder: TempDir,
        environment: Vec<(&'static str, PathBuf)>,
        arguments: impl Fn() -> Vec<String>,
    ) -> Self {
        let (port, (process, arguments)) = on_free_port(P::NAME, |port| {
            let arguments = arguments();
            Some((P::spawn(folder.path(), port, &arguments, &environment)?, arguments))
        });
        Self { process, folder, port, arguments, environment, program: PhantomData }
    }

    /// The folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Its process, to be tortured.
    pub fn apart(self) -> Vec<Box<dyn torture::Server>> {
        apart(self)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops it where it is, with its children; connections stay open and nothing is answered.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Lets a paused one go on.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// `kill -9`, and a new process on the same port and files.
    pub fn restart(&mut self) {
        self.kill();
        self.start_again(0);
    }
}

impl<P: Program> Drop for Single<P> {
    fn drop(&mut self) {
        self.process.kill();
        P::tidy(self.folder.path());
    }
}

impl<P: Program> Store for Single<P> {
    const GOODBYE: Signal = P::GOODBYE;

    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.address()]
    }

    fn keeps(&self) -> bool {
        P::keeps(&self.arguments)
    }

    fn process(&mut self, _: usize) -> &mut Process {
        &mut self.process
    }

    fn start_again(&mut self, _: usize) {
        let started = P::spawn(self.folder.path(), self.port, &self.arguments, &self.environment);
        self.process = started.unwrap_or_else(|| panic!("{} does not start again on its own files", P::NAME));
    }
}
