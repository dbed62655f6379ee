//! Settings of the server that void a promise.

use lock_core::{Finding, Result};

use super::super::statements::the_row;
use super::{PostgresSessionLock, arguments};
use crate::server::{Again, Read};

impl PostgresSessionLock {
    pub(super) async fn findings(&self) -> Result<Vec<Finding>> {
        let answer = self.server.run(&self.statements.doctor, arguments!(), Again::Yes).await?;
        let row = the_row(&answer)?;
        Ok(findings(row.read("encoding")?, row.read("fsync")?, row.read("standbys")?))
    }
}

fn findings(encoding: &str, fsync: &str, standbys: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    if standbys > 0 {
        found.push(Finding::new(
            format!("mode=session, with {standbys} standbys"),
            "exclusion over a failover: the standby that takes over knows no session of the old primary",
            "use mode=row with a synchronous standby, or have the protected resource check fencing tokens",
        ));
    }
    if fsync == "off" {
        found.push(Finding::new(
            "fsync=off",
            "tokens that rise over a crash of the host: what they are counted from may fall back",
            "set fsync=on",
        ));
    }
    if encoding != "UTF8" {
        found.push(Finding::new(
            format!("server_encoding={encoding}"),
            "that every name can be locked",
            "use a database in UTF8",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_names_its_setting() {
        assert_eq!(findings("UTF8", "on", 0), []);
        for (found, setting) in [
            (findings("LATIN1", "on", 0), "LATIN1"),
            (findings("UTF8", "off", 0), "fsync"),
            (findings("UTF8", "on", 2), "2 standbys"),
        ] {
            assert!(found.len() == 1 && found[0].setting.contains(setting), "{found:?}");
        }
    }
}
