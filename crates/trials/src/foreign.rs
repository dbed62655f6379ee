//! Other libraries' locks beside ours in the torture, by their names.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use conformance_tests::torture::{PERMITS, Program, Site, TortureOptions};
use oarlock::Mode;
use test_servers::{curator_mutex, etcdctl_lock, go_mutex, kazoo_locks, redis_py_lock};

/// One of them: its name, the store whose locks it takes, and how its program is started there, whose sessions last for
/// so long.
type Foreign = (&'static str, &'static str, fn(&str, Duration) -> Program);

const FOREIGN: [Foreign; 12] = [
    ("kazoo", "zookeeper", |servers, session| kazoo(servers, session, CURATORS_MUTEX, &[LOCK])),
    ("kazoo-rw", "zookeeper", |servers, session| kazoo(servers, session, CURATORS_MUTEX, &[READ, WRITE])),
    ("kazoo-rw", "zookeeper-rw", |servers, session| {
        kazoo(servers, session, ["__WRIT__ __READ__", "__WRIT__"], &[READ, WRITE])
    }),
    ("curator", "zookeeper", |servers, session| curator(servers, session, &[LOCK])),
    ("curator-rw", "zookeeper-rw", |servers, session| curator(servers, session, &[READ, WRITE])),
    ("curator-revoker", "zookeeper", |servers, session| curator(servers, session, &[LOCK, REVOKE])),
    ("curator-semaphore", "zookeeper", |servers, session| curator(servers, session, &[ONE, TWO])),
    ("go", "etcd", |members, session| program(go_mutex(), &[members, &seconds(session)], "oarlock/", &[LOCK])),
    ("go-election", "etcd", |members, session| {
        program(go_mutex(), &[members, &seconds(session)], "oarlock/", &[CAMPAIGN])
    }),
    ("etcdctl", "etcd", |members, session| program(etcdctl_lock(), &[members, &seconds(session)], "oarlock/", &[LOCK])),
    ("redis-py", "redis", redis_py),
    ("redis-py", "redis-forgetful", redis_py),
];

type Order = (&'static str, Mode);
const LOCK: Order = ("lock", Mode::Exclusive);
const REVOKE: Order = ("revoke", Mode::Exclusive);
const CAMPAIGN: Order = ("campaign", Mode::Exclusive);
const WRITE: Order = ("write", Mode::Exclusive);
const READ: Order = ("read", Mode::Shared);
const ONE: Order = ("permits", Mode::Permits { take: 1, of: PERMITS });
const TWO: Order = ("permits", Mode::Permits { take: 2, of: PERMITS });

/// By which nodes kazoo's writers wait, and by which its readers do, where ours are named as Curator's mutex names them.
const CURATORS_MUTEX: [&str; 2] = ["-lock-", "[0-9]-lock-"];

fn kazoo(servers: &str, session: Duration, [writers, readers]: [&str; 2], orders: &[Order]) -> Program {
    program(kazoo_locks(), &[servers, writers, readers, &millis(session)], "/oarlock/", orders)
}

fn curator(servers: &str, session: Duration, orders: &[Order]) -> Program {
    program(curator_mutex(), &[servers, &millis(session)], "/oarlock/", orders)
}

fn redis_py(server: &str, time: Duration) -> Program {
    program(redis_py_lock(), &[server, &millis(time)], "oarlock:", &[LOCK])
}

fn program(mut command: Command, arguments: &[&str], names: &str, orders: &[Order]) -> Program {
    Program::of(command.args(arguments), names, orders)
}

fn millis(session: Duration) -> String {
    session.as_millis().to_string()
}

fn seconds(session: Duration) -> String {
    session.as_secs().to_string()
}

/// Whose locks can be taken at this backend.
pub(crate) fn known(backend: &str) -> Vec<String> {
    FOREIGN.iter().filter(|(_, store, _)| *store == backend).map(|(name, ..)| (*name).to_owned()).collect()
}

/// The site with these others, who take the places of half of our workers, and of more if there are more of them.
pub(crate) fn beside(
    mut site: Site,
    backend: &str,
    names: &[String],
    torture: &mut TortureOptions,
) -> Result<Site, String> {
    if names.is_empty() {
        return Ok(site);
    }
    let named = |name: &String| {
        FOREIGN.iter().find(|(known, store, _)| known == name && *store == backend).ok_or_else(|| {
            let known: Vec<_> = FOREIGN.iter().map(|(known, store, _)| format!("{known} of {store}")).collect();
            format!("--with: nothing is known of {name:?} of {backend}, but of {}", known.join(", "))
        })
    };
    let chosen = names.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    let theirs = chosen.len().max(torture.workers / 2);
    torture.workers = torture.workers.saturating_sub(theirs).max(1);
    torture.names = torture.names.max(chosen.len());
    let session = torture.lease;
    for (name, _, program) in chosen.into_iter().cycle().take(theirs) {
        let listed = |there: &[SocketAddr]| there.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        site = site.beside(name, move |there| program(&listed(there), session));
    }
    Ok(site)
}
