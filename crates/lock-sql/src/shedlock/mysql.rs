//! MySQL and MariaDB: the statements. Theirs write `UTC_TIMESTAMP(3)`; ours read the clock when they come to it, also
//! after a wait for a row.
//!
//! A column of the type `TIMESTAMP` is a moment, which each session sees in a time zone of its own, and theirs write
//! the time of UTC as if it were that of their session's zone, as a rule the server's. Our sessions are at UTC. So
//! where the columns are of that type, `{now}` is the moment at which a clock in the server's zone shows what one at
//! UTC shows now. The end of a lease is converted as a whole, so that an hour of autumn that comes twice there makes no
//! difference. In the hour of spring that such a clock leaves out, all seconds are one: a row that is freed then gets its
//! beginning, and one that is taken its end, which comes when the hour is over.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Claim, DistributedLock, Error, Finding, ListQuery, LockName, OwnerId, Result};
use sqlx::mysql::{MySqlArguments, MySqlRow};

use super::Shedlock;
use super::layout::{Column, Layout, TableName};
use super::table::{Columns, Row, RowKept, Rows, Seen, Table, Taken};
use crate::keys::micros;
use crate::mysql::{Argument, MySql, MySqlLock, NOW, Text, arguments, changed, number_of};
use crate::server::{Again, Answer, Read, Server, ServerOptions, Statement, Unsettled, of_one_lease, some_at_a_time};

/// How many rows one statement prolongs, with one parameter for each name and each owner.
const PROLONGED_AT_ONCE: usize = 100;

/// How often a row that comes and goes is tried for.
const TRIES: usize = 3;

/// The server says that there is a row of this name already.
const DUPLICATE: u16 = 1062;

impl MySqlLock {
    /// Connects as [`MySqlLock::with`] does, and joins the table of ShedLock that [`ServerOptions::shedlock`] names.
    ///
    /// # Errors
    /// As [`MySqlLock::with`]; also [`ErrorKind::Invalid`](lock_core::ErrorKind::Invalid) if no table is named, and
    /// [`ErrorKind::Refused`](lock_core::ErrorKind::Refused) for one that is missing or another thing than ShedLock's.
    ///
    /// # Cancel safety
    /// Nothing is held yet. Our tables may have been made.
    pub async fn with_shedlock(options: ServerOptions) -> Result<Arc<dyn DistributedLock>> {
        let name = options.shedlock_table()?;
        let lock = Self::of(&options).await?;
        let server = Arc::clone(&lock.server);
        let answer = server.run(&find(name).into(), arguments!(), Again::Yes).await?;
        let mut columns = answer.rows.iter().map(column).collect::<Result<Vec<_>>>()?;
        let of_keys = columns.iter().filter(|column| column.is_unique).count();
        // Of a key of several columns none has a name but once.
        columns.iter_mut().for_each(|column| column.is_unique &= of_keys == 1);
        let layout = Layout::of(&options, name.to_string(), &columns, &["timestamp", "datetime"])?;
        let statements = Statements::new(&options, &layout);
        let table = MySqlTable { server, layout, statements, unsettled: Unsettled::default() };
        Ok(Arc::new(Shedlock::new(lock, table).await))
    }
}

/// The statement that finds the columns. What it answers is bytes and numbers, whatever the types in the server's own
/// tables.
fn find(name: &TableName) -> String {
    let (schema, bare) = name.parts();
    let schema = schema.map_or_else(|| "DATABASE()".to_owned(), |schema| format!("'{schema}'"));
    format!(
        "SELECT CAST(COLUMN_NAME AS BINARY) AS name, CAST(DATA_TYPE AS BINARY) AS kind,
            CAST(CHARACTER_MAXIMUM_LENGTH AS SIGNED) AS most, CAST(DATETIME_PRECISION AS SIGNED) AS digits,
            CAST(COLUMN_KEY AS BINARY) AS in_key
        FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = {schema} AND TABLE_NAME = '{bare}'"
    )
}

fn column(row: &MySqlRow) -> Result<Column> {
    let most: Option<i64> = row.read("most")?;
    let digits: Option<i64> = row.read("digits")?;
    Ok(Column {
        name: text(row.read("name")?),
        kind: text(row.read("kind")?).to_lowercase(),
        most: most.and_then(|most| most.try_into().ok()),
        digits: digits.and_then(|digits| digits.try_into().ok()).unwrap_or_default(),
        is_unique: text(row.read("in_key")?) == "PRI",
    })
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

struct MySqlTable {
    server: Arc<Server<MySql>>,
    layout: Layout,
    statements: Statements,
    unsettled: Unsettled,
}

impl fmt::Debug for MySqlTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlTable").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// The statements, with the names of the tables. A row's name is the lock's name in their table, its key the name in
/// ours. What is read of our table in a change is what is committed, and is locked until this is: see the setup of a
/// connection.
struct Statements {
    /// Takes a row that is there. Lease, owner, row, owner, key, owner.
    take: Statement,
    /// The same for one that is not there. Row, lease, owner, key, owner.
    make: Statement,
    /// Prolongs rows that their owners still have. Lease, rows, owners.
    prolong: Statement,
    /// The same for a single one. Lease, row, owner.
    prolong_one: Statement,
    /// Ends its owner's hold since then. Row, owner, since when.
    free: Statement,
    /// Has the row outlive its owner. For how long, the owner from then on, row, owner, key, owner.
    keep: Statement,
    /// Answers what there is to see. Row, key.
    look: Statement,
    /// The first key, the key after which to begin, the first key behind the last, how many.
    list: Statement,
    /// Answers the server's time zone.
    zone: Statement,
}

/// Our lock, if the owner holds it. Key, owner.
const HELD: &str = "{t}_lock AS l WHERE l.name = ? AND l.owner = ? AND l.expires_us > {now_us}";

/// Since when a row is held, as the column has it: all our sessions are at UTC.
const AT: &str = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', locked_at)";

/// What there is to see of the row `s`, and of our lock `l`.
const SEEN: &str = "CAST(CONVERT(s.locked_by USING utf8mb4) AS BINARY) AS who, {at_us} AS at_us,
    TIMESTAMPDIFF(MICROSECOND, {now}, s.lock_until) AS left_us,
    TIMESTAMPDIFF(MICROSECOND, s.locked_at, {now}) AS held_us, IF(l.expires_us > {now_us}, l.owner, NULL) AS ours";

impl Statements {
    fn new(options: &ServerOptions, layout: &Layout) -> Self {
        let unit = layout.unit;
        let in_zone = |time: &str| match is_timestamp(layout) {
            true => format!("CONVERT_TZ({time}, @@global.time_zone, '+00:00')"),
            false => time.to_owned(),
        };
        // As their column keeps it: what is rounded up before is not rounded down there.
        let at = |us: &str| {
            in_zone(&format!("TIMESTAMPADD(MICROSECOND, ({us}) DIV {unit} * {unit}, TIMESTAMP'1970-01-01 00:00:00')"))
        };
        // Theirs tell milliseconds.
        let now = at("{now_us} DIV 1000 * 1000");
        let later = at(&format!("{{now_us}} + ? + {}", unit - 1));
        let (floor, until) = if is_timestamp(layout) {
            let second = at("{now_us} DIV 1000000 * 1000000");
            let or_in_gap =
                |then: &str| format!("IF({} <= {now}, {then}, {now})", at("{now_us} DIV 1000 * 1000 + 1000000"));
            let after_gap = or_in_gap(&format!("TIMESTAMPADD(SECOND, 1, {second})"));
            (or_in_gap(&second), format!("GREATEST({later}, {after_gap})"))
        } else {
            (now, later)
        };
        let key = if layout.is_plain { "CONCAT('oarlock/', s.name)" } else { "s.name" };
        let key = format!("CAST(CONVERT({key} USING utf8mb4) AS BINARY)");
        let fill = |text: &str| {
            let text =
                text.replace("{held}", HELD).replace("{seen}", SEEN).replace("{at_us}", AT).replace("{key}", &key);
            let text = text.replace("{until}", &until).replace("{floor}", &floor);
            let text = text.replace("{now}", &in_zone("SYSDATE(6)")).replace("{now_us}", NOW);
            Statement::from(options.reached.table.fill(&text.replace("{s}", &layout.table)))
        };
        let prolong = |many: usize| {
            let some = vec!["?"; many].join(", ");
            fill(&format!(
                "UPDATE {{s}} SET lock_until = {{until}} WHERE name IN ({some}) AND locked_by IN ({some}) AND lock_until > {{now}}"
            ))
        };
        Self {
            take: fill(
                "UPDATE {s} SET lock_until = {until}, locked_at = {now}, locked_by = ?
                WHERE name = ? AND (lock_until <= {now} OR locked_by = ?) AND EXISTS (SELECT 1 FROM {held})",
            ),
            make: fill(
                "INSERT INTO {s} (name, lock_until, locked_at, locked_by) SELECT ?, {until}, {now}, ? FROM {held}",
            ),
            prolong: prolong(PROLONGED_AT_ONCE),
            prolong_one: prolong(1),
            free: fill(
                "UPDATE {s} SET lock_until = {floor} WHERE name = ? AND locked_by = ? AND {at_us} <=> ? AND lock_until > {now}",
            ),
            keep: fill(
                "UPDATE {s} SET lock_until = {until}, locked_by = ?
                WHERE name = ? AND locked_by = ? AND lock_until > {now} AND EXISTS (SELECT 1 FROM {held})",
            ),
            look: fill(
                "SELECT {seen} FROM (SELECT 1 AS one) AS one
                LEFT JOIN {s} AS s ON s.name = ? AND s.lock_until > {now} LEFT JOIN {t}_lock AS l ON l.name = ?",
            ),
            list: fill(
                "SELECT {key} AS name, {seen} FROM {s} AS s LEFT JOIN {t}_lock AS l ON l.name = {key}
                WHERE s.lock_until > {now} AND {key} >= ? AND {key} > ? AND {key} < ? ORDER BY {key} LIMIT ?",
            ),
            zone: Statement::from("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('time_zone', 'system_time_zone')"),
        }
    }
}

fn is_timestamp(layout: &Layout) -> bool {
    layout.times == "timestamp"
}

impl MySqlTable {
    async fn run(&self, statement: &Statement, arguments: MySqlArguments, again: Again) -> Result<Answer<sqlx::MySql>> {
        let answer = self.server.run(statement, arguments, again).await;
        answer.map_err(|error| if is_of_table(&error) { self.layout.refused(error) } else { error })
    }

    /// The same of a request to take a row, and answers whether it did.
    async fn try_take(&self, owner: &OwnerId, statement: &Statement, arguments: MySqlArguments) -> Result<bool> {
        let on_its_way = self.unsettled.send(owner);
        let answer = on_its_way.answered(self.server.run(statement, arguments, Again::Yes).await);
        match answer {
            Ok(answer) => Ok(changed(&answer, 0) > 0),
            Err(error) if number_of(&error) == Some(DUPLICATE) => Ok(false),
            Err(error) if is_of_table(&error) => Err(self.layout.refused(error)),
            Err(error) => Err(error),
        }
    }

    /// Prolongs rows by the same lease. A batch that was prolonged as a whole is done; in another, each is asked for
    /// alone, since the server does not say which it was.
    async fn prolong_some(&self, claims: &[Claim]) -> Result<Vec<bool>> {
        let prolong = async |statement: &Statement, some: &[Claim], as_many: usize| {
            let mut arguments = arguments!(micros(claims[0].lease));
            // Filled up with the last one, so that the statement is always the same.
            let filled = || (0..as_many).map(|at| &some[at.min(some.len() - 1)]);
            filled().for_each(|claim| Text(&self.layout.row(&claim.name)).add_to(&mut arguments));
            filled().for_each(|claim| Text(claim.owner.as_str()).add_to(&mut arguments));
            let answer = self.run(statement, arguments, Again::Yes).await?;
            Ok::<_, Error>(changed(&answer, 0) == some.len() as u64)
        };
        if prolong(&self.statements.prolong, claims, PROLONGED_AT_ONCE).await? {
            return Ok(vec![true; claims.len()]);
        }
        let mut prolonged = Vec::with_capacity(claims.len());
        for claim in claims {
            prolonged.push(prolong(&self.statements.prolong_one, std::slice::from_ref(claim), 1).await?);
        }
        Ok(prolonged)
    }
}

#[async_trait]
impl Table for MySqlTable {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn unsettled(&self) -> &Unsettled {
        &self.unsettled
    }

    async fn take(&self, claim: &Claim) -> Result<Taken> {
        let (row, key, lease) = (self.layout.row(&claim.name), self.layout.key(&claim.name), micros(claim.lease));
        let (row, key, owner) = (row.as_str(), key.as_str(), claim.owner.as_str());
        for _ in 0..TRIES {
            let arguments = arguments!(lease, Text(owner), Text(row), Text(owner), key, owner);
            if self.try_take(&claim.owner, &self.statements.take, arguments).await? {
                return Ok(Taken::Ours);
            }
            let Seen { row: other, ours, .. } = self.look(&claim.name).await?;
            if ours.as_ref() != Some(&claim.owner) {
                return Ok(Taken::NotHeld);
            }
            if let Some(other) = other {
                return Ok(Taken::Busy { by: Some(other.by), left: other.left });
            }
            // There is none yet, or it has just come free.
            let arguments = arguments!(Text(row), lease, Text(owner), key, owner);
            if self.try_take(&claim.owner, &self.statements.make, arguments).await? {
                return Ok(Taken::Ours);
            }
        }
        Ok(Taken::Busy { by: None, left: Duration::ZERO })
    }

    async fn prolong(&self, claims: &[Claim]) -> Vec<Result<bool>> {
        some_at_a_time(of_one_lease(claims, PROLONGED_AT_ONCE), |some| self.prolong_some(some)).await
    }

    async fn free(&self, name: &LockName, seen: &Row) -> Result<bool> {
        let arguments = arguments!(Text(&self.layout.row(name)), Text(seen.by.as_str()), seen.at_us);
        // Sent again, it would say that the row was another's.
        Ok(changed(&self.run(&self.statements.free, arguments, Again::No).await?, 0) > 0)
    }

    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<RowKept> {
        let (row, key) = (self.layout.row(&claim.name), self.layout.key(&claim.name));
        let (owner, kept) = (claim.owner.as_str(), claim.owner.kept());
        let arguments = arguments!(micros(rest), Text(kept.as_str()), Text(&row), Text(owner), key.as_str(), owner);
        let answer = self.run(&self.statements.keep, arguments, Again::Yes).await?;
        Ok(RowKept { now: changed(&answer, 0) > 0, twice: answer.twice })
    }

    async fn look(&self, name: &LockName) -> Result<Seen> {
        let arguments = arguments!(Text(&self.layout.row(name)), self.layout.key(name).as_str());
        let answer = self.run(&self.statements.look, arguments, Again::Yes).await?;
        answer.rows.first().map_or_else(|| Ok(Seen::nothing()), seen)
    }

    async fn list(&self, query: &ListQuery) -> Result<Rows> {
        let (from, end) = self.layout.range(&query.prefix);
        let after = query.after.as_ref().map(|name| self.layout.key(name)).unwrap_or_default();
        let most = query.fetch_size();
        let arguments = arguments!(from.as_str(), after.as_str(), end.as_str(), most as i64);
        let answer = self.run(&self.statements.list, arguments, Again::Yes).await?;
        let mut rows = Vec::with_capacity(answer.rows.len());
        for row in &answer.rows {
            // What is no name of a lock is none of ours.
            if let Some(name) = self.layout.name(&text(row.read("name")?)) {
                rows.push((name, seen(row)?));
            }
        }
        Ok(Rows { rows, more: answer.rows.len() >= most })
    }

    async fn findings(&self) -> Result<Vec<Finding>> {
        if !is_timestamp(&self.layout) {
            return Ok(Vec::new());
        }
        let answer = self.run(&self.statements.zone, arguments!(), Again::Yes).await?;
        let (mut zone, mut system) = (String::new(), String::new());
        for row in &answer.rows {
            let (name, value): (String, String) = (row.read(0)?, row.read(1)?);
            *(if name.eq_ignore_ascii_case("time_zone") { &mut zone } else { &mut system }) = value;
        }
        if zone.eq_ignore_ascii_case("SYSTEM") {
            zone = system;
        }
        Ok(finding(&self.layout.table, &zone).into_iter().collect())
    }
}

/// What is wrong with a server in this time zone.
fn finding(table: &str, zone: &str) -> Option<Finding> {
    let is_utc = ["UTC", "+00:00", "Etc/UTC", "GMT", "Etc/GMT"].iter().any(|utc| zone.eq_ignore_ascii_case(utc));
    let finding = || {
        Finding::new(
            format!("time_zone={zone}, and the times of the table {table} are of the type TIMESTAMP"),
            "ShedLock's jobs in the hour of spring that a clock there leaves out, in which it cannot write its times",
            "set the server's time_zone='+00:00' while no program is connected, or make the columns lock_until and locked_at \
             DATETIME(3)",
        )
    };
    (!is_utc).then(finding)
}

fn seen(row: &MySqlRow) -> Result<Seen> {
    let text = |bytes: Option<Vec<u8>>| bytes.map(text);
    let columns = Columns {
        who: text(row.read("who")?),
        at_us: row.read("at_us")?,
        held_us: row.read("held_us")?,
        left_us: row.read("left_us")?,
        ours: text(row.read("ours")?),
    };
    Ok(columns.into())
}

/// Did the server refuse it because of what the table is, or because of who may use it?
fn is_of_table(error: &Error) -> bool {
    const NUMBERS: [u16; 22] = [
        1044, 1048, 1054, 1062, 1064, 1109, 1136, 1142, 1143, 1146, 1264, 1265, 1267, 1292, 1364, 1366, 1370, 1406,
        1441, 1690, 3988, 4078,
    ];
    number_of(error).is_some_and(|number| NUMBERS.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_zone_than_that_of_utc_is_found() {
        for zone in ["UTC", "utc", "+00:00", "Etc/UTC"] {
            assert_eq!(finding("shedlock", zone), None, "{zone}");
        }
        for zone in ["Europe/Berlin", "+02:00", "CEST"] {
            let found = finding("shedlock", zone).unwrap();
            assert!(found.setting.contains(zone) && found.setting.contains("shedlock"), "{found:?}");
        }
    }
}
