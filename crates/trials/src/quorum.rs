//! Quorums as the torture sees them: three stores, all of which are struck, and one of which is empty each time it is
//! started again.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use conformance_tests::torture::{Server, Site};
use rusqlite::Connection;
use test_servers::{PostgresServer, RedisServer};

use crate::torture::Killed;

/// The longest lease of those who are tortured: for so long, a store that restarted empty does not count.
pub(crate) const REJOIN_AFTER: Duration = Duration::from_secs(1);

fn url(stores: impl IntoIterator<Item = String>) -> String {
    let stores: Vec<_> = stores.into_iter().map(|store| format!("store={store}")).collect();
    format!("quorum:?{}&timeout=2s&rejoin_after={}ms", stores.join("&"), REJOIN_AFTER.as_millis())
}

/// Three servers. One saves nothing; the others save all.
pub(crate) fn redis() -> Site {
    let emptied = RedisServer::start_with(&[]).apart().into_iter();
    // A quorum knows all the same what it granted.
    let mut servers: Vec<_> =
        emptied.map(|server| Box::new(Killed { server, is_one_of_several: true }) as Box<_>).collect();
    for _ in 0..2 {
        servers.extend(RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).apart());
    }
    Site::of(servers, |addresses| url(addresses.iter().map(|address| format!("redis://{address}"))))
}

/// Three servers that save all.
pub(crate) fn postgres() -> Site {
    let servers = (0..3).flat_map(|_| PostgresServer::start().apart()).collect();
    Site::of(servers, |addresses| url(addresses.iter().map(|address| PostgresServer::url_at(*address))))
}

/// Three files. The first is removed where a server would be killed.
pub(crate) fn sqlite(folder: &Path) -> Site {
    let files = [0, 1, 2].map(|number| {
        let folder = folder.join(number.to_string());
        std::fs::create_dir_all(&folder).expect("a folder for a store");
        folder
    });
    let servers = files.iter().enumerate().map(|(number, folder)| {
        Box::new(File { folder: folder.clone(), is_removed: number == 0, writer: None }) as Box<_>
    });
    let servers = servers.collect();
    Site::of(servers, move |_| url(files.iter().map(|folder| format!("sqlite:{}", folder.join(LOCKS).display()))))
}

const LOCKS: &str = "locks.db";

/// A file of locks, struck as a server is: one that is paused cannot be written to, and so is one that is killed,
/// unless it is removed then.
struct File {
    folder: PathBuf,
    is_removed: bool,
    writer: Option<Connection>,
}

impl File {
    /// With all that stands beside it, and at once: who has it open goes on with the old one.
    fn remove(&self) {
        let away = self.folder.with_extension("old");
        if away.exists() {
            std::fs::remove_dir_all(&away).expect("an old store can be removed");
        }
        std::fs::rename(&self.folder, &away).expect("a store can be moved");
        std::fs::create_dir(&self.folder).expect("a folder for a store");
    }
}

impl Server for File {
    /// Nothing is there.
    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 1).into()
    }

    /// A quorum knows what it granted.
    fn keeps(&self) -> bool {
        true
    }

    fn is_emptied(&self) -> bool {
        self.is_removed
    }

    fn pause(&mut self) {
        let writer = Connection::open(self.folder.join(LOCKS)).expect("the file can be opened");
        writer.busy_timeout(Duration::from_secs(60)).expect("a time");
        writer.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes for long");
        self.writer = Some(writer);
    }

    fn resume(&mut self) {
        self.writer = None;
    }

    fn kill(&mut self) {
        if self.is_removed { self.remove() } else { self.pause() }
    }

    fn shut_down(&mut self) {
        self.kill();
    }

    fn start(&mut self) {
        self.resume();
    }
}
