//! Settings of the server that void a promise.

use std::collections::HashMap;

use futures_util::future::join_all;
use lock_core::{ErrorKind, Finding, Result, warn_of};

use crate::RedisLock;
use crate::answers::read;
use crate::connection::{Connection, field};
use crate::error;

impl RedisLock {
    /// Refuses what is too old or no Redis, and logs what is found. In a cluster, it is enough that one node can be
    /// asked.
    pub(crate) async fn check(&self) -> Result<()> {
        let servers = self.servers.all().await?;
        let infos = join_all(servers.iter().map(|server| server.info())).await;
        if infos.iter().all(Result::is_err) {
            return infos.into_iter().collect::<Result<Vec<_>>>().map(drop);
        }
        for (server, info) in servers.iter().zip(infos.into_iter().flatten()) {
            if too_old(&info) {
                return Err(error::too_old(&server.target));
            }
            serves_undeclared(server).await?;
            warn_of(&findings(&info, self.client.replicas), &server.target);
        }
        Ok(())
    }

    /// Of each server that keeps locks; in a cluster, with its address.
    pub(crate) async fn findings(&self) -> Result<Vec<Finding>> {
        let mut all = Vec::new();
        for server in self.servers.all().await? {
            let info: String = read(server.ask(&redis::cmd("INFO")).await?)?;
            let mut found = findings(&info, self.client.replicas);
            if field(&info, "aof_enabled") == Some("1")
                && config(&server, "appendfsync").await.is_some_and(|value| value != "always")
            {
                found.push(finding(
                    "appendfsync is not always".to_owned(),
                    "exclusion over a crash of the server's host: the grants of the last moments are forgotten",
                    "set appendfsync to always, or accept it",
                ));
            }
            if field(&info, "cluster_enabled") == Some("1") {
                if config(&server, "cluster-require-full-coverage").await.as_deref() == Some("yes") {
                    found.push(finding(
                        "cluster-require-full-coverage=yes".to_owned(),
                        "that names on other nodes go on when one is lost: all of the cluster stops",
                        "set cluster-require-full-coverage to no",
                    ));
                }
                found
                    .iter_mut()
                    .for_each(|finding| finding.setting = format!("{}: {}", server.target, finding.setting));
            }
            all.extend(found);
        }
        Ok(all)
    }
}

/// A script that serves a line looks at the keys of clients that it was not called with. A look-alike that forbids that
/// is known now, and not when a lock is first contended.
async fn serves_undeclared(server: &Connection) -> Result<()> {
    let mut probe = redis::cmd("EVAL");
    probe.arg("return redis.call('EXISTS', 'oarlock-client:' .. ARGV[1])").arg(0).arg("nobody");
    match server.ask(&probe).await {
        Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Unsupported) => Err(error),
        // In a cluster, the key is on one node alone. And what cannot be asked now shows at the first lock.
        _ => Ok(()),
    }
}

/// A setting; where the right to ask is missing, none.
async fn config(server: &Connection, name: &str) -> Option<String> {
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg(name);
    let mut answer: HashMap<String, String> = read(server.ask(&ask).await.ok()?).ok()?;
    answer.remove(name)
}

/// Older than 6.2, whose `SET` answers what was there before.
fn too_old(info: &str) -> bool {
    let mut parts = field(info, "redis_version").unwrap_or_default().split('.').map(str::parse::<u32>);
    matches!((parts.next(), parts.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (6, 2))
}

fn finding(setting: String, voids: &str, advice: &str) -> Finding {
    Finding::new(setting, voids.to_owned(), advice.to_owned())
}

/// What `INFO` tells.
fn findings(info: &str, replicas: usize) -> Vec<Finding> {
    let number = |name| field(info, name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let mut found = Vec::new();
    if let Some(policy) = field(info, "maxmemory_policy").filter(|policy| *policy != "noeviction") {
        found.push(finding(
            format!("maxmemory-policy={policy}"),
            "exclusion: when the memory is full, the server drops locks that are held",
            "set maxmemory-policy to noeviction, or give the locks a server of their own",
        ));
    }
    if number("aof_enabled") == 0 {
        found.push(finding(
            "appendonly=no".to_owned(),
            "exclusion over a restart of the server: it forgets who holds what",
            "set appendonly to yes",
        ));
    }
    if field(info, "role").is_some_and(|role| role != "master") {
        found.push(finding(
            "role=replica".to_owned(),
            "everything: a replica refuses writes",
            "name the primary in the URL",
        ));
    }
    let connected = number("connected_slaves");
    if connected < replicas as u64 {
        found.push(finding(
            format!("replicas={replicas}, and {connected} connected"),
            "that anything is granted: a grant counts only when so many replicas have it",
            "connect more replicas, or lower replicas in the URL",
        ));
    }
    if connected > 0 && field(info, "min_slaves_good_slaves").is_none() {
        found.push(finding(
            "min-replicas-to-write=0".to_owned(),
            "exclusion over a fail-over: a primary that is cut off from its replicas goes on granting",
            "set min-replicas-to-write and min-replicas-max-lag to 1 or more; a fail-over can still lose the last grants",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(info: &str) -> Vec<String> {
        findings(info, 0).into_iter().map(|finding| finding.setting).collect()
    }

    #[test]
    fn each_setting_is_found() {
        let good = "role:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:0\r\n";
        assert_eq!(settings(good), [""; 0]);
        assert_eq!(settings(&good.replace("noeviction", "volatile-lru")), ["maxmemory-policy=volatile-lru"]);
        assert_eq!(settings(&good.replace("aof_enabled:1", "aof_enabled:0")), ["appendonly=no"]);
        assert_eq!(settings(&good.replace("role:master", "role:slave")), ["role=replica"]);
        let replicated = good.replace("connected_slaves:0", "connected_slaves:1");
        assert_eq!(settings(&replicated), ["min-replicas-to-write=0"]);
        assert_eq!(settings(&format!("{replicated}min_slaves_good_slaves:1\r\n")), [""; 0]);
        assert_eq!(findings(good, 1)[0].setting, "replicas=1, and 0 connected");
    }

    #[test]
    fn old_servers_are_known() {
        let version = |version| too_old(&format!("# Server\r\nredis_version:{version}\r\n"));
        assert!(version("5.0.14") && version("6.0.16"));
        assert!(!version("6.2.0") && !version("7.0.15") && !version("10.0.1"));
    }
}
