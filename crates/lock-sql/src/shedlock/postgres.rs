//! PostgreSQL: the statements. Theirs write `timezone('utc', CURRENT_TIMESTAMP)`; ours read the clock when they come to
//! it, also after a wait for a row.

use std::collections::HashSet;
use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Claim, DistributedLock, Error, Finding, ListQuery, LockName, OwnerId, Result};
use sqlx::postgres::PgRow;

use super::Shedlock;
use super::layout::{Column, Layout};
use super::table::{Columns, Row, RowKept, Rows, Seen, Table, Taken};
use crate::keys::{duration, micros};
use crate::postgres::{Postgres, PostgresLock, arguments, the_row};
use crate::server::{Again, Answer, Read, Server, ServerOptions, Statement, Unsettled, some_at_a_time};

/// How many rows one statement prolongs.
const PROLONGED_AT_ONCE: usize = 500;

/// The time as their columns have it.
const NOW: &str = "timezone('utc', clock_timestamp())";

/// The table that is meant, as the user's own programs find it, and its columns.
const FIND: &str = "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS found, a.attname::text AS name,
        t.typname::text AS kind, a.atttypmod::bigint AS modifier,
        EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisunique AND i.indpred IS NULL
            AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum) AS is_unique
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type AS t ON t.oid = a.atttypid
    WHERE c.oid = to_regclass('{s}')";

impl PostgresLock {
    /// Connects as [`PostgresLock::with`] does, and joins the table of ShedLock that [`ServerOptions::shedlock`] names.
    ///
    /// # Errors
    /// As [`PostgresLock::with`]; also [`ErrorKind::Invalid`](lock_core::ErrorKind::Invalid) if no table is named, and
    /// [`ErrorKind::Refused`](lock_core::ErrorKind::Refused) for one that is missing or another thing than ShedLock's.
    ///
    /// # Cancel safety
    /// Nothing is held yet. Our tables may have been made.
    pub async fn with_shedlock(options: ServerOptions) -> Result<Arc<dyn DistributedLock>> {
        let name = options.shedlock_table()?;
        let lock = Self::of(&options).await?;
        let found = options.server(None);
        let statement = FIND.replace("{s}", &name.to_string()).into();
        let answer = found.run(&statement, arguments!(), Again::Yes).await;
        found.close().await;
        let answer = answer?;
        let columns = answer.rows.iter().map(column).collect::<Result<Vec<_>>>()?;
        let table = answer.rows.first().map_or_else(|| Ok(name.to_string()), |row| row.read("found"))?;
        let layout = Layout::of(&options, table, &columns, &["timestamp"])?;
        let statements = Statements::new(&options, &layout);
        let server = Arc::clone(&lock.server);
        let table = PostgresTable { server, layout, statements, unsettled: Unsettled::default() };
        Ok(Arc::new(Shedlock::new(lock, table).await))
    }
}

fn column(row: &PgRow) -> Result<Column> {
    let kind: String = row.read("kind")?;
    let modifier: i64 = row.read("modifier")?;
    let is_time = kind.starts_with("timestamp");
    Ok(Column {
        name: row.read("name")?,
        // The server counts four more.
        most: u64::try_from(modifier - 4).ok().filter(|_| !is_time),
        digits: if is_time { u32::try_from(modifier).unwrap_or(6) } else { 0 },
        kind,
        is_unique: row.read("is_unique")?,
    })
}

struct PostgresTable {
    server: Arc<Server<Postgres>>,
    layout: Layout,
    statements: Statements,
    unsettled: Unsettled,
}

impl fmt::Debug for PostgresTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTable").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// The statements, with the names of the tables. A row's name is the lock's name in their table, its key the name in
/// ours.
struct Statements {
    /// $1 row, $2 key, $3 owner, $4 lease. Takes the row. Answers whether it has, whether our lock is held, and who
    /// else had the row before this, for how long.
    take: Statement,
    /// $1 rows, $2 owners, $3 leases. Answers the owners that still had theirs, which are prolonged.
    prolong: Statement,
    /// $1 row, $2 owner, $3 since when. Ends that hold; a row if it had it.
    free: Statement,
    /// $1 row, $2 key, $3 owner, $4 for how long. Has the row outlive its owner; a row if it does.
    keep: Statement,
    /// $1 row, $2 key. Answers what there is to see.
    look: Statement,
    /// $1 the first key, $2 the key after which to begin, $3 the first key behind the last, $4 how many.
    list: Statement,
}

impl Statements {
    fn new(options: &ServerOptions, layout: &Layout) -> Self {
        let unit = layout.unit;
        // As their column keeps it: what is rounded up before is not rounded down there.
        let at = |us: &str| format!("(timestamp '1970-01-01' + ({us}) / {unit} * {unit} * interval '1 microsecond')");
        let after = |time: &str| at(&format!("{{t}}_now() + {time} + {}", unit - 1));
        let key = if layout.is_plain { "('oarlock/' || s.name)" } else { "s.name::text" };
        let fill = |text: &str| {
            let text = text.replace("{floor}", &at("{t}_now()")).replace("{until}", &after("$4"));
            let text =
                text.replace("{until_each}", &after("j.lease")).replace("{key}", &format!("{key} COLLATE \"C\""));
            let text =
                text.replace("{held}", HELD).replace("{seen}", SEEN).replace("{at_us}", AT).replace("{now}", NOW);
            Statement::from(options.reached.table.fill(&text.replace("{s}", &layout.table)))
        };
        Self {
            take: fill(
                "WITH held AS MATERIALIZED ({held}),
                taken AS (
                    INSERT INTO {s} AS s (name, lock_until, locked_at, locked_by) SELECT $1, {until}, {now}, $3 FROM held
                    ON CONFLICT (name) DO UPDATE SET lock_until = {until}, locked_at = {now}, locked_by = $3
                        WHERE s.lock_until <= {now} OR s.locked_by = $3
                    RETURNING 1
                )
                SELECT EXISTS (SELECT FROM taken) AS taken, EXISTS (SELECT FROM held) AS held, s.locked_by AS who,
                    (extract(epoch FROM s.lock_until - {now}) * 1000000)::bigint AS left_us
                FROM (SELECT 1) AS one LEFT JOIN {s} AS s ON s.name = $1",
            ),
            prolong: fill(
                "UPDATE {s} AS s SET lock_until = {until_each}
                FROM unnest($1::text[], $2::text[], $3::bigint[]) AS j(name, owner, lease)
                WHERE s.name = j.name AND s.locked_by = j.owner AND s.lock_until > {now} RETURNING j.owner AS who",
            ),
            free: fill(
                "UPDATE {s} SET lock_until = {floor} WHERE name = $1 AND locked_by = $2
                    AND {at_us} IS NOT DISTINCT FROM $3 AND lock_until > {now} RETURNING 1",
            ),
            keep: fill(
                "WITH held AS MATERIALIZED ({held})
                UPDATE {s} AS s SET lock_until = {until}, locked_by = 'kept#' || s.locked_by FROM held
                WHERE s.name = $1 AND s.locked_by = $3 AND s.lock_until > {now} RETURNING 1",
            ),
            look: fill(
                "SELECT {seen} FROM (SELECT 1) AS one
                LEFT JOIN {s} AS s ON s.name = $1 AND s.lock_until > {now} LEFT JOIN {t}_lock AS l ON l.name = $2",
            ),
            list: fill(
                "SELECT {key} AS name, {seen} FROM {s} AS s LEFT JOIN {t}_lock AS l ON l.name = {key}
                WHERE s.lock_until > {now} AND {key} >= $1 AND {key} > $2 AND {key} < $3 ORDER BY {key} LIMIT $4",
            ),
        }
    }
}

/// Our lock, if the owner holds it: whoever would change that waits until this is committed.
const HELD: &str = "SELECT 1 FROM {t}_lock WHERE name = $2 AND owner = $3 AND expires_us > {t}_now() FOR SHARE";

/// Since when a row is held, as the column has it.
const AT: &str = "(extract(epoch FROM locked_at) * 1000000)::bigint";

/// What there is to see of the row `s`, and of our lock `l`.
const SEEN: &str =
    "s.locked_by AS who, {at_us} AS at_us, (extract(epoch FROM s.lock_until - {now}) * 1000000)::bigint AS left_us,
    (extract(epoch FROM {now} - s.locked_at) * 1000000)::bigint AS held_us,
    CASE WHEN l.expires_us > {t}_now() THEN l.owner END AS ours";

impl PostgresTable {
    async fn run(
        &self,
        statement: &Statement,
        arguments: sqlx::postgres::PgArguments,
        again: Again,
    ) -> Result<Answer<sqlx::Postgres>> {
        let answer = self.server.run(statement, arguments, again).await;
        answer.map_err(|error| if is_of_table(&error) { self.layout.refused(error) } else { error })
    }

    async fn prolong_some(&self, claims: &[Claim]) -> Result<Vec<bool>> {
        let rows: Vec<_> = claims.iter().map(|claim| self.layout.row(&claim.name)).collect();
        let owners: Vec<_> = claims.iter().map(|claim| claim.owner.as_str()).collect();
        let leases: Vec<_> = claims.iter().map(|claim| micros(claim.lease)).collect();
        let answer = self.run(&self.statements.prolong, arguments!(rows, owners, leases), Again::Yes).await?;
        let held: HashSet<&str> = answer.rows.iter().map(|row| row.read("who")).collect::<Result<_>>()?;
        Ok(claims.iter().map(|claim| held.contains(claim.owner.as_str())).collect())
    }
}

#[async_trait]
impl Table for PostgresTable {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn unsettled(&self) -> &Unsettled {
        &self.unsettled
    }

    async fn take(&self, claim: &Claim) -> Result<Taken> {
        let (row, key) = (self.layout.row(&claim.name), self.layout.key(&claim.name));
        let arguments = arguments!(row, key, claim.owner.as_str(), micros(claim.lease));
        let on_its_way = self.unsettled.send(&claim.owner);
        let answer = on_its_way.answered(self.run(&self.statements.take, arguments, Again::Yes).await)?;
        let row = the_row(&answer)?;
        if row.read("taken")? {
            return Ok(Taken::Ours);
        }
        if !row.read::<bool, _>("held")? {
            return Ok(Taken::NotHeld);
        }
        let by = row.read::<Option<&str>, _>("who")?.map(OwnerId::from_store);
        Ok(Taken::Busy { by, left: duration(row.read::<Option<i64>, _>("left_us")?.unwrap_or_default()) })
    }

    async fn prolong(&self, claims: &[Claim]) -> Vec<Result<bool>> {
        some_at_a_time(claims.chunks(PROLONGED_AT_ONCE), |some| self.prolong_some(some)).await
    }

    async fn free(&self, name: &LockName, seen: &Row) -> Result<bool> {
        let arguments = arguments!(self.layout.row(name), seen.by.as_str(), seen.at_us);
        // Sent again, it would say that the row was another's.
        let answer = self.run(&self.statements.free, arguments, Again::No).await?;
        Ok(!answer.rows.is_empty())
    }

    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<RowKept> {
        let (row, key) = (self.layout.row(&claim.name), self.layout.key(&claim.name));
        let arguments = arguments!(row, key, claim.owner.as_str(), micros(rest));
        let answer = self.run(&self.statements.keep, arguments, Again::Yes).await?;
        Ok(RowKept { now: !answer.rows.is_empty(), twice: answer.twice })
    }

    async fn look(&self, name: &LockName) -> Result<Seen> {
        let arguments = arguments!(self.layout.row(name), self.layout.key(name));
        seen(the_row(&self.run(&self.statements.look, arguments, Again::Yes).await?)?)
    }

    async fn list(&self, query: &ListQuery) -> Result<Rows> {
        let (from, end) = self.layout.range(&query.prefix);
        let after = query.after.as_ref().map(|name| self.layout.key(name)).unwrap_or_default();
        let most = query.fetch_size();
        let answer = self.run(&self.statements.list, arguments!(from, after, end, most as i64), Again::Yes).await?;
        let mut rows = Vec::with_capacity(answer.rows.len());
        for row in &answer.rows {
            // What is no name of a lock is none of ours.
            if let Some(name) = self.layout.name(row.read("name")?) {
                rows.push((name, seen(row)?));
            }
        }
        Ok(Rows { rows, more: answer.rows.len() >= most })
    }

    async fn findings(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
}

fn seen(row: &PgRow) -> Result<Seen> {
    let columns = Columns {
        who: row.read("who")?,
        at_us: row.read("at_us")?,
        held_us: row.read("held_us")?,
        left_us: row.read("left_us")?,
        ours: row.read("ours")?,
    };
    Ok(columns.into())
}

/// Did the server refuse it because of what the table is, or because of who may use it?
fn is_of_table(error: &Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<sqlx::Error>());
    let code = source.and_then(sqlx::Error::as_database_error).and_then(|error| error.code());
    code.is_some_and(|code| ["22", "23", "42"].iter().any(|class| code.starts_with(class)))
}
