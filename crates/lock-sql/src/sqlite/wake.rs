//! Waking a waiter in another process: a datagram to an abstract Unix socket. It is only a hint; losing it costs a
//! tick.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lock_core::Background;
use tokio::sync::Notify;

/// Who waits in this client, by the number that a datagram carries.
type Waiting = Arc<Mutex<HashMap<u64, Arc<Notify>>>>;

/// Wakes waiters of other clients, and is woken for those of its own.
#[derive(Debug)]
pub(super) struct Wake {
    waiting: Waiting,
    ear: Mutex<Ear>,
    voice: io::Result<UnixDatagram>,
}

#[derive(Debug, Default)]
struct Ear {
    next: u64,
    address: String,
    task: Background,
    unheard: Unheard,
}

/// When somebody could not reach this client last.
type Unheard = Arc<Mutex<Option<Instant>>>;

/// For so long after that, who waits looks often from the beginning.
const DEAF: Duration = Duration::from_secs(60);

/// A place to wait at, until dropped.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    wake: Option<String>,
    notify: Arc<Notify>,
    waiting: Waiting,
    unheard: Unheard,
}

impl Wake {
    pub(super) fn new() -> Self {
        let voice = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self { waiting: Waiting::default(), ear: Mutex::default(), voice }
    }

    /// A place that can be woken from now on. Must be called within a runtime.
    pub(super) fn place(&self) -> Place {
        let mut ear = self.ear.lock().unwrap_or_else(PoisonError::into_inner);
        ear.next += 1;
        let (number, notify) = (ear.next, Arc::new(Notify::new()));
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::clone(&notify));
        // The task ends with the runtime that it was started on; those who wait on another one need a new one.
        if !ear.task.runs() {
            match listen(Arc::clone(&self.waiting)) {
                Ok((address, listening)) => {
                    ear.address = address;
                    ear.task.start(listening);
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot be woken by other processes: waiting by looking often");
                }
            }
        }
        let unheard = Arc::clone(&ear.unheard);
        let deaf = unheard.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|at| at.elapsed() < DEAF);
        let wake = (ear.task.runs() && !deaf).then(|| format!("{}/{number}", ear.address));
        Place { number, wake, notify, waiting: Arc::clone(&self.waiting), unheard }
    }

    /// Wakes whoever waits there. False: surely nobody does.
    pub(super) fn tell(&self, wake: &str) -> bool {
        let (Ok(voice), Some((address, number))) = (&self.voice, wake.rsplit_once('/')) else { return true };
        match abstract_address(address).and_then(|address| voice.send_to_addr(number.as_bytes(), &address)) {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound),
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.waiting.lock().unwrap().len()
    }
}

impl Place {
    /// Where to wake it; none if that does not work here.
    pub(super) fn wake(&self) -> Option<&str> {
        self.wake.as_deref()
    }

    /// It cannot be woken there after all, nor can others of this client.
    pub(super) fn is_not_reached(&mut self) {
        self.wake = None;
        *self.unheard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Ends when it is woken, also if that was before the call.
    pub(super) async fn woken(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

fn listen(waiting: Waiting) -> io::Result<(String, impl Future<Output = ()> + Send + 'static)> {
    // An abstract name is no file: nothing is left behind. It cannot be guessed, so nobody takes it first.
    let unique = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    let name = format!("oarlock-{}", unique.trim().replace('-', "").get(..16).unwrap_or_default());
    let socket = UnixDatagram::bind_addr(&abstract_address(&name)?)?;
    socket.set_nonblocking(true)?;
    let socket = tokio::net::UnixDatagram::from_std(socket)?;
    let listening = async move {
        let mut buffer = [0; 32];
        while let Ok(length) = socket.recv(&mut buffer).await {
            // Anybody may send here: what is no number of ours is nobody's.
            let number = std::str::from_utf8(&buffer[..length]).ok().and_then(|text| text.parse().ok());
            let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(notify) = number.and_then(|number: u64| waiting.get(&number)) {
                notify.notify_one();
            }
        }
    };
    Ok((name, listening))
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &str) -> io::Result<std::os::unix::net::SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    std::os::unix::net::SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_name: &str) -> io::Result<std::os::unix::net::SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiter_is_woken_and_a_foreign_datagram_is_ignored() {
        let (here, there) = (Wake::new(), Wake::new());
        let (first, second) = (here.place(), here.place());
        let wake = first.wake().unwrap();
        let address = wake.split('/').next().unwrap();
        for junk in ["", "x", "99", "-1", "18446744073709551616", "1234567890123456789012345678901234567890"] {
            there.tell(&format!("{address}/{junk}"));
        }
        assert!(there.tell(wake));
        first.woken().await;
        let quiet = tokio::time::timeout(Duration::from_millis(20), second.woken()).await;
        assert!(quiet.is_err(), "the other one was not meant");
    }

    #[tokio::test]
    async fn nobody_is_told_apart_from_somebody() {
        let here = Wake::new();
        let place = here.place();
        let wake = place.wake().unwrap().to_owned();
        drop(place);
        assert_eq!(here.places(), 0);
        here.ear.lock().unwrap().task.stop();
        tokio::task::yield_now().await;
        assert!(!Wake::new().tell(&wake));
        assert!(!Wake::new().tell("oarlock-none/1"));
        assert!(Wake::new().tell("no address"));
    }

    #[test]
    fn a_new_runtime_gets_a_new_ear() {
        let here = Wake::new();
        let mut addresses = Vec::new();
        for _ in 0..2 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let place = here.place();
                addresses.push(place.wake().unwrap().to_owned());
                assert!(Wake::new().tell(place.wake().unwrap()));
                place.woken().await;
            });
        }
        assert_ne!(addresses[0].split('/').next(), addresses[1].split('/').next());
    }
}
