//! The worker processes, from the side of the process that started them.

use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout_at};

use super::worker::{Job, Word};
use crate::args::WORKER;
use crate::itself;

/// How long workers may take to give back what they hold.
const FAREWELL: Duration = Duration::from_secs(5);

/// All workers that have been started and not yet seen off. They outlive the step that started them, so that they can
/// be waited for also after an interruption.
#[derive(Debug, Default)]
pub(super) struct Roster(Mutex<Vec<Child>>);

impl Roster {
    /// Starts a worker.
    pub(super) async fn start(&self, job: &Job) -> Result<Worker, String> {
        let mut command = itself::again(WORKER).map_err(|error| cannot_start(&error))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| cannot_start(&error))?;
        let (stdin, stdout, id) = (child.stdin.take(), child.stdout.take(), child.id());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        let (Some(orders), Some(stdout), Some(id)) = (stdin, stdout, id) else {
            return Err("a worker has no pipes".to_owned());
        };
        let mut worker = Worker { id: Pid::from_raw(id as i32), orders, words: BufReader::new(stdout).lines() };
        worker.order(job).await?;
        Ok(worker)
    }

    /// Waits until all have ended. They do when their orders do, that is when their [`Worker`] is dropped.
    pub(super) async fn settle(&self) {
        let children = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let late = Instant::now() + FAREWELL;
        for mut child in children {
            if timeout_at(late, child.wait()).await.is_err() {
                // A store that hangs has no right to keep us.
                let _ = child.kill().await;
            }
        }
    }
}

fn cannot_start(error: &std::io::Error) -> String {
    format!("cannot start a worker: {error}")
}

/// A worker. Dropping it ends its orders, upon which it gives back what it holds and ends.
#[derive(Debug)]
pub(super) struct Worker {
    id: Pid,
    orders: ChildStdin,
    words: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Tells it what to do.
    pub(super) async fn order(&mut self, order: &impl Serialize) -> Result<(), String> {
        let mut line = serde_json::to_string(order).map_err(|error| error.to_string())?;
        line.push('\n');
        self.orders.write_all(line.as_bytes()).await.map_err(|error| format!("a worker takes no orders: {error}"))
    }

    /// What it says next, or why it failed.
    pub(super) async fn word(&mut self) -> Result<Word, String> {
        let line = self.words.next_line().await.map_err(|error| error.to_string())?;
        let line = line.ok_or("a worker ended before its time")?;
        match serde_json::from_str(&line).map_err(|error| format!("a worker is not understood: {error}"))? {
            Word::Failed(why) => Err(why),
            word => Ok(word),
        }
    }

    /// Ends it as a crash would.
    pub(super) fn kill(&self) {
        // It cannot be somebody else by now: nobody has waited for it.
        let _ = kill(self.id, Signal::SIGKILL);
    }
}
