//! A server that says what no server says: lengths that nobody has memory for, answers that never end, noise.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lock_core::{BackendFactory, Config, Registry, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What such a server says.
#[derive(Clone, Debug)]
pub struct Says {
    once: Vec<u8>,
    again: Vec<u8>,
}

impl Says {
    /// Something once, and something else again and again after it, for as long as anybody listens; or nothing, if that
    /// is empty.
    pub fn new(once: impl AsRef<[u8]>, again: impl AsRef<[u8]>) -> Self {
        let (once, again) = (once.as_ref().to_vec(), again.as_ref());
        // In pieces that are worth a write.
        Self { once, again: again.repeat(if again.is_empty() { 0 } else { (64 << 10) / again.len() }) }
    }

    /// Noise.
    pub fn noise(seed: u64) -> Self {
        let mut once = vec![0; 4096];
        StdRng::seed_from_u64(seed).fill_bytes(&mut once);
        Self { once, again: Vec::new() }
    }

    /// How it begins, for a message.
    pub fn beginning(&self) -> String {
        let said = if self.once.is_empty() { &self.again } else { &self.once };
        String::from_utf8_lossy(&said[..said.len().min(40)]).into_owned()
    }

    /// Says it to whoever connects to this address: at once; or, behind a server that means well, in the place of the
    /// answer to the first request that has these bytes in it.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn listen(self, behind: Option<(SocketAddr, &'static [u8])>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // It ends when the client has had enough.
                tokio::spawn(self.clone().serve(client, behind));
            }
        });
        address
    }

    async fn serve(self, mut client: TcpStream, behind: Option<(SocketAddr, &'static [u8])>) -> io::Result<()> {
        if let Some((server, cue)) = behind {
            mean_well(&mut client, server, cue).await?;
        }
        let (mut from, mut to) = client.split();
        let say = async {
            to.write_all(&self.once).await?;
            while !self.again.is_empty() {
                to.write_all(&self.again).await?;
            }
            std::future::pending().await
        };
        let listen = async {
            let mut asked = [0; 4096];
            while from.read(&mut asked).await? > 0 {}
            Ok(())
        };
        tokio::select! {
            ended = say => ended,
            ended = listen => ended,
        }
    }
}

/// Carries what is asked and answered, up to the cue.
async fn mean_well(client: &mut TcpStream, server: SocketAddr, cue: &[u8]) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        tokio::select! {
            length = client.read(&mut asked) => match &asked[..length?] {
                [] => return Err(io::ErrorKind::UnexpectedEof.into()),
                asked if asked.windows(cue.len()).any(|word| word == cue) => return Ok(()),
                asked => server.write_all(asked).await?,
            },
            length = server.read(&mut answered) => match &answered[..length?] {
                [] => return Err(io::ErrorKind::UnexpectedEof.into()),
                answered => client.write_all(answered).await?,
            },
        }
    }
}

/// The most memory that this process has had, in bytes. A process's: so a test that asks is in a program of its own.
///
/// # Panics
/// If the system does not tell.
pub fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system tells of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("and how much memory it had");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("in kB") << 10
}

/// Connects by this URL and tries to take a lock, as an application would.
///
/// # Errors
/// Those of the two.
///
/// # Panics
/// If it is no URL.
pub async fn attempt(factory: impl BackendFactory, url: &str) -> Result<()> {
    let mut registry = Registry::new();
    registry.register(factory);
    let locks = registry.connect(Config::from_url(url).expect("a URL")).await?;
    locks.mutex("x").try_lock().await.map(drop)
}

/// All that is said is answered with an error, each within this time.
///
/// # Panics
/// If one is not.
pub async fn withstand(
    all: Vec<Says>,
    behind: Option<(SocketAddr, &'static [u8])>,
    time: Duration,
    ask: impl AsyncFn(SocketAddr) -> Result<()>,
) {
    for says in all {
        let beginning = says.beginning();
        let asked = tokio::time::timeout(time, ask(says.listen(behind).await)).await;
        assert!(matches!(asked, Ok(Err(_))), "{}, to {beginning:?}", if asked.is_ok() { "granted" } else { "no end" });
    }
}
