//! Settings of the server that void a promise.

use lock_core::{Finding, Result};

use super::statements::the_row;
use super::{PostgresLock, arguments};
use crate::server::{Again, Read};

/// What the server says of itself.
#[derive(Clone, Debug)]
struct Settings {
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    synchronous_standbys: String,
    standbys: i64,
    encoding: String,
    persistence: String,
    pooler: bool,
    /// The schema of our tables; none if that is what was asked for.
    found_in: Option<String>,
    /// It is named after its user.
    own: bool,
    /// The schemas that have such tables.
    schemas: Vec<String>,
}

impl PostgresLock {
    pub(super) async fn findings(&self) -> Result<Vec<Finding>> {
        let answer = self.server.run(&self.statements.doctor, arguments!(), Again::Yes).await?;
        let row = the_row(&answer)?;
        let settings = Settings {
            fsync: row.read("fsync")?,
            full_page_writes: row.read("full_page_writes")?,
            synchronous_commit: row.read("synchronous_commit")?,
            synchronous_standbys: row.read("synchronous_standbys")?,
            standbys: row.read("standbys")?,
            encoding: row.read("encoding")?,
            persistence: row.read("persistence")?,
            pooler: self.listens.is_none(),
            found_in: (!self.schema_is_chosen).then(|| self.schema.clone()),
            own: row.read("own")?,
            schemas: row.read("schemas")?,
        };
        Ok(settings.findings())
    }
}

impl Settings {
    fn findings(&self) -> Vec<Finding> {
        const CRASH: &str = "exclusion over a crash of the server: a grant that was answered may be gone afterwards, and the \
                             lock another's";
        const FAILOVER: &str = "exclusion over a failover: the standby that takes over may lack the last grants, and grant \
                                these locks again";
        let finding =
            |setting: String, voids: &str, advice: &str| Finding::new(setting, voids.to_owned(), advice.to_owned());
        let mut found = Vec::new();
        for (name, value) in [("fsync", &self.fsync), ("full_page_writes", &self.full_page_writes)] {
            if value == "off" {
                found.push(finding(format!("{name}=off"), CRASH, &format!("set {name}=on")));
            }
        }
        let (commit, names) = (self.synchronous_commit.as_str(), self.synchronous_standbys.as_str());
        if commit == "off" {
            found.push(finding("synchronous_commit=off".to_owned(), CRASH, "set synchronous_commit=on"));
        } else if commit == "local" && !names.is_empty() {
            found.push(finding("synchronous_commit=local".to_owned(), FAILOVER, "set synchronous_commit=on"));
        }
        if self.standbys > 0 && names.is_empty() {
            let setting = format!("synchronous_standby_names is empty, with {} standbys", self.standbys);
            found.push(finding(setting, FAILOVER, "name a synchronous standby"));
        }
        if self.persistence == "u" {
            found.push(finding("an unlogged table".to_owned(), CRASH, "ALTER TABLE … SET LOGGED"));
        }
        if self.encoding != "UTF8" {
            let setting = format!("server_encoding={}", self.encoding);
            found.push(finding(setting, "that every name can be locked", "use a database in UTF8"));
        }
        if self.pooler {
            let setting = "pooler=true".to_owned();
            found.push(finding(
                setting,
                "prompt wake-up: waiters ask ten times a second",
                "go past the pooler, if you can",
            ));
        }
        found.extend(self.found_in.as_deref().and_then(|schema| self.other_tables(schema)));
        found
    }

    /// Whoever names no schema is led to one by search_path, which users have each their own of.
    fn other_tables(&self, schema: &str) -> Option<Finding> {
        let setting = match self.schemas.as_slice() {
            [] | [_] if !self.own => return None,
            [] | [_] => format!("the tables are in the schema {schema}, which is its user's own"),
            schemas => format!("the tables are in the schema {schema}, and there are such in {}", schemas.join(", ")),
        };
        Some(Finding::new(
            setting,
            "exclusion between users whose search_path leads to different tables",
            "have all of them name one schema, as in table=public.oarlock, and remove the other tables",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_names_its_setting() {
        let good = Settings {
            fsync: "on".into(),
            full_page_writes: "on".into(),
            synchronous_commit: "on".into(),
            synchronous_standbys: String::new(),
            standbys: 0,
            encoding: "UTF8".into(),
            persistence: "p".into(),
            pooler: false,
            found_in: Some("public".into()),
            own: false,
            schemas: vec!["public".into()],
        };
        assert_eq!(good.findings(), []);
        let with = |change: fn(&mut Settings)| {
            let mut settings = good.clone();
            change(&mut settings);
            let found = settings.findings();
            assert_eq!(found.len(), 1, "{found:?}");
            found[0].setting.clone()
        };
        assert!(with(|s| s.fsync = "off".into()).contains("fsync"));
        assert!(with(|s| s.synchronous_commit = "off".into()).contains("synchronous_commit"));
        assert!(with(|s| s.standbys = 1).contains("synchronous_standby_names"));
        assert!(with(|s| s.persistence = "u".into()).contains("unlogged"));
        assert!(with(|s| s.encoding = "LATIN1".into()).contains("LATIN1"));
        assert!(with(|s| s.pooler = true).contains("pooler"));
        assert!(with(|s| s.own = true).contains("its user's own"));
        assert!(with(|s| s.schemas.push("app".into())).contains("public, app"));
        let mut chosen = good.clone();
        (chosen.found_in, chosen.own) = (None, true);
        assert_eq!(chosen.findings(), []);
        let mut synchronous = good.clone();
        (synchronous.standbys, synchronous.synchronous_standbys) = (1, "b".into());
        assert_eq!(synchronous.findings(), []);
        synchronous.synchronous_commit = "local".into();
        assert_eq!(synchronous.findings().len(), 1);
    }
}
