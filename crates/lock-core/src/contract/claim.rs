//! Who asks for what: the owner of one acquisition, and the claim that it makes.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SysRng;
use rand::{Rng, TryRng};
use uuid::Uuid;

use crate::contract::{Error, ErrorKind, LockName, LockValue, Mode, Result};

/// Before the owner of a kept hold.
const KEPT: &str = "kept#";

/// The owner of one acquisition, `label@host:pid#uuid`, new for each of them and stored in the backend as it is.
///
/// Whoever knows the whole text can release the lock, so [`Display`](fmt::Display) and `Debug` show only the first
/// eight digits of its 128 random bits; only [`OwnerId::as_str`] shows all. Text found in a store that another library
/// wrote is an owner as well, one without parts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// An owner as found in a store.
    pub fn from_store(text: &str) -> Self {
        Self(text.into())
    }

    /// All of it, as it is stored. A secret: do not log it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Who has the hold in the store after this owner [kept](crate::DistributedLock::keep) it: nobody's claim has this owner, so
    /// that nobody renews or releases it. No text of ours begins so otherwise, since a label has no `#`.
    #[must_use]
    pub fn kept(&self) -> Self {
        Self([KEPT, &self.0].concat().into())
    }

    /// The owner that kept the hold, if this is one that has it since.
    pub fn before_it_kept(&self) -> Option<Self> {
        self.0.strip_prefix(KEPT).map(|owner| Self(owner.into()))
    }

    fn parts(&self) -> Option<(&str, &str, &str, &str)> {
        let (rest, uuid) = self.0.rsplit_once('#')?;
        // What only looks like one of ours may be secret all over.
        Uuid::try_parse(uuid).ok()?;
        let (rest, pid) = rest.rsplit_once(':')?;
        let (label, host) = rest.rsplit_once('@')?;
        Some((label, host, pid, uuid))
    }

    /// The label that the application gave itself.
    pub fn label(&self) -> Option<&str> {
        self.parts().map(|parts| parts.0)
    }

    /// The host it runs on.
    pub fn host(&self) -> Option<&str> {
        self.parts().map(|parts| parts.1)
    }

    /// Its process id on that host.
    pub fn pid(&self) -> Option<u32> {
        self.parts().and_then(|parts| parts.2.parse().ok())
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            Some((label, host, pid, uuid)) => write!(f, "{label}@{host}:{pid}#{}", uuid.get(..8).unwrap_or_default()),
            None => {
                // Another library's value may be its secret: show no more than half of it.
                let shown = self.0.chars().count().min(16) / 2;
                write!(f, "{}…", self.0.chars().take(shown).collect::<String>())
            }
        }
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

thread_local! {
    /// Where owner ids are put together.
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Draws owner ids: everything of them that stays the same in a process.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    prefix: Arc<str>,
}

impl Identity {
    /// # Errors
    /// [`ErrorKind::Invalid`] if the label is empty, longer than 64 bytes, or has a control character, `@` or `#`.
    pub(crate) fn new(label: &str) -> Result<Self> {
        if label.is_empty() || label.len() > 64 || label.chars().any(|c| c.is_control() || matches!(c, '@' | '#')) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{label:?} cannot be a label: it has 1 to 64 bytes without control characters, `@` and `#`"),
            ));
        }
        let host = host().replace(|c: char| c.is_control(), "_");
        Ok(Self { prefix: format!("{label}@{host}:{}#", std::process::id()).into() })
    }

    /// The label of who gave none: the program's name.
    pub(crate) fn default_label() -> String {
        let program = std::env::args_os().next().unwrap_or_default();
        let stem = std::path::Path::new(&program).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let label: String = stem.chars().filter(|c| !c.is_control() && !matches!(c, '@' | '#')).take(16).collect();
        if label.is_empty() { "oarlock".to_owned() } else { label }
    }

    /// An owner that nobody had before, for a store within the process or outside it.
    pub(crate) fn draw(&self, within: bool) -> OwnerId {
        // All 128 bits are random, so this has the form of a UUID but no version.
        let mut buffer = Uuid::encode_buffer();
        // A store within the process is copied with what the generator draws next, and no two copies share one.
        let uuid = Uuid::from_bytes(if within { rand::random() } else { random() });
        let uuid = uuid.hyphenated().encode_lower(&mut buffer);
        TEXT.with_borrow_mut(|text| {
            text.clear();
            text.extend([&*self.prefix, uuid]);
            OwnerId::from_store(text)
        })
    }
}

/// The machine's name.
#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The machine's name, as Windows tells each program.
#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".to_owned())
}

/// From the operating system, each time: what a generator in memory draws next, it draws in each copy of a machine that
/// is restored from one snapshot.
fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    if SysRng.try_fill_bytes(&mut bytes).is_err() {
        rand::rng().fill_bytes(&mut bytes);
    }
    bytes
}

/// What is asked of a backend: this owner wants this lock for so long. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The lock.
    pub name: LockName,
    /// Who asks: an owner of this one acquisition, never used again.
    pub owner: OwnerId,
    /// How long a grant or a renewal lasts.
    pub lease: Duration,
    /// Must it be first come, first served across processes, also where that costs speed?
    pub fair: bool,
    /// What everybody sees with the hold from the grant on. [`proclaim`](crate::DistributedLock::proclaim) changes it in
    /// the store, and not here.
    pub value: Option<LockValue>,
    /// How the lock is wanted: one of the [`modes`](crate::Capabilities::modes) of the store.
    pub mode: Mode,
}

impl Claim {
    /// A claim to the lock alone that is not `fair` and shows nothing.
    pub fn new(name: LockName, owner: OwnerId, lease: Duration) -> Self {
        Self { name, owner, lease, fair: false, value: None, mode: Mode::Exclusive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_readable_and_hides_its_secret() {
        let owner = Identity::new("billing").unwrap().draw(false);
        assert_eq!(owner.label(), Some("billing"));
        assert_eq!(owner.pid(), Some(std::process::id()));
        assert!(owner.host().is_some());
        let uuid = owner.as_str().rsplit('#').next().unwrap();
        assert_eq!(uuid.len(), 36);
        for shown in [format!("{owner}"), format!("{owner:?}")] {
            assert!(shown.starts_with("billing@") && !shown.contains(uuid), "{shown}");
        }
    }

    #[test]
    fn owners_are_never_the_same() {
        let identity = Identity::new("x").unwrap();
        let drawn: std::collections::HashSet<_> = (0..10_000).map(|_| identity.draw(false)).collect();
        assert_eq!(drawn.len(), 10_000);
    }

    #[test]
    fn foreign_owners_have_no_parts() {
        let owner = OwnerId::from_store("4f1c2d3e-secret");
        assert_eq!((owner.label(), owner.pid()), (None, None));
        assert!(!format!("{owner}").contains("secret"));
        let nearly = OwnerId::from_store("a@b:1#secret");
        assert!(nearly.label().is_none() && !format!("{nearly}").contains("secret"));
    }

    #[test]
    fn an_owner_is_known_after_it_kept_its_hold() {
        let owner = Identity::new("kept").unwrap().draw(false);
        assert_ne!(owner.kept(), owner);
        assert_eq!(owner.kept().before_it_kept(), Some(owner.clone()));
        assert_eq!(owner.before_it_kept(), None);
    }

    #[test]
    fn labels_are_checked() {
        for bad in ["", "a@b", "a#b", "a\n", &"x".repeat(65)] {
            assert!(Identity::new(bad).is_err(), "{bad:?}");
        }
        Identity::new(&Identity::default_label()).unwrap();
    }
}
