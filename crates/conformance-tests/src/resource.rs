//! What a lock protects, in a file: a counter that lets nobody in whose fencing token is older than one it has seen. Those
//! who share the lock are let in beside each other, whatever their tokens, but not after a writer with a newer one.
//!
//! The file is a log of what was let in, one record of fixed size each, and its last record is the state. A record is
//! written by one call under the file's `flock`, so a process that is killed leaves a whole record or none.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lock_core::StaleToken;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// A read or a write that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whether it read or wrote.
    pub kind: Kind,
    /// With which fencing token.
    pub token: u64,
    /// The counter after it.
    pub value: u64,
    /// The newest token of all but those who share the lock.
    pub newest: u64,
}

/// Whether an access read or wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It read. Reads present their token too, so that an older writer cannot slip in between a newer one's read and
    /// write.
    Read,
    /// It wrote.
    Write,
    /// It read, and others may read beside it.
    Share,
}

const RECORD: usize = 32;

/// The resource. Each user opens one of its own: the file's lock keeps apart handles, not the users of one handle.
#[derive(Debug)]
pub struct Resource {
    file: File,
}

impl Resource {
    /// Opens it; a new one counts from zero.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).read(true).write(true).truncate(false).open(path)?;
        Ok(Self { file })
    }

    /// Reads the counter. Blocks for as long as another access takes.
    ///
    /// # Errors
    /// If the file cannot be used; inside, [`StaleToken`] if a newer token was seen.
    pub fn read(&mut self, token: u64) -> io::Result<Result<u64, StaleToken>> {
        self.access(token, Kind::Read, |value| value)
    }

    /// Reads the counter as one of those who share the lock. Blocks for as long as another access takes.
    ///
    /// # Errors
    /// As [`Resource::read`].
    pub fn share(&mut self, token: u64) -> io::Result<Result<u64, StaleToken>> {
        self.access(token, Kind::Share, |value| value)
    }

    /// Sets the counter. Blocks for as long as another access takes.
    ///
    /// # Errors
    /// As [`Resource::read`].
    pub fn write(&mut self, token: u64, value: u64) -> io::Result<Result<u64, StaleToken>> {
        self.access(token, Kind::Write, |_| value)
    }

    fn access(&mut self, token: u64, kind: Kind, new: impl FnOnce(u64) -> u64) -> io::Result<Result<u64, StaleToken>> {
        flock(&self.file, FlockOperation::LockExclusive)?;
        let answer = self.access_alone(token, kind, new);
        flock(&self.file, FlockOperation::Unlock)?;
        answer
    }

    fn access_alone(
        &self,
        token: u64,
        kind: Kind,
        new: impl FnOnce(u64) -> u64,
    ) -> io::Result<Result<u64, StaleToken>> {
        let records = self.file.metadata()?.len() / RECORD as u64;
        let (mut newest, mut value) = (0, 0);
        if records > 0 {
            let mut record = [0; RECORD];
            self.file.read_exact_at(&mut record, (records - 1) * RECORD as u64)?;
            let last = decode(&record)?;
            (newest, value) = (last.newest, last.value);
        }
        if token < newest {
            return Ok(Err(StaleToken { presented: token, newest }));
        }
        let newest = if kind == Kind::Share { newest } else { token };
        let access = Access { kind, token, value: new(value), newest };
        self.file.write_all_at(&encode(access), records * RECORD as u64)?;
        Ok(Ok(access.value))
    }

    /// Everything that was let in, in its order.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn log(path: &Path) -> io::Result<Vec<Access>> {
        std::fs::read(path)?.chunks_exact(RECORD).map(decode).collect()
    }
}

fn encode(access: Access) -> [u8; RECORD] {
    let kind = match access.kind {
        Kind::Read => 0_u64,
        Kind::Write => 1,
        Kind::Share => 2,
    };
    let mut record = [0; RECORD];
    for (bytes, number) in record.chunks_exact_mut(8).zip([kind, access.token, access.value, access.newest]) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    record
}

fn decode(record: &[u8]) -> io::Result<Access> {
    let number = |at: usize| {
        let bytes = record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or(io::ErrorKind::UnexpectedEof)
    };
    let kind = match number(0)? {
        0 => Kind::Read,
        1 => Kind::Write,
        _ => Kind::Share,
    };
    Ok(Access { kind, token: number(8)?, value: number(16)?, newest: number(24)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_token_is_kept_out_even_after_a_mere_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r");
        let mut resource = Resource::open(&path).unwrap();
        assert_eq!(resource.read(5).unwrap(), Ok(0));
        assert_eq!(resource.write(5, 1).unwrap(), Ok(1));
        let mut other = Resource::open(&path).unwrap();
        assert_eq!(other.read(7).unwrap(), Ok(1));
        assert_eq!(resource.write(5, 2).unwrap(), Err(StaleToken { presented: 5, newest: 7 }));
        assert_eq!(other.write(7, 2).unwrap(), Ok(2));
        let log: Vec<_> = Resource::log(&path).unwrap().iter().map(|access| (access.token, access.value)).collect();
        assert_eq!(log, [(5, 0), (5, 1), (7, 1), (7, 2)]);
    }

    #[test]
    fn who_shares_keeps_nobody_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut resource = Resource::open(&folder.path().join("r")).unwrap();
        assert_eq!(resource.share(9).unwrap(), Ok(0));
        assert_eq!(resource.share(8).unwrap(), Ok(0));
        assert_eq!(resource.write(7, 1).unwrap(), Ok(1));
        assert_eq!(resource.share(6).unwrap(), Err(StaleToken { presented: 6, newest: 7 }));
        assert_eq!(resource.share(8).unwrap(), Ok(1));
        assert_eq!(resource.read(7).unwrap(), Ok(1));
    }
}
