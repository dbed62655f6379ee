//! Those whom the torture strikes, each in a task of its own, by a plan: workers, their networks, servers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use rustix::process::Rlimit;
use tokio::time::Instant;

use crate::history::{Log, What};
use crate::plan::{Blow, Lane, Step};
use crate::proxy::Proxy;
use crate::worker::{Role, Worker};

/// A server under torture, as a process that can be stopped, killed and started again. Each call blocks until it is
/// done.
pub trait Server: Send + 'static {
    /// Where it listens. It stays the same.
    fn address(&self) -> SocketAddr;

    /// Does it know, when it is started again, all that it had confirmed? If not, it knows nothing of that, and every
    /// hold is lost.
    fn keeps(&self) -> bool;

    /// Is it one of several that grant together, and knows nothing when it is started again?
    fn is_emptied(&self) -> bool {
        false
    }

    /// Stops the process where it is.
    fn pause(&mut self);

    /// Lets it go on.
    fn resume(&mut self);

    /// Ends it, as `kill -9` does.
    fn kill(&mut self);

    /// Ends it in good order.
    fn shut_down(&mut self);

    /// Starts it again, until it answers.
    fn start(&mut self);

    /// Which of [`Blow::CutServer`] and [`Blow::Compact`] it can suffer; none if it does not say. The same for as long
    /// as it lives, so that a seed makes the same plan.
    fn suffers(&self) -> &'static [Blow] {
        &[]
    }

    /// Does one of those to it.
    fn strike(&mut self, _blow: Blow) {}

    /// Ends it.
    fn relieve(&mut self, _blow: Blow) {}
}

/// Who suffers what a plan says.
pub(crate) enum Victim {
    Worker(Box<Seat>),
    /// A way to a server, and the others that are as good.
    Network {
        proxy: Proxy,
        others: Vec<SocketAddr>,
    },
    /// `None` while it is away, in a thread where it may block.
    Server {
        server: Option<Box<dyn Server>>,
        proxy: Arc<Proxy>,
    },
}

impl Victim {
    /// Can it suffer this, if its kind can?
    pub(crate) fn can_suffer(&self, blow: Blow) -> bool {
        match self {
            Self::Worker(seat) => seat.suffers.contains(&blow),
            Self::Network { others, .. } => !blow.is_particular() && (blow != Blow::Balance || !others.is_empty()),
            Self::Server { .. } if blow == Blow::Balance => false,
            Self::Server { server, .. } => {
                !blow.is_particular() || server.as_ref().is_some_and(|server| server.suffers().contains(&blow))
            }
        }
    }

    /// Suffers all that is planned, from `start` on. What comes late, because something took its time, lasts no
    /// shorter.
    pub(crate) async fn suffer(mut self, lane: Lane, plan: Vec<Step>, start: Instant, log: Log) -> io::Result<Self> {
        let log = log.client(&lane.to_string());
        for step in plan {
            tokio::time::sleep_until(start + step.at).await;
            log.log(0, What::Struck { blow: step.blow.to_string() });
            self.strike(&step, &log).await?;
            tokio::time::sleep(step.lasting).await;
            self.relieve(step.blow, &log).await?;
            log.log(0, What::Relieved { blow: step.blow.to_string() });
        }
        Ok(self)
    }

    async fn strike(&mut self, step: &Step, log: &Log) -> io::Result<()> {
        match self {
            Self::Worker(seat) => seat.strike(step.blow, log).await,
            Self::Network { proxy, others } => {
                match step.blow {
                    // One of them, by chance.
                    Blow::Balance => proxy.lead_to(others[step.delay.subsec_nanos() as usize % others.len()]),
                    blow => blow.strike(proxy, step.delay),
                }
                Ok(())
            }
            Self::Server { server, proxy } => {
                if matches!(step.blow, Blow::KillServer | Blow::RestartServer) {
                    match server {
                        Some(server) if server.is_emptied() => log.log(0, What::Emptied),
                        Some(server) if server.keeps() => {}
                        _ => log.log(0, What::Forgetting),
                    }
                }
                match step.blow {
                    Blow::PauseServer => away(server, |server| server.pause()).await,
                    Blow::KillServer => away(server, |server| server.kill()).await,
                    Blow::RestartServer => away(server, |server| server.shut_down()).await,
                    blow if blow.is_particular() => away(server, move |server| server.strike(blow)).await,
                    blow => {
                        blow.strike(proxy, step.delay);
                        Ok(())
                    }
                }
            }
        }
    }

    async fn relieve(&mut self, blow: Blow, log: &Log) -> io::Result<()> {
        match self {
            Self::Worker(seat) => seat.relieve(blow, log),
            Self::Network { proxy, .. } => {
                blow.relieve(proxy);
                Ok(())
            }
            Self::Server { server, proxy } => match blow {
                Blow::PauseServer => away(server, |server| server.resume()).await,
                Blow::KillServer | Blow::RestartServer => {
                    let keeps = server.as_ref().is_some_and(|server| server.keeps());
                    away(server, |server| server.start()).await?;
                    if !keeps {
                        log.log(0, What::Forgotten);
                    }
                    Ok(())
                }
                blow if blow.is_particular() => away(server, move |server| server.relieve(blow)).await,
                blow => {
                    blow.relieve(proxy);
                    Ok(())
                }
            },
        }
    }
}

/// Does something that blocks.
async fn away(
    server: &mut Option<Box<dyn Server>>,
    act: impl FnOnce(&mut dyn Server) + Send + 'static,
) -> io::Result<()> {
    let mut gone = server.take().ok_or_else(|| io::Error::other("the server is away already"))?;
    let back = tokio::task::spawn_blocking(move || {
        act(&mut *gone);
        gone
    });
    *server = Some(back.await.map_err(io::Error::other)?);
    Ok(())
}

/// A worker, and those who take its place.
pub(crate) struct Seat {
    /// What the next one is to do: its name in the history ends with its number, and its choices come from that.
    role: Box<dyn Fn(usize) -> (String, Role) + Send>,
    /// What it can suffer.
    suffers: &'static [Blow],
    worker: Worker,
    /// What it may open otherwise, while it may open nothing.
    allowed: Option<Rlimit>,
    /// Who had the place, the present one last.
    pub(crate) clients: Vec<String>,
}

impl Seat {
    pub(crate) fn new(
        suffers: &'static [Blow],
        role: impl Fn(usize) -> (String, Role) + Send + 'static,
    ) -> io::Result<Self> {
        let (client, first) = role(0);
        let worker = Worker::spawn(&first, &[])?;
        Ok(Self { role: Box::new(role), suffers, worker, allowed: None, clients: vec![client] })
    }

    pub(crate) async fn strike(&mut self, blow: Blow, log: &Log) -> io::Result<()> {
        let log = log.client(self.clients.last().map_or("", String::as_str));
        match blow {
            Blow::Stop => {
                self.worker.signal(Signal::SIGSTOP)?;
                log.log(0, What::Stopped);
                return Ok(());
            }
            // One that has not begun yet could not be loaded.
            Blow::Starve if !self.worker.has_begun() => return Ok(()),
            Blow::Starve => {
                self.allowed = Some(self.worker.may_open(Rlimit { current: Some(0), maximum: None })?);
                return Ok(());
            }
            Blow::ReplaceRuntime => return self.worker.replace_runtime(),
            _ => {}
        }
        log.log(0, What::Killed);
        self.worker.kill().await?;
        let (client, next) = (self.role)(self.clients.len());
        self.worker = Worker::spawn(&next, &[])?;
        self.clients.push(client);
        Ok(())
    }

    fn relieve(&mut self, blow: Blow, log: &Log) -> io::Result<()> {
        if blow == Blow::Stop {
            log.client(self.clients.last().map_or("", String::as_str)).log(0, What::Continued);
            self.worker.signal(Signal::SIGCONT)?;
        }
        if let Some(allowed) = self.allowed.take() {
            self.worker.may_open(allowed)?;
        }
        Ok(())
    }

    /// Lets the present worker end, which it has to do well.
    pub(crate) async fn end(mut self, patience: Duration) -> io::Result<Vec<String>> {
        if !self.worker.end(patience).await? {
            let last = self.clients.last().map_or("a worker", String::as_str);
            return Err(io::Error::other(format!("{last} did not end well, or not within {patience:?} of being told")));
        }
        Ok(self.clients)
    }
}
