//! Settings of the server that void a promise.

use std::collections::HashMap;

use lock_core::{Error, ErrorKind, Finding, Result, warn_of};

use super::{MySql, MySqlLock, arguments};
use crate::server::{Again, Read, Server};

const CRASH: &str =
    "exclusion over a crash of the server: a grant that was answered may be gone afterwards, and the lock another's";

const LAGGING: &str = "exclusion over a failover: the last grants may be missing on the replica that takes over";

/// Settings, the values of which some void a promise, what that promise is, and what to set.
const SETTINGS: [(&str, &[&str], &str, &str); 7] = [
    ("innodb_flush_log_at_trx_commit", &["0", "2"], CRASH, "set innodb_flush_log_at_trx_commit=1"),
    ("innodb_doublewrite", &["OFF"], CRASH, "set innodb_doublewrite=ON"),
    (
        "sysdate_is_now",
        &["ON"],
        "exact leases: one that was waited for is counted from the beginning of the wait",
        "start the server without --sysdate-is-now",
    ),
    (
        "binlog_format",
        &["STATEMENT"],
        "exclusion over a failover: replicas compute other times than the primary",
        "set binlog_format=ROW",
    ),
    (
        "sync_binlog",
        &["0"],
        "exclusion over a failover after a crash of the server: a replica may lack, or have too much of, what was granted",
        "set sync_binlog=1",
    ),
    // MariaDB's and MySQL's.
    (
        "rpl_semi_sync_master_enabled",
        &["OFF"],
        LAGGING,
        "set rpl_semi_sync_master_enabled=ON, and replicas that confirm",
    ),
    (
        "rpl_semi_sync_source_enabled",
        &["OFF"],
        LAGGING,
        "set rpl_semi_sync_source_enabled=ON, and replicas that confirm",
    ),
];

/// What else has to be known of a server.
const OTHERS: [&str; 5] = [
    "log_bin",
    "wsrep_on",
    "wsrep_cluster_address",
    "group_replication_group_name",
    "group_replication_single_primary_mode",
];

impl MySqlLock {
    /// Logs the settings that void a promise.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for one of several primaries. Each decides by a clock of its own, and by rows of which the
    /// others may have newer ones.
    pub(super) async fn check_settings(&self) -> Result<()> {
        let settings = settings(&self.server, &names()).await?;
        refuse(&self.server, several_primaries(&settings))?;
        warn_of(&findings(&settings), &self.server.shown);
        Ok(())
    }

    pub(super) async fn findings(&self) -> Result<Vec<Finding>> {
        let mut found = findings(&settings(&self.server, &names()).await?);
        if self.hang_bell(rand::random_range(1..i64::MAX)).await?.is_none() {
            found.push(Finding::new(
                "KILL QUERY does not reach another session of the same user",
                "that waiters are woken: they look ten times a second",
                "connect to the server itself, and have all programs log in as the same user",
            ));
        }
        Ok(found)
    }
}

fn names() -> Vec<&'static str> {
    SETTINGS.iter().map(|(name, ..)| *name).chain(OTHERS).collect()
}

/// The server's settings of these names, as far as it has them.
pub(super) async fn settings(server: &Server<MySql>, names: &[&str]) -> Result<HashMap<String, String>> {
    let names: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
    let query = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", names.join(", "));
    let answer = server.run(&query.into(), arguments!(), Again::Yes).await?;
    answer.rows.iter().map(|row| Ok((row.read(0)?, row.read(1)?))).collect()
}

/// An error if there is what rules this server out.
pub(super) fn refuse(server: &Server<MySql>, found: Option<Finding>) -> Result<()> {
    let Some(Finding { setting, voids, advice, .. }) = found else { return Ok(()) };
    let message = format!("the server {} has {setting}, which voids {voids}; {advice}", server.shown);
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// Is it a server of a cluster of Galera?
pub(super) fn is_galera(settings: &HashMap<String, String>) -> bool {
    let set = |name: &str| settings.get(name).map(String::as_str).unwrap_or_default();
    set("wsrep_on") == "ON" && !set("wsrep_cluster_address").is_empty()
}

fn several_primaries(settings: &HashMap<String, String>) -> Option<Finding> {
    const VOIDS: &str = "exclusion: two of its primaries grant a lock at the same time";
    let set = |name: &str| settings.get(name).map(String::as_str).unwrap_or_default();
    if is_galera(settings) {
        return Some(Finding::new(
            "wsrep_on=ON (Galera)",
            VOIDS,
            "use a server of its own, with replicas, for the locks",
        ));
    }
    let in_group = !set("group_replication_group_name").is_empty();
    let finding = || {
        let setting = "group_replication_single_primary_mode=OFF";
        Finding::new(setting, VOIDS, "set group_replication_single_primary_mode=ON, and name the primary")
    };
    (in_group && set("group_replication_single_primary_mode") == "OFF").then(finding)
}

fn findings(settings: &HashMap<String, String>) -> Vec<Finding> {
    let set = |name: &str| settings.get(name).map(String::as_str).unwrap_or_default();
    let replicates = set("log_bin") == "ON";
    let counts = |name: &str| replicates || !(name.contains("binlog") || name.starts_with("rpl_"));
    SETTINGS
        .iter()
        .filter(|(name, bad, ..)| counts(name) && bad.contains(&set(name)))
        .map(|(name, _, voids, advice)| {
            Finding::new(format!("{name}={}", set(name)), (*voids).to_owned(), (*advice).to_owned())
        })
        .chain(several_primaries(settings))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_names_its_setting() {
        let found = |pairs: &[(&str, &str)]| {
            let settings = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            findings(&settings).into_iter().map(|finding| finding.setting).collect::<Vec<_>>()
        };
        let mut good = vec![("innodb_flush_log_at_trx_commit", "1"), ("sysdate_is_now", "OFF")];
        good.extend([("binlog_format", "STATEMENT"), ("rpl_semi_sync_master_enabled", "OFF")]);
        assert!(found(&good).is_empty(), "nothing is replicated");
        assert_eq!(found(&[("log_bin", "ON"), ("binlog_format", "STATEMENT")]), ["binlog_format=STATEMENT"]);
        let lagging = [("log_bin", "ON"), ("rpl_semi_sync_master_enabled", "OFF")];
        assert_eq!(found(&lagging), ["rpl_semi_sync_master_enabled=OFF"]);
        assert_eq!(found(&[("innodb_flush_log_at_trx_commit", "2")]), ["innodb_flush_log_at_trx_commit=2"]);
        assert_eq!(found(&[("sysdate_is_now", "ON")]), ["sysdate_is_now=ON"]);
        assert!(found(&[("wsrep_on", "ON"), ("wsrep_cluster_address", "")]).is_empty(), "it is in no cluster");
        assert_eq!(found(&[("wsrep_on", "ON"), ("wsrep_cluster_address", "gcomm://")]), ["wsrep_on=ON (Galera)"]);
        let group = |mode| [("group_replication_group_name", "aa"), ("group_replication_single_primary_mode", mode)];
        assert!(found(&group("ON")).is_empty());
        assert_eq!(found(&group("OFF")), ["group_replication_single_primary_mode=OFF"]);
    }
}
