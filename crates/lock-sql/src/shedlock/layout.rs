//! What ShedLock's table has to be like, what fits into it, and how our locks are called there.

use std::fmt;
use std::str::FromStr;

use lock_core::{Error, ErrorKind, LockName, Result};

use crate::keys::Prefix;
use crate::server::ServerOptions;

/// Under this prefix a lock's row has the lock's name.
const PLAIN: &str = "oarlock";

/// The longest text of an owner of ours: its label, host, process and 128 random bits, after `kept#`.
const LONGEST_OWNER: u64 = 190;

/// What a table is called, perhaps after a schema and a dot. It stands in statements as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableName(String);

impl TableName {
    /// The schema, if one is named, and the rest.
    #[cfg(any(feature = "mysql", test))]
    pub(super) fn parts(&self) -> (Option<&str>, &str) {
        self.0.split_once('.').map_or((None, &*self.0), |(schema, bare)| (Some(schema), bare))
    }
}

impl FromStr for TableName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_name = |name: &str| {
            (1..=63).contains(&name.len())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !name.starts_with(|c: char| c.is_ascii_digit())
        };
        let parts: Vec<_> = text.split('.').collect();
        if parts.len() > 2 || !parts.iter().all(|part| is_name(part)) {
            let message = format!(
                "{text:?} cannot be what ShedLock's table is called: letters of English, digits and _, not a digit first, perhaps \
                 after a schema and a dot"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A column as the database describes it.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// Its type, as in `timestamp`.
    pub(super) kind: String,
    /// How much of a text it takes, if there is a limit.
    pub(super) most: Option<u64>,
    /// How many digits of a second it keeps.
    pub(super) digits: u32,
    /// No two rows have the same there.
    pub(super) is_unique: bool,
}

/// The table as it was found.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// As statements name it.
    pub(super) table: String,
    /// As the server may be shown.
    pub(super) server: String,
    /// The type of its times.
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "PostgreSQL has one alone"))]
    pub(super) times: String,
    /// What it tells times apart by, in microseconds.
    pub(super) unit: i64,
    prefix: Prefix,
    /// A row has its lock's name, and not our key of it.
    pub(super) is_plain: bool,
    /// How long that may be, in bytes or in characters.
    longest: Option<u64>,
    in_bytes: bool,
}

impl Layout {
    /// What these columns make, where times have to be of one of these types; nothing is there without any.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] for a table that is missing, or another thing than ShedLock's.
    pub(super) fn of(options: &ServerOptions, table: String, columns: &[Column], times: &[&str]) -> Result<Self> {
        let server = &options.reached.shown;
        let refused = |wrong: String| {
            let message = format!("the server {server}: {wrong}");
            Err(Error::new(ErrorKind::Refused, message))
        };
        if columns.is_empty() {
            return refused(format!(
                "there is no table {table}, which `shedlock` names; correct the name, or make the table as ShedLock's documentation \
                 says (we make none: under a wrong name it would exclude nobody)"
            ));
        }
        let [name, until, at, by] = ["name", "lock_until", "locked_at", "locked_by"].map(|wanted| {
            let found = columns.iter().find(|column| column.name.eq_ignore_ascii_case(wanted));
            found.ok_or(wanted)
        });
        let (name, until, at, by) = match (name, until, at, by) {
            (Ok(name), Ok(until), Ok(at), Ok(by)) => (name, until, at, by),
            (Err(missing), ..) | (_, Err(missing), ..) | (_, _, Err(missing), _) | (.., Err(missing)) => {
                return refused(format!(
                    "the table {table}, which `shedlock` names, has no column {missing}; name ShedLock's table"
                ));
            }
        };
        if !name.is_unique {
            return refused(format!(
                "in the table {table} several rows can have one name; make the column name its primary key"
            ));
        }
        for column in [until, at] {
            if !times.contains(&column.kind.as_str()) || column.kind != until.kind {
                return refused(format!(
                    "the column {} of the table {table} is {}, and has to be {}, as in ShedLock's documentation: what is written as \
                     UTC would be read as another time; alter it while no program uses it",
                    column.name,
                    column.kind,
                    times.join(" or ")
                ));
            }
        }
        if let Some(most) = by.most.filter(|most| *most < LONGEST_OWNER) {
            return refused(format!(
                "the column locked_by of the table {table} takes {most} characters, and an owner may have {LONGEST_OWNER}; make it \
                 varchar(255), as in ShedLock's documentation"
            ));
        }
        let prefix = &options.reached.prefix;
        Ok(Self {
            server: server.clone(),
            times: until.kind.clone(),
            unit: 10_i64.pow(6 - until.digits.min(6)),
            prefix: Prefix::new(prefix),
            is_plain: prefix == PLAIN,
            longest: name.most,
            in_bytes: name.kind.contains("binary"),
            table,
        })
    }

    /// How the lock's row is called.
    pub(super) fn row(&self, name: &LockName) -> String {
        if self.is_plain { name.to_string() } else { self.key(name) }
    }

    /// How the lock is called in our own table.
    pub(super) fn key(&self, name: &LockName) -> String {
        self.prefix.key(name)
    }

    /// The lock of such a key.
    pub(super) fn name(&self, key: &str) -> Option<LockName> {
        self.prefix.name(key)
    }

    /// The first key of all whose names begin so, and the first one behind them.
    pub(super) fn range(&self, names: &str) -> (String, String) {
        self.prefix.range(names)
    }

    /// Does the lock have a row?
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if its name is too long for that.
    pub(super) fn check(&self, name: &LockName) -> Result<()> {
        let row = self.row(name);
        let (length, of) = if self.in_bytes { (row.len(), "bytes") } else { (row.chars().count(), "characters") };
        match self.longest {
            Some(most) if length as u64 > most => Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "the lock's row in {} would have a name of {length} {of}, and the column name takes {most}; choose a shorter \
                     name, or widen the column",
                    self.table
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The error of a statement that the server refused because of this table.
    pub(super) fn refused(&self, error: Error) -> Error {
        let message = format!(
            "the server {} cannot do with the table {} what ShedLock does: it has to be as in ShedLock's documentation, with room for \
             this lock's name, owner and time, and this user needs SELECT, INSERT and UPDATE on it",
            self.server, self.table
        );
        Error::new(error.kind(), message).with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, kind: &str, most: Option<u64>, digits: u32) -> Column {
        Column { name: name.to_owned(), kind: kind.to_owned(), most, digits, is_unique: name == "name" }
    }

    fn documented() -> [Column; 4] {
        [
            column("name", "varchar", Some(64), 0),
            column("lock_until", "timestamp", None, 3),
            column("locked_at", "timestamp", None, 3),
            column("locked_by", "varchar", Some(255), 0),
        ]
    }

    fn layout(prefix: &str, columns: &[Column]) -> Result<Layout> {
        let options = ServerOptions::new("postgres://us:s3cr3t@h").unwrap().prefix(prefix);
        Layout::of(&options, "shedlock".to_owned(), columns, &["timestamp", "datetime"])
    }

    #[test]
    fn the_table_is_what_it_has_to_be() {
        assert_eq!(layout("oarlock", &documented()).unwrap().unit, 1000);
        let wrong = |change: &dyn Fn(&mut [Column; 4]), named: &str| {
            let mut columns = documented();
            change(&mut columns);
            let error = layout("oarlock", &columns).unwrap_err();
            let text = error.to_string();
            assert!(error.kind() == ErrorKind::Refused && text.contains("shedlock") && text.contains(named), "{text}");
            assert!(!text.contains("s3cr3t"));
        };
        wrong(&|columns| columns[1].name = "until".to_owned(), "lock_until");
        wrong(&|columns| columns[3].name = "by".to_owned(), "locked_by");
        wrong(&|columns| columns[0].is_unique = false, "primary key");
        wrong(&|columns| columns[1].kind = "timestamptz".to_owned(), "timestamptz");
        wrong(&|columns| columns[2].kind = "datetime".to_owned(), "locked_at");
        wrong(&|columns| columns[3].most = Some(64), "varchar(255)");
        assert!(layout("oarlock", &[]).unwrap_err().to_string().contains("no table shedlock"));
    }

    #[test]
    fn rows_are_called_as_their_locks() {
        let (plain, other) = (layout("oarlock", &documented()).unwrap(), layout("a/b", &documented()).unwrap());
        let name = LockName::new("report/é").unwrap();
        assert_eq!((plain.row(&name).as_str(), plain.key(&name).as_str()), ("report/é", "oarlock/report/é"));
        assert_eq!((other.row(&name).as_str(), other.key(&name).as_str()), ("a%2Fb/report/é", "a%2Fb/report/é"));
        for layout in [&plain, &other] {
            assert_eq!(layout.name(&layout.key(&name)), Some(name.clone()));
        }
    }

    #[test]
    fn a_name_fits_or_is_refused() {
        let plain = layout("oarlock", &documented()).unwrap();
        let name = |length| LockName::new(&"é".repeat(length)).unwrap();
        plain.check(&name(64)).unwrap();
        let error = plain.check(&name(65)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("65 characters") && error.to_string().contains("64"), "{error}");
        assert!(layout("a", &documented()).unwrap().check(&name(63)).is_err(), "with its prefix");
        let mut columns = documented();
        columns[0].kind = "varbinary".to_owned();
        let bytes = layout("oarlock", &columns).unwrap();
        bytes.check(&name(32)).unwrap();
        bytes.check(&name(33)).unwrap_err();
        columns[0].most = None;
        layout("oarlock", &columns).unwrap().check(&name(256)).unwrap();
    }

    #[test]
    fn tables_are_names_and_nothing_else() {
        for (good, parts) in [
            ("shedlock", (None, "shedlock")),
            ("SHEDLOCK_2", (None, "SHEDLOCK_2")),
            ("app.shedlock", (Some("app"), "shedlock")),
        ] {
            assert_eq!(good.parse::<TableName>().unwrap().parts(), parts);
        }
        for bad in ["", "a b", "a;b", "1a", "a.b.c", "a.", "é", "\"a\"", "a--", "a'", &"a".repeat(64)] {
            assert!(bad.parse::<TableName>().is_err(), "{bad}");
        }
    }
}
