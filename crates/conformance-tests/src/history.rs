//! What happened: events with the machine's monotonic time, in memory or as JSON lines in a file for each process.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::Mode;
use serde::{Deserialize, Serialize};

use crate::resource::Kind;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When: nanoseconds of the machine's `CLOCK_MONOTONIC`, the same for all its processes.
    pub at: u64,
    /// Whose: one client, which lives at most as long as its process.
    pub client: String,
    /// Which acquisition of that client; 0 if none.
    pub op: u64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened. A call is two events: before it, and after it with the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// The lock is asked for.
    Acquire {
        /// The lock.
        name: String,
        /// How it is wanted.
        #[serde(default)]
        mode: Mode,
        /// The lease asked for, in nanoseconds.
        lease: u64,
        /// Is somebody listening for the loss, who logs [`What::Told`]?
        watched: bool,
    },
    /// It was granted.
    Granted {
        /// The fencing token.
        token: u64,
        /// Until when the client now believes to hold it, unless it hears more.
        until: u64,
    },
    /// Which permits are granted, before the grant itself.
    Slots {
        /// Their numbers.
        slots: Vec<u32>,
    },
    /// It was not granted: held by another.
    Denied,
    /// The acquisition ended with an error.
    Failed {
        /// May it have been done all the same?
        unknown: bool,
    },
    /// The client asked itself whether it still holds. The time is from before the question.
    Checked {
        /// The answer.
        held: bool,
        /// Until when it believes to hold.
        until: u64,
    },
    /// The client was told of the loss.
    Told,
    /// The release is asked for; from here on the client does not believe to hold.
    Release,
    /// The hold is to go on without its owner, who does not believe to hold from here on. It is answered as a release.
    Keep {
        /// How long since the grant, in nanoseconds.
        at_least: u64,
    },
    /// The release was answered.
    Released {
        /// Was it held until then?
        held: bool,
    },
    /// The release ended with an error.
    ReleaseFailed,
    /// This was shown with the hold from the grant on.
    Showed {
        /// The value.
        value: String,
    },
    /// Somebody looked at a lock.
    Seen {
        /// The lock.
        name: String,
        /// The holder's fencing token.
        token: u64,
        /// What the holder shows.
        value: Option<String>,
    },
    /// A client that holds a lock looked at it, and was not shown as a holder.
    Misled {
        /// The lock.
        name: String,
        /// The owners that were shown, with commas between them; empty if there were none.
        owner: String,
    },
    /// A protected resource was used, and had answered by this moment.
    Used {
        /// Where it is.
        place: String,
        /// The resource.
        resource: String,
        /// What it was used for.
        kind: Kind,
        /// With which fencing token.
        token: u64,
        /// When the access was sent.
        sent: u64,
        /// Did the client know by then that its lease was over?
        late: bool,
        /// The counter after it; `None` if the token was refused.
        value: Option<u64>,
        /// Did the client still hold the lock after the answer?
        held: bool,
    },
    /// The client's process was stopped before this moment.
    Stopped,
    /// The client's process goes on after this moment.
    Continued,
    /// The client's process is killed.
    Killed,
    /// An operator ends whatever hold there is of this lock, after this moment.
    Evict {
        /// The lock.
        name: String,
    },
    /// The store loses all it knows, after this moment.
    Forgetting,
    /// It lost all it knew, before this moment.
    Forgotten,
    /// One of several stores that grant together loses all it knows, after this moment.
    Emptied,
    /// All clients have ended and their time is up, and yet this lock is held or waited for.
    Left {
        /// The lock.
        name: String,
        /// The holder's fencing token, if anybody holds it.
        token: Option<u64>,
        /// How many wait.
        waiters: usize,
    },
    /// Something is done to the client, after this moment. (The client may be a server, or a network.)
    Struck {
        /// What.
        blow: String,
    },
    /// That ended before this moment.
    Relieved {
        /// What.
        blow: String,
    },
}

impl What {
    /// Does it end an acquisition, or try to?
    pub(crate) fn ends(&self) -> bool {
        use What::{Denied, Failed, Keep, Release, ReleaseFailed, Released};
        matches!(self, Denied | Failed { .. } | Keep { .. } | Release | Released { .. } | ReleaseFailed)
    }
}

/// The machine's `CLOCK_MONOTONIC`, in nanoseconds.
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Where the events of one client go. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Log {
    client: Arc<str>,
    sink: Sink,
}

#[derive(Clone, Debug)]
enum Sink {
    Memory(Arc<Mutex<Vec<Event>>>),
    File(Arc<File>),
}

impl Log {
    /// A log in memory. [`Log::client`] makes more clients of it.
    pub fn in_memory(client: &str) -> Self {
        Self { client: client.into(), sink: Sink::Memory(Arc::default()) }
    }

    /// A log at the end of a file. Every event is written at once, so that a process that is killed loses none.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn to_file(client: &str, path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { client: client.into(), sink: Sink::File(Arc::new(file)) })
    }

    /// The same log for another client.
    #[must_use]
    pub fn client(&self, client: &str) -> Self {
        Self { client: client.into(), sink: self.sink.clone() }
    }

    /// Logs an event that happens now.
    ///
    /// # Panics
    /// If the file cannot be written: a history with holes proves nothing.
    pub fn log(&self, op: u64, what: What) {
        self.log_at(monotonic(), op, what);
    }

    /// Logs an event with its time.
    ///
    /// # Panics
    /// As [`Log::log`].
    pub fn log_at(&self, at: u64, op: u64, what: What) {
        let event = Event { at, client: self.client.to_string(), op, what };
        match &self.sink {
            Sink::Memory(events) => events.lock().unwrap_or_else(PoisonError::into_inner).push(event),
            Sink::File(file) => {
                let mut line = serde_json::to_vec(&event).expect("an event is always JSON");
                line.push(b'\n');
                file.as_ref().write_all(&line).expect("the history can be written");
            }
        }
    }

    /// The events so far, of all clients of a log in memory; none of a log in a file.
    pub fn events(&self) -> Vec<Event> {
        match &self.sink {
            Sink::Memory(events) => events.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Sink::File(_) => Vec::new(),
        }
    }
}

/// Reads the events of a file. The last line may be half a line: its process was killed.
///
/// # Errors
/// If the file cannot be read or another line is not an event.
pub fn read(path: &Path) -> io::Result<Vec<Event>> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_events_and_forgives_half_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.jsonl");
        let log = Log::to_file("a", &path).unwrap();
        log.log(1, What::Acquire { name: "n \"x\"\n".into(), mode: Mode::Shared, lease: 5, watched: true });
        log.client("b").log_at(9, 2, What::Granted { token: u64::MAX, until: 10 });
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"at\":1,\"cli").unwrap();
        let events = read(&path).unwrap();
        assert_eq!(events.len(), 2);
        assert_eq!(
            events[1],
            Event { at: 9, client: "b".into(), op: 2, what: What::Granted { token: u64::MAX, until: 10 } }
        );
    }
}
