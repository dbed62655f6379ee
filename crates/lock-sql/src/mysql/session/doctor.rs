//! Settings of the server that void a promise.

use std::collections::HashMap;

use lock_core::{ErrorKind, Finding, Result, warn_of};

use super::{MySqlSessionLock, arguments};
use crate::mysql::doctor::{is_galera, refuse, settings};
use crate::server::{Again, Read};

/// What has to be known of a server.
const NAMES: [&str; 9] = [
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "log_bin",
    "binlog_format",
    "max_heap_table_size",
    "max_connections",
    "wsrep_on",
    "wsrep_cluster_address",
    "group_replication_group_name",
];

/// As much memory as a server has for a table unless it is told otherwise. A note takes less than two kilobytes.
const MEMORY: u64 = 16 << 20;

impl MySqlSessionLock {
    /// Logs the settings that void a promise.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a server of a group, of which each has locks of its own.
    pub(super) async fn check_settings(&self) -> Result<()> {
        let settings = settings(&self.server, &NAMES).await?;
        refuse(&self.server, of_a_group(&settings))?;
        warn_of(&findings(&settings, self.most_connections().await?), &self.server.shown);
        Ok(())
    }

    pub(super) async fn findings(&self) -> Result<Vec<Finding>> {
        let mut found = findings(&settings(&self.server, &NAMES).await?, self.most_connections().await?);
        match self.try_a_session().await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Unsupported => found.push(Finding::new(
                "sessions cannot be told apart or ended",
                "that a request that was given up takes no lock later",
                "go past what lends connections, or use mode=row",
            )),
            Err(error) => return Err(error),
        }
        Ok(found)
    }

    /// As many as there ever were at once.
    async fn most_connections(&self) -> Result<u64> {
        let query = "SHOW GLOBAL STATUS WHERE Variable_name = 'Max_used_connections'";
        let answer = self.server.run(&query.into(), arguments!(), Again::Yes).await?;
        let most = answer.rows.first().map(|row| row.read::<String, _>(1)).transpose()?;
        Ok(most.and_then(|most| most.parse().ok()).unwrap_or_default())
    }
}

fn of_a_group(settings: &HashMap<String, String>) -> Option<Finding> {
    const VOIDS: &str =
        "exclusion: each server of the group has locks of its own, and nothing tells the others of them";
    let set = |name: &str| settings.get(name).map(String::as_str).unwrap_or_default();
    let advice = "use mode=row, or a server of its own for the locks";
    if is_galera(settings) {
        return Some(Finding::new("wsrep_on=ON (Galera)", VOIDS, advice));
    }
    let group = set("group_replication_group_name");
    (!group.is_empty()).then(|| Finding::new("group_replication_group_name (Group Replication)", VOIDS, advice))
}

fn findings(settings: &HashMap<String, String>, most_connections: u64) -> Vec<Finding> {
    let set = |name: &str| settings.get(name).map(String::as_str).unwrap_or_default();
    let number = |name: &str| set(name).parse::<u64>().ok();
    let mut found = Vec::new();
    if set("log_bin") == "ON" {
        found.push(Finding::new(
            "mode=session, with log_bin=ON",
            "exclusion over a failover: a replica that takes over knows no session of the old primary; that no hold \
             waits for the disk, for its note is written to the log; and replication, which stops at a replica that \
             restarted, for that has no notes any more",
            "use mode=row, or have the protected resource check fencing tokens, and set slave_exec_mode=IDEMPOTENT on \
             replicas; without replicas, set skip_log_bin",
        ));
        if set("binlog_format") == "STATEMENT" {
            found.push(Finding::new(
                "binlog_format=STATEMENT",
                "a log of errors that can be read: each note is warned of as an unsafe statement",
                "set binlog_format=ROW or MIXED",
            ));
        }
    }
    for (name, bad, good) in
        [("innodb_flush_log_at_trx_commit", &["0", "2"][..], "1"), ("innodb_doublewrite", &["OFF"][..], "ON")]
    {
        if bad.contains(&set(name)) {
            found.push(Finding::new(
                format!("{name}={}", set(name)),
                "tokens that rise over a crash of the host: what they are counted from may fall back",
                format!("set {name}={good}"),
            ));
        }
    }
    if let Some(memory) = number("max_heap_table_size").filter(|memory| *memory < MEMORY) {
        found.push(Finding::new(
            format!("max_heap_table_size={memory}"),
            format!("that more than {} locks can be held at once", memory / 2000),
            format!("set max_heap_table_size={MEMORY} or more, and have the server start anew"),
        ));
    }
    if let Some(most) = number("max_connections").filter(|most| most_connections * 10 >= most * 9) {
        found.push(Finding::new(
            format!("max_connections={most}, of which {most_connections} were in use at once"),
            "that more names can be held or waited for: each takes a connection",
            "raise max_connections",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn each_finding_names_its_setting() {
        let found = |pairs: &[(&str, &str)], most| findings(&settings(pairs), most);
        let good = [
            ("innodb_flush_log_at_trx_commit", "1"),
            ("innodb_doublewrite", "ON"),
            ("log_bin", "OFF"),
            ("binlog_format", "STATEMENT"),
            ("max_heap_table_size", "16777216"),
            ("max_connections", "100"),
        ];
        assert_eq!(found(&good, 89), []);
        for (bad, most, setting) in [
            (("innodb_flush_log_at_trx_commit", "2"), 1, "innodb_flush_log_at_trx_commit=2"),
            (("innodb_doublewrite", "OFF"), 1, "innodb_doublewrite=OFF"),
            (("log_bin", "ON"), 1, "log_bin=ON"),
            (("max_heap_table_size", "16384"), 1, "max_heap_table_size=16384"),
            (("max_connections", "100"), 90, "max_connections=100"),
        ] {
            let found = found(&[bad], most);
            assert!(found.len() == 1 && found[0].setting.contains(setting), "{found:?}");
        }
        let unsafe_statements = found(&[("log_bin", "ON"), ("binlog_format", "STATEMENT")], 1);
        assert_eq!(unsafe_statements[1].setting, "binlog_format=STATEMENT");
    }

    #[test]
    fn servers_of_a_group_are_refused() {
        let group = |pairs: &[(&str, &str)]| of_a_group(&settings(pairs)).map(|found| found.setting);
        assert_eq!(group(&[("wsrep_on", "ON"), ("wsrep_cluster_address", "")]), None);
        let galera = [("wsrep_on", "ON"), ("wsrep_cluster_address", "gcomm://")];
        assert_eq!(group(&galera).as_deref(), Some("wsrep_on=ON (Galera)"));
        assert_eq!(group(&[("group_replication_group_name", "")]), None);
        assert!(group(&[("group_replication_group_name", "aa")]).unwrap().contains("Group Replication"));
    }
}
