//! Which process answers at the server's address.

use lock_core::{HostPort, Result};

use crate::error;
use crate::wire::{Commands, Reply};

/// The oldest that has the meta commands as they are used here.
const OLDEST: (u32, u32, u32) = (1, 6, 13);

/// A process of the server: another one knows nothing of what this one kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pid: u64,
    /// When it was started, in seconds by its own clock. In containers, all processes have the same id.
    started: u64,
}

/// What is asked first.
pub(crate) fn greet() -> Commands {
    let mut commands = Commands::default();
    commands.statistics("");
    commands.statistics("settings");
    commands
}

/// Who is there, and the second that it is there.
///
/// # Errors
/// [`ErrorKind`](lock_core::ErrorKind) `Refused` and `Unsupported` for a server that cannot keep these locks.
pub(crate) fn understand(replies: Vec<Reply>, address: &HostPort) -> Result<(Process, u64)> {
    let mut replies = replies.into_iter();
    let mut next = || match replies.next() {
        Some(Reply::List(lines)) => Ok(Statistics(lines)),
        Some(Reply::Refused(why)) => Err(error::refused(&why)),
        _ => Err(error::no_memcached(address, "it tells nothing of itself")),
    };
    let (general, settings) = (next()?, next()?);
    if settings.text("cas_enabled") == Some("no") {
        return Err(error::without_cas(address));
    }
    let version = general.text("version").unwrap_or_default();
    if is_too_old(version) {
        return Err(error::too_old(address, version));
    }
    let number = |name| general.number(name).ok_or_else(|| error::no_memcached(address, "it tells no process"));
    let (pid, second) = (number("pid")?, number("time")?);
    Ok((Process { pid, started: second.saturating_sub(number("uptime")?) }, second))
}

/// A version that is not told in numbers is some other program's, which may do.
fn is_too_old(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let Some(first) = numbers.next() else { return false };
    (first, numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) < OLDEST
}

/// What a server tells of itself, as `name value`.
#[derive(Debug)]
pub(crate) struct Statistics(pub(crate) Vec<String>);

impl Statistics {
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(general: &str, settings: &str) -> Result<(Process, u64)> {
        let list = |text: &str| Reply::List(text.split(", ").map(str::to_owned).collect());
        let address = HostPort { host: "h".to_owned(), port: 1 };
        understand(vec![list(general), list(settings)], &address)
    }

    #[test]
    fn a_process_is_known_by_its_id_and_its_start() {
        let first = understood("pid 7, uptime 3, time 1003, version 1.6.18", "cas_enabled yes").unwrap();
        let later = understood("pid 7, uptime 9, time 1009, version 1.6.18", "cas_enabled yes").unwrap();
        assert_eq!((first.0, first.1, later.1), (later.0, 1003, 1009));
        let another = understood("pid 7, uptime 1, time 1009, version 1.6.18", "cas_enabled yes").unwrap();
        assert_ne!(another.0, first.0);
    }

    #[test]
    fn what_cannot_keep_locks_is_refused() {
        for (general, settings) in [
            ("pid 7, uptime 3, time 1003, version 1.6.18", "cas_enabled no"),
            ("pid 7, uptime 3, time 1003, version 1.5.22", "cas_enabled yes"),
            ("pid 7, time 1003, version 1.6.18", "cas_enabled yes"),
            ("", ""),
        ] {
            assert!(understood(general, settings).is_err(), "{general}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, old) in [("1.6.9", true), ("1.6.13", false), ("1.10.0", false), ("2", false), ("x", false)] {
            assert_eq!(is_too_old(version), old, "{version}");
        }
    }
}
