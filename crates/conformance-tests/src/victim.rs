//! Those whom the torture strikes, each in a task of its own, by a plan: workers, their networks, servers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit};
use tokio::time::Instant;

use crate::history::{Log, What};
use crate::host::{HERE, Host, THERE};
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

    /// Can it suffer this one of [`Blow::CutServer`], [`Blow::FullDisk`] and [`Blow::Compact`]? None of them if it does
    /// not say. The same for as long as it lives, so that a seed makes the same plan.
    fn suffers(&self, _blow: Blow) -> bool {
        false
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
        moved: Option<Box<Moved>>,
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
            Self::Network { others, moved, .. } => match blow {
                Blow::Balance => !others.is_empty(),
                Blow::Rename => moved.is_some(),
                blow => !blow.is_particular(),
            },
            Self::Server { .. } if matches!(blow, Blow::Balance | Blow::Rename) => false,
            Self::Server { server, .. } => {
                !blow.is_particular() || server.as_ref().is_some_and(|server| server.suffers(blow))
            }
        }
    }

    /// A worker that is never killed: its name and process.
    pub(crate) fn spared(&self) -> Option<(String, Pid)> {
        match self {
            Self::Worker(seat) if !seat.suffers.contains(&Blow::Kill) => {
                Some((seat.clients.last()?.clone(), seat.worker.pid()?))
            }
            _ => None,
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
            Self::Network { proxy, others, moved } => {
                match (step.blow, moved) {
                    // One of them, by chance.
                    (Blow::Balance, _) => proxy.lead_to(others[step.delay.subsec_nanos() as usize % others.len()]),
                    (Blow::Rename, Some(moved)) => {
                        moved.host.lead(moved.server, THERE)?;
                        proxy.cut();
                    }
                    (blow, _) => blow.strike(proxy, step.delay),
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
            Self::Network { proxy, moved, .. } => {
                blow.relieve(proxy);
                if let (Blow::Rename, Some(moved)) = (blow, moved) {
                    moved.host.lead(moved.server, HERE)?;
                    moved.proxy.reset();
                }
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

/// Where a server's name may lead instead.
pub(crate) struct Moved {
    pub(crate) proxy: Proxy,
    pub(crate) host: Arc<Host>,
    pub(crate) server: usize,
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
    suffers: Vec<Blow>,
    /// Where it is, if not here.
    host: Option<Arc<Host>>,
    /// How far its host's clock is stepped next, in seconds.
    next_step: i64,
    worker: Worker,
    /// What it may have otherwise, while it may have no more.
    allowed: Option<(Resource, Rlimit)>,
    /// Who had the place, the present one last.
    pub(crate) clients: Vec<String>,
}

impl Seat {
    pub(crate) fn new(
        suffers: Vec<Blow>,
        host: Option<Arc<Host>>,
        role: impl Fn(usize) -> (String, Role) + Send + 'static,
    ) -> io::Result<Self> {
        let (client, first) = role(0);
        let worker = Worker::spawn(&first, host.as_deref())?;
        let role = Box::new(role);
        Ok(Self { role, suffers, host, next_step: 3600, worker, allowed: None, clients: vec![client] })
    }

    pub(crate) async fn strike(&mut self, blow: Blow, log: &Log) -> io::Result<()> {
        match blow {
            Blow::Stop => {
                self.worker.signal(Signal::SIGSTOP)?;
                self.log(log).log(0, What::Stopped);
            }
            // One that has not begun yet could not be loaded, nor open its file.
            Blow::Starve | Blow::OutOfMemory | Blow::NoRoom if !self.worker.has_begun() => {}
            Blow::Starve => self.limit(Resource::Nofile)?,
            Blow::OutOfMemory => self.limit(Resource::Data)?,
            Blow::StepClock => {
                self.change_host(|host| host.set_clock(self.next_step))?;
                self.next_step = -self.next_step;
            }
            Blow::ReplaceRuntime => self.worker.replace_runtime()?,
            Blow::Panic => self.worker.panic()?,
            Blow::NoRoom => self.change_host(|host| host.fill(true))?,
            _ => {
                self.log(log).log(0, What::Killed);
                self.worker.kill().await?;
                self.replace()?;
            }
        }
        Ok(())
    }

    fn relieve(&mut self, blow: Blow, log: &Log) -> io::Result<()> {
        match blow {
            Blow::Stop => {
                self.log(log).log(0, What::Continued);
                self.worker.signal(Signal::SIGCONT)?;
            }
            Blow::StepClock => self.change_host(|host| host.set_clock(0))?,
            Blow::NoRoom => self.change_host(|host| host.fill(false))?,
            _ => {}
        }
        if let Some((resource, allowed)) = self.allowed.take() {
            if resource == Resource::Data && self.worker.has_died()? {
                self.log(log).log(0, What::Killed);
                return self.replace();
            }
            self.worker.limit(resource, allowed)?;
        }
        Ok(())
    }

    fn log(&self, log: &Log) -> Log {
        log.client(self.clients.last().map_or("", String::as_str))
    }

    fn replace(&mut self) -> io::Result<()> {
        let (client, next) = (self.role)(self.clients.len());
        self.worker = Worker::spawn(&next, self.host.as_deref())?;
        self.clients.push(client);
        Ok(())
    }

    /// What it has it keeps.
    fn limit(&mut self, resource: Resource) -> io::Result<()> {
        let before = self.worker.limit(resource, Rlimit { current: Some(0), maximum: None })?;
        self.allowed = Some((resource, before));
        Ok(())
    }

    fn change_host(&self, change: impl FnOnce(&Host) -> io::Result<()>) -> io::Result<()> {
        self.host.as_deref().map_or(Ok(()), change)
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
