//! The pipe from `oarlock` to the guardian. It carries instants of the system's clock, as nanoseconds in eight bytes
//! each: until then the lock is held. Zero means that the command is to end; the pipe's end, that `oarlock` is gone.
//!
//! Another one goes back, by which the guardian says that the command has begun: no exit code could tell.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use oarlock::{Clock, Instant, SystemClock};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// What the guardian hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The lock is held until then.
    Until(Instant),
    /// The command is to end.
    End,
    /// `oarlock` is gone.
    Gone,
}

/// Instants closer than this count as the same: the end of a lease is computed from two readings of the clock.
const SAME: Duration = Duration::from_millis(1);

/// The word for the end, after a loss most of all. No lease ends at the clock's origin.
const END: u64 = 0;

/// The end that `oarlock` holds.
#[derive(Debug)]
pub(super) struct Leash {
    pipe: PipeWriter,
    told: Instant,
    begun: PipeReader,
}

/// The other end, on its way to the guardian.
#[derive(Debug)]
pub(super) struct Inherited {
    leash: PipeReader,
    begun: PipeWriter,
}

impl Leash {
    pub(super) fn new() -> io::Result<(Self, Inherited)> {
        let ((reader, writer), (begun, says)) = (io::pipe()?, io::pipe()?);
        // The guardian inherits its own ends alone: holding ours too, it would never see the pipe end.
        fcntl(&reader, FcntlArg::F_SETFD(FdFlag::empty()))?;
        fcntl(&says, FcntlArg::F_SETFD(FdFlag::empty()))?;
        // A guardian that was stopped must not stop us with it.
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let told = Instant::from_origin(Duration::ZERO);
        Ok((Self { pipe: writer, told, begun }, Inherited { leash: reader, begun: says }))
    }

    /// The lock is held until then.
    pub(super) fn hold_until(&mut self, until: Instant) {
        if until.saturating_duration_since(self.told) > SAME {
            self.told = until;
            self.send(u64::try_from(until.since_origin().as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Is the time over of which it was told last?
    pub(super) fn is_over(&self) -> bool {
        SystemClock.now() >= self.told
    }

    /// Had the command begun, when the guardian ended? Asked earlier, it waits for one of these.
    pub(super) fn had_begun(&mut self) -> bool {
        self.begun.read_exact(&mut [0]).is_ok()
    }

    /// The command is to end.
    pub(super) fn end(&mut self) {
        self.send(END);
    }

    fn send(&mut self, word: u64) {
        // It fails if the guardian is gone, which its exit reports, or stopped for very long: then it still knows an
        // earlier time, and errs on the safe side.
        let _ = self.pipe.write_all(&word.to_le_bytes());
    }
}

impl Inherited {
    /// What the guardian is to [`open`](Held::open).
    pub(super) fn numbers(&self) -> [RawFd; 2] {
        [self.leash.as_raw_fd(), self.begun.as_raw_fd()]
    }
}

/// The end that the guardian holds.
#[derive(Debug)]
pub(super) struct Held {
    pipe: pipe::Receiver,
    begun: pipe::Sender,
    frame: [u8; 8],
    filled: usize,
}

impl Held {
    /// Opens the inherited pipes anew, so that the command does not inherit them.
    pub(super) fn open([leash, begun]: [RawFd; 2]) -> io::Result<Self> {
        let pipe = pipe::OpenOptions::new().open_receiver(format!("/dev/fd/{leash}"))?;
        let says = pipe::OpenOptions::new().open_sender(format!("/dev/fd/{begun}"))?;
        nix::unistd::close(leash)?;
        nix::unistd::close(begun)?;
        Ok(Self { pipe, begun: says, frame: [0; 8], filled: 0 })
    }

    /// The command has begun.
    pub(super) fn begin(&self) {
        // It fails if `oarlock` is gone.
        let _ = self.begun.try_write(&[1]);
    }

    /// The next word. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Word {
        while self.filled < self.frame.len() {
            match self.pipe.read(&mut self.frame[self.filled..]).await {
                Ok(0) | Err(_) => return Word::Gone,
                Ok(read) => self.filled += read,
            }
        }
        self.filled = 0;
        match u64::from_le_bytes(self.frame) {
            END => Word::End,
            nanos => Word::Until(Instant::from_origin(Duration::from_nanos(nanos))),
        }
    }
}
