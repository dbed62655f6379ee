//! Settings of the server that void a promise.

use lock_core::{Finding, Result};
use redis::Value;

use crate::RedisLock;
use crate::connection::field;

impl RedisLock {
    pub(crate) async fn findings(&self) -> Result<Vec<Finding>> {
        let info = self.connection.ask(&redis::cmd("INFO")).await?;
        let info: String = crate::answers::read(info)?;
        let mut found = findings(&info);
        if field(&info, "aof_enabled") == Some("1") {
            found.extend(self.sync_finding().await);
        }
        Ok(found)
    }

    /// Where the right to ask is missing, nothing is found.
    async fn sync_finding(&self) -> Option<Finding> {
        let mut ask = redis::cmd("CONFIG");
        ask.arg("GET").arg("appendfsync");
        let answer: Value = self.connection.ask(&ask).await.ok()?;
        let answer: std::collections::HashMap<String, String> = crate::answers::read(answer).ok()?;
        let value = answer.get("appendfsync").filter(|value| *value != "always")?;
        Some(finding(
            format!("appendfsync={value}"),
            "exclusion over a crash of the server's host: the grants of the last moments are forgotten",
            "set appendfsync to always, or accept it",
        ))
    }
}

fn finding(setting: String, voids: &str, advice: &str) -> Finding {
    Finding { setting, voids: voids.to_owned(), advice: advice.to_owned() }
}

/// What `INFO` tells.
pub(crate) fn findings(info: &str) -> Vec<Finding> {
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
    if number("connected_slaves") > 0 && field(info, "min_slaves_good_slaves").is_none() {
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
        findings(info).into_iter().map(|finding| finding.setting).collect()
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
    }
}
