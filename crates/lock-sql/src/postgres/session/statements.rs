//! All the SQL of locks by sessions, besides the functions in `schema.sql`.

use super::super::statements::{SWEEP, SWEPT_AT_ONCE};
use crate::server::{Statement, Table};

/// What makes the tables and functions.
pub(crate) const SCHEMA: &str = include_str!("schema.sql");

/// The oldest server that can end a session that is idle.
pub(super) const OLDEST: i64 = 140_000;

/// The tables that are swept, as those of the rows are: their key, where the sweep goes on, and what is of no use any more.
const SWEPT: [(&str, &str, &str, &str); 3] = [
    (
        "hold",
        "key",
        "coalesce(nullif(place, ''), '-9223372036854775808')::bigint",
        "expires_us < {t}_now() - 86400000000",
    ),
    ("wait", "pid", "coalesce(nullif(place, ''), '0')::bigint", "{t}_began(pid) IS NULL"),
    (
        "value",
        "owner",
        "place",
        "at_us < {t}_now() - 60000000 AND NOT EXISTS (SELECT FROM {t}_hold AS h
            WHERE h.name = {t}_value.name AND h.owner IN ({t}_value.owner, 'kept#' || {t}_value.owner))",
    ),
];

/// Who waits: those in the line of an advisory lock; and before them who has it, while a note says that the hold is another's.
const WAITING: &str = "SELECT w.name, w.owner, l.granted, l.waitstart FROM pg_locks AS l
    JOIN {t}_wait AS w ON w.pid = l.pid AND w.key = l.classid::bigint << 32 | l.objid::bigint
    WHERE l.locktype = 'advisory' AND l.objsubid = 1
        AND (NOT l.granted OR EXISTS (SELECT FROM {t}_hold AS h
            WHERE h.key = w.key AND h.pid <> l.pid AND h.owner IS NOT NULL AND h.expires_us > {t}_now()))
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// What the owner of the note `h` shows.
const VALUE: &str =
    "(SELECT v.value FROM {t}_value AS v WHERE v.owner = {t}_first(h.owner) AND v.name = h.name) AS value";

/// What is answered of a lock: its name, its holder, and its waiters.
const STATUS: &str = "WITH waiting AS MATERIALIZED (WAITING)
    SELECT n.name, h.owner, h.token, {t}_now() - h.since_us AS held_us, h.expires_us - {t}_now() AS left_us,
    SHOWN,
    ARRAY(SELECT w.owner FROM waiting AS w WHERE w.name = n.name ORDER BY w.granted DESC, w.waitstart) AS waiters
    FROM (FROM_NAMES) AS n
    LEFT JOIN {t}_hold AS h ON h.key = {t}_key(n.name) AND h.name = n.name AND h.owner IS NOT NULL AND h.expires_us > {t}_now()";

/// The statements, with the names of the tables.
#[derive(Debug)]
pub(super) struct Statements {
    /// Fails if the tables have another shape.
    pub(super) probe: Statement,
    /// Over a session: see the function.
    pub(super) open: Statement,
    /// Over a session: the call of the function, up to its arguments.
    pub(super) take: Statement,
    /// The same for who shows something.
    pub(super) take_showing: Statement,
    /// Over a session: the call of the procedure, up to its arguments.
    pub(super) release: Statement,
    /// The same for who showed something.
    pub(super) release_showing: Statement,
    /// Over a session: the call of the procedure, up to its arguments.
    pub(super) keep: Statement,
    /// $1 name, $2 owner, $3 for how long, $4 process or null, $5 its beginning: see the function.
    pub(super) keep_alone: Statement,
    /// $1 name, $2 owner, $3 what is shown from now on, $4 when that was said: see the function.
    pub(super) show: Statement,
    /// Over a session: `{lease}`, `{key}` and `{owner}` are to be filled in. Answers a row if that was held.
    pub(super) renew: Statement,
    /// $1 key's name, $2 owner, $3 lease: the same for a hold whose session has ended.
    pub(super) renew_alone: Statement,
    /// $1 name, $2 owner, $3 process or null, $4 its beginning: see the function.
    pub(super) undo: Statement,
    /// $1 name, $2 owner. Says that its hold was ended by somebody else; it stands among the values, and is swept with them.
    pub(super) mark_evicted: Statement,
    /// $1 name, $2 owner. Answers a row if that was said.
    pub(super) was_evicted: Statement,
    /// $1 process, $2 its beginning, $3 name, $4 owner: see the function. $5 what the request begins with that this session
    /// does, or did last; answers that, too.
    pub(super) look: Statement,
    /// $1 name. Answers the status of this lock.
    pub(super) inspect: Statement,
    /// $1 name. Answers its holder, if there is one.
    pub(super) holder: Statement,
    /// $1 the first name, $2 the name after which to begin, $3 the first name behind the last, $4 how many.
    pub(super) list: Statement,
    /// $1 the number above which the next token is; null: the clock.
    pub(super) raise: Statement,
    /// $1 how long ago the last time has to be: see the sweep of the rows.
    pub(super) sweep: [Statement; 3],
    /// Answers what voids a promise.
    pub(super) doctor: Statement,
}

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let fill = |text: &str| Statement::from(table.fill(text));
        let status =
            |names: &str| STATUS.replace("WAITING", WAITING).replace("SHOWN", VALUE).replace("FROM_NAMES", names);
        Self {
            probe: fill(
                "SELECT (SELECT count(*) FROM (SELECT key, name, owner, token, pid, began_us, lease_us, since_us, expires_us
                        FROM {t}_hold LIMIT 1) AS h),
                    (SELECT count(*) FROM (SELECT pid, key, name, owner FROM {t}_wait LIMIT 1) AS w),
                    (SELECT count(*) FROM (SELECT owner, name, value, at_us, said_us FROM {t}_value LIMIT 1) AS v),
                    {t}_counted()",
            ),
            open: fill("SELECT {t}_open()"),
            take: fill("SELECT {t}_take("),
            take_showing: fill("SELECT {t}_take_showing("),
            release: fill("CALL {t}_release("),
            release_showing: fill("CALL {t}_release_showing("),
            keep: fill("CALL {t}_keep("),
            keep_alone: fill("SELECT {t}_keep_alone($1, $2, $3, $4, $5)"),
            show: fill("SELECT {t}_show($1, $2, $3, $4)"),
            renew: fill(
                "UPDATE {t}_hold SET lease_us = {lease}, expires_us = {t}_now() + {lease}
                WHERE key = {key} AND owner = {owner} RETURNING pid",
            ),
            renew_alone: fill(
                "UPDATE {t}_hold SET lease_us = $3, expires_us = {t}_now() + $3
                WHERE key = {t}_key($1) AND owner = $2 AND expires_us > {t}_now() RETURNING pid",
            ),
            undo: fill("SELECT {t}_undo($1, $2, $3, $4)"),
            mark_evicted: fill(
                "INSERT INTO {t}_value VALUES ('evicted#' || $2, $1, '', {t}_now())
                ON CONFLICT (owner, name) DO UPDATE SET at_us = EXCLUDED.at_us",
            ),
            was_evicted: fill("SELECT 1 FROM {t}_value WHERE owner = 'evicted#' || $2 AND name = $1"),
            look: fill(
                "SELECT {t}_look($1, $2, $3, $4) AS does,
                    (SELECT starts_with(query, $5) FROM pg_stat_activity WHERE pid = $1) AS begun",
            ),
            inspect: fill(&status("SELECT $1 COLLATE \"C\" AS name")),
            holder: fill(&format!(
                "SELECT owner, token, {{t}}_now() - since_us AS held_us, expires_us - {{t}}_now() AS left_us, {VALUE}
                FROM {{t}}_hold AS h
                WHERE key = {{t}}_key($1) AND name = $1 AND owner IS NOT NULL AND expires_us > {{t}}_now()",
            )),
            list: fill(&format!(
                "{} ORDER BY n.name LIMIT $4",
                status(
                    "SELECT name FROM {t}_hold WHERE name >= $1 AND name > $2 AND name < $3
                        AND owner IS NOT NULL AND expires_us > {t}_now()
                    UNION SELECT name FROM waiting WHERE name >= $1 AND name > $2 AND name < $3"
                )
            )),
            raise: fill(
                "UPDATE {t}_meta SET value = coalesce($1, {t}_now()) - {t}_counted()
                WHERE key = 'base' AND value < coalesce($1, {t}_now()) - {t}_counted()",
            ),
            sweep: SWEPT.map(|(table, key, place, old)| {
                let sweep = SWEEP.replace("{table}", table).replace("{key}", key);
                fill(
                    &sweep
                        .replace("{place}", place)
                        .replace("{old}", old)
                        .replace("{some}", &SWEPT_AT_ONCE.to_string()),
                )
            }),
            doctor: fill(
                "SELECT current_setting('server_encoding') AS encoding, current_setting('fsync') AS fsync,
                    (SELECT count(*) FROM pg_stat_replication) AS standbys",
            ),
        }
    }
}

/// A text as it stands in a statement. In hexadecimal digits, so that nothing in it can end it.
pub(super) fn literal(text: &str) -> String {
    let mut digits = String::with_capacity(text.len() * 2 + 40);
    digits.push_str("convert_from(decode('");
    for byte in text.bytes() {
        for digit in [byte >> 4, byte & 15] {
            digits.push(char::from_digit(digit.into(), 16).unwrap_or_default());
        }
    }
    digits.push_str("', 'hex'), 'UTF8')");
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_end_itself() {
        assert_eq!(literal("a'\\"), "convert_from(decode('61275c', 'hex'), 'UTF8')");
        assert_eq!(literal(""), "convert_from(decode('', 'hex'), 'UTF8')");
    }
}
