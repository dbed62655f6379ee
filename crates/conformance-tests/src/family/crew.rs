//! The processes: what each is to do, what it notes, and how its parent strikes it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_core::Locks;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::{FamilyReport, leaders, permits, several, slots};
use crate::history::monotonic;
use crate::proxy::Proxy;
use crate::torture::Site;
use crate::worker::{Orders, Role, Worker};

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(super) client: String,
    pub(super) folder: PathBuf,
    pub(super) seed: u64,
    pub(super) duty: Duty,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Duty {
    /// To run a job for each slot, the first of which begins at this time of the machine's monotonic clock.
    Slots {
        first_ns: u64,
        apart_ms: u64,
        slots: u64,
    },
    Candidate,
    Observer,
    /// To want a permit with so many tasks.
    Permits {
        of: u32,
        tasks: usize,
    },
    /// To take several locks at once between these times of the machine's monotonic clock.
    Several {
        start_ns: u64,
        end_ns: u64,
    },
}

/// What happened, and when by the machine's monotonic clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) at: u64,
    pub(super) client: String,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum What {
    /// A section has begun.
    Begun {
        slot: u64,
        token: u64,
    },
    /// It goes on.
    GoesOn {
        slot: u64,
        token: u64,
    },
    /// It has come to its end.
    Ended {
        slot: u64,
        token: u64,
    },
    /// That was said to be the one run of the slot.
    Ran {
        slot: u64,
        token: u64,
    },
    /// Seen by an observer: who leads, or nobody.
    Seen {
        leader: Option<(u64, String)>,
    },
    /// An observer was blind.
    Blind,
    Killed,
    Stopped,
    Continued,
    CutOff,
    Connected,
}

/// Where one client notes what happens: in a file of its own, without a buffer, so that nothing is lost with it.
pub(super) struct Notes {
    file: File,
    client: String,
}

impl Notes {
    pub(super) fn of(folder: &Path, client: &str) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(folder.join(format!("{client}.jsonl")))?;
        Ok(Self { file, client: client.to_owned() })
    }

    /// Of this client, or for another one.
    pub(super) fn note(&mut self, client: Option<&str>, what: What) -> io::Result<()> {
        let client = client.unwrap_or(&self.client).to_owned();
        let note = serde_json::to_string(&Note { at: monotonic(), client, what })?;
        self.file.write_all(format!("{note}\n").as_bytes())
    }
}

/// All notes in the order of their times. One that its client was killed in the middle of is none.
pub(super) fn all(folder: &Path) -> io::Result<Vec<Note>> {
    let mut notes = Vec::new();
    for entry in fs::read_dir(folder)? {
        let text = fs::read_to_string(entry?.path())?;
        notes.extend(text.lines().filter_map(|line| serde_json::from_str::<Note>(line).ok()));
    }
    notes.sort_by_key(|note| note.at);
    Ok(notes)
}

/// What this client noted last.
pub(super) fn last(folder: &Path, client: &str) -> Option<What> {
    let text = fs::read_to_string(folder.join(format!("{client}.jsonl"))).ok()?;
    serde_json::from_str::<Note>(text.lines().next_back()?).ok().map(|note| note.what)
}

/// In a process: does what it is to do, until its parent lets go of its end of the pipe.
pub(crate) async fn work(locks: &Locks, lease: Duration, task: &Task, orders: &mut Orders) -> io::Result<()> {
    let notes = || Notes::of(&task.folder, &task.client);
    let parent = async move { while orders.recv().await.is_some() {} };
    let duty = async {
        match task.duty {
            Duty::Slots { first_ns, apart_ms, slots } => {
                let times = slots::Times { first_ns, apart: Duration::from_millis(apart_ms), slots };
                slots::work(locks, lease, task.seed, &times, notes()?).await
            }
            Duty::Candidate => leaders::campaign(locks, lease, &task.client, notes()?).await,
            Duty::Observer => leaders::observe(locks, notes()?).await,
            Duty::Several { start_ns, end_ns } => {
                several::work(locks, lease, task.seed, start_ns, end_ns, notes()?).await
            }
            Duty::Permits { of, tasks } => permits::work(locks, lease, task, of, tasks).await,
        }
    };
    tokio::select! {
        biased;
        () = parent => {}
        done = duty => done?,
    }
    // What it could not release, the store ends by itself.
    let _ = locks.shutdown(lease).await;
    Ok(())
}

/// What the process is to do that has this name and came after so many others.
type ToDo = Box<dyn Fn(&str, usize) -> Task>;

/// One process after the other in the same place, and the network to each server that it has for itself.
pub(super) struct Member {
    name: String,
    url: String,
    successors: usize,
    worker: Worker,
    networks: Vec<Proxy>,
    task: ToDo,
    lease: Duration,
}

impl Member {
    pub(super) fn new(
        site: &Site,
        name: &str,
        lease: Duration,
        task: impl Fn(&str, usize) -> Task + 'static,
    ) -> io::Result<Self> {
        let networks: Vec<_> = site.addresses().into_iter().map(Proxy::new).collect();
        let url = site.url_at(&networks.iter().map(Proxy::address).collect::<Vec<_>>());
        let (task, name) = (Box::new(task) as ToDo, name.to_owned());
        let worker = spawn(&url, lease, task(&format!("{name}-0"), 0))?;
        Ok(Self { name, url, successors: 0, worker, networks, task, lease })
    }

    /// How the present process is called.
    pub(super) fn client(&self) -> String {
        format!("{}-{}", self.name, self.successors)
    }

    /// Kills it, and starts another in its place.
    pub(super) async fn kill(&mut self, notes: &mut Notes) -> io::Result<()> {
        notes.note(Some(&self.client()), What::Killed)?;
        self.worker.kill().await?;
        self.successors += 1;
        self.worker = spawn(&self.url, self.lease, (self.task)(&self.client(), self.successors))?;
        Ok(())
    }

    pub(super) fn stop(&mut self, notes: &mut Notes) -> io::Result<()> {
        self.worker.signal(Signal::SIGSTOP)?;
        notes.note(Some(&self.client()), What::Stopped)
    }

    pub(super) fn go_on(&mut self, notes: &mut Notes) -> io::Result<()> {
        notes.note(Some(&self.client()), What::Continued)?;
        self.worker.signal(Signal::SIGCONT)
    }

    /// Can it be cut off from a server?
    pub(super) fn has_network(&self) -> bool {
        !self.networks.is_empty()
    }

    pub(super) fn cut(&mut self, notes: &mut Notes) -> io::Result<()> {
        self.networks.iter().for_each(Proxy::hold);
        notes.note(Some(&self.client()), What::CutOff)
    }

    pub(super) fn connect(&mut self, notes: &mut Notes) -> io::Result<()> {
        self.networks.iter().for_each(Proxy::forward);
        notes.note(Some(&self.client()), What::Connected)
    }

    pub(super) async fn ended(&mut self) -> io::Result<bool> {
        self.worker.ended().await
    }

    pub(super) async fn end(&mut self) -> io::Result<()> {
        if self.worker.end(self.lease + Duration::from_secs(30)).await? {
            return Ok(());
        }
        Err(io::Error::other(format!("{} did not end well", self.client())))
    }
}

fn spawn(url: &str, lease: Duration, task: Task) -> io::Result<Worker> {
    let lease_ms = lease.as_millis() as u64;
    Worker::spawn(&Role { url: url.to_owned(), lease_ms, workload: None, task: Some(task) }, None)
}

/// Does this with a folder for notes, which is kept if a rule was broken.
pub(super) async fn in_folder(
    notes: &Path,
    proof: impl AsyncFnOnce(PathBuf) -> io::Result<FamilyReport>,
) -> io::Result<FamilyReport> {
    let folder = tempfile::Builder::new().prefix("family-").tempdir_in(notes)?;
    match proof(folder.path().to_owned()).await {
        Ok(report) if report.violations.is_empty() => Ok(report),
        Ok(report) => Ok(FamilyReport { folder: Some(folder.keep()), ..report }),
        Err(error) => {
            let folder = folder.keep();
            Err(io::Error::other(format!("{error}; what there is of the notes is in {}", folder.display())))
        }
    }
}
