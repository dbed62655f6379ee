//! Settings and data of the servers that void a promise.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Background, Finding, Result, warn_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::ZookeeperLock;
use crate::options::Settings;
use crate::session::Session;

/// A lease that most would want to be possible: the default.
const USUAL: Duration = Duration::from_secs(30);

impl ZookeeperLock {
    pub(crate) async fn findings(&self) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        let longest = Session::connect(self.settings.clone(), Duration::from_secs(86_400), None).await?.lasts;
        if longest < USUAL {
            found.push(finding(
                format!("maxSessionTimeout={longest:?}"),
                "leases as long as usual: longer ones than this are refused",
                "raise maxSessionTimeout, or ask for shorter leases",
            ));
        }
        let hosts = &self.settings.hosts;
        if hosts.len() < 3 {
            found.push(finding(
                format!("servers={}", hosts.len()),
                "availability: where one of one or two servers is down, no lock can be taken",
                "run three servers or five, and name all of them in the URL",
            ));
        }
        // Who may not list them may not lock, either, and is told so there.
        let (strangers, strays) = self.foreign().await.unwrap_or_default();
        if let Some(stray) = strays.first() {
            found.push(finding(
                format!("node={stray}"),
                "that the lock can be had: it hangs on no session and never ends; whoever waits behind it is refused, and \
                 other programs wait for ever",
                "delete it if nobody needs it, with zkCli.sh or by oarlock evict",
            ));
        }
        if let Some(stranger) = strangers.first() {
            found.push(finding(
                format!("node={stranger}"),
                "exclusion from whoever made it: it is of another kind than a mutex's, and neither waits for the other",
                "have that program use Curator's InterProcessMutex or kazoo's Lock on this path, or another path",
            ));
        }
        found.extend(of_servers(&self.settings, self.sessions.shortest).await);
        Ok(found)
    }
}

/// Warns of what the servers' settings and data void, in the background: to ask each server would hold up connecting
/// where one of them is down.
pub(crate) fn warn_in_background(settings: &Arc<Settings>, shortest: Duration) -> Background {
    let (mut warning, settings) = (Background::default(), Arc::clone(settings));
    warning.start(async move { warn_of(&of_servers(&settings, shortest).await, &settings.servers) });
    warning
}

/// What each server tells of itself. By TLS it tells nothing.
async fn of_servers(settings: &Settings, shortest: Duration) -> Vec<Finding> {
    let hosts = if settings.is_tls() { &[][..] } else { &settings.hosts };
    let found = join_all(hosts.iter().map(|host| of_server(host, settings.timeout, shortest))).await;
    found.into_iter().flatten().collect()
}

async fn of_server(host: &str, timeout: Duration, shortest: Duration) -> Vec<Finding> {
    let mut found = Vec::new();
    match ask(host, "srvr", timeout).await {
        Some((answer, _)) if answer.contains("Mode: ") || answer.contains("whitelist") => {}
        _ => {
            found.push(finding(
                format!("server={host}"),
                "availability: it does not serve",
                "look at this server, and at its log",
            ));
            return found;
        }
    }
    if let Some((conf, us)) = ask(host, "conf", timeout).await {
        found.extend(tick_finding(&conf, shortest));
        if let Some((connections, _)) = ask(host, "cons", timeout).await {
            found.extend(connections_finding(host, &conf, &connections, us));
        }
    }
    if let Some((state, _)) = ask(host, "mntr", timeout).await {
        found.extend(data_finding(host, &state));
    }
    found
}

fn finding(setting: String, voids: &str, advice: &str) -> Finding {
    Finding::new(setting, voids.to_owned(), advice.to_owned())
}

/// What a server answers to a command in four letters, and as whom it knows us.
async fn ask(host: &str, command: &str, timeout: Duration) -> Option<(String, IpAddr)> {
    let asking = async {
        let mut stream = TcpStream::connect(host).await?;
        let us = stream.local_addr()?.ip();
        stream.write_all(command.as_bytes()).await?;
        let mut answer = String::new();
        // What goes on for longer is none of ZooKeeper's.
        stream.take(1 << 20).read_to_string(&mut answer).await?;
        std::io::Result::Ok((answer, us))
    };
    tokio::time::timeout(timeout, asking).await.ok()?.ok()
}

/// A number from a server's configuration.
fn number(conf: &str, name: &str) -> Option<u64> {
    conf.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?.trim().parse().ok()
}

/// A server takes so many connections from one host. At the last of them, a session that lost its own cannot come back.
fn connections_finding(host: &str, conf: &str, connections: &str, us: IpAddr) -> Option<Finding> {
    let most = number(conf, "maxClientCnxns").filter(|most| *most > 0)?;
    // Such as " /127.0.0.1:40002[1](queued=0,recved=12,...)", and an IPv6 address with all of its zeros.
    let address = |line: &str| line.trim().strip_prefix('/')?.split('[').next()?.rsplit_once(':')?.0.parse().ok();
    let ours = connections.lines().filter_map(address).filter(|address: &IpAddr| *address == us).count() as u64;
    (ours * 5 >= most * 4).then(|| {
        finding(
            format!("maxClientCnxns={most}, {ours} connections from {us} to {host}"),
            "that holds last over a broken connection: beyond so many, this server closes each new one from this host",
            "raise maxClientCnxns on all servers, or open fewer clients on this host",
        )
    })
}

/// A follower compares a checksum of its data with the leader's at each write, and counts since its start where they
/// differ. What it keeps or lacks then came with a snapshot of what was never agreed on, which a restart loads again.
fn data_finding(host: &str, state: &str) -> Option<Finding> {
    const COUNT: &str = "zk_digest_mismatches_count";
    let count = state.lines().find_map(|line| line.strip_prefix(COUNT))?.trim();
    (count != "0").then(|| {
        finding(
            format!("{COUNT}={count} at {host}"),
            "exclusion: its data are not the leader's; it may show a holder that is gone, or overlook one that holds and \
             grant the lock once more",
            "while the others run, stop this server, delete version-2 in its dataDir and dataLogDir, and start it (a \
             restart alone does not help); if all followers are named here, do that with the leader",
        )
    })
}

/// We take half of the shortest session for a tick.
fn tick_finding(conf: &str, shortest: Duration) -> Option<Finding> {
    let tick = number(conf, "tickTime")?;
    (Duration::from_millis(tick) > shortest / 2).then(|| {
        finding(
            format!("tickTime={tick}, sessions from {shortest:?} on"),
            "exclusion, for the moment in which a server is cut off from the others: it may report a session late by half a tick",
            "leave minSessionTimeout at two ticks or above",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_that_is_longer_than_we_take_it_for_is_found() {
        let conf = "clientPort=2181\ntickTime=2000\nmaxClientCnxns=60\n";
        assert!(tick_finding(conf, Duration::from_secs(4)).is_none());
        assert!(tick_finding(conf, Duration::from_secs(2)).unwrap().setting.contains("2000"));
        assert!(tick_finding("conf is not executed because it is not in the whitelist.", USUAL).is_none());
    }

    #[test]
    fn data_that_differ_are_found() {
        let state = |count: &str| format!("zk_server_state\tfollower\nzk_digest_mismatches_count\t{count}\nzk_x\t7\n");
        assert!(data_finding("h:2181", &state("0")).is_none());
        assert_eq!(data_finding("h:2181", &state("13")).unwrap().setting, "zk_digest_mismatches_count=13 at h:2181");
        assert!(data_finding("h:2181", "mntr is not executed because it is not in the whitelist.").is_none());
    }

    #[test]
    fn connections_that_are_nearly_all_are_found() {
        let us = IpAddr::from([127, 0, 0, 1]);
        let line = |number: usize| format!(" /127.0.0.1:{}[1](queued=0,recved=1,sent=1,sid=0x1)\n", 40_000 + number);
        let connections = |ours: usize| -> String {
            let others = " /10.0.0.7:40001[1](queued=0)\n /0:0:0:0:0:0:0:1:40001[1](queued=0)\n".to_owned();
            (0..ours).map(line).chain([others]).collect()
        };
        let found = |conf: &str, ours| connections_finding("h:2181", conf, &connections(ours), us);
        let conf = "clientPort=2181\nmaxClientCnxns=10\n";
        assert!(found(conf, 7).is_none());
        assert!(found(conf, 8).unwrap().setting.contains("maxClientCnxns=10, 8 connections from 127.0.0.1"));
        assert!(found("maxClientCnxns=0\n", 8).is_none());
        assert!(found("conf is not executed because it is not in the whitelist.", 8).is_none());
        let conf = "maxClientCnxns=1\n";
        assert!(connections_finding("h", conf, &connections(0), "::1".parse().unwrap()).is_some());
    }
}
