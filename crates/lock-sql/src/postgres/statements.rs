//! All the SQL, besides the functions in `schema.sql`. Each statement decides alone and commits by itself.

use lock_core::{Error, ErrorKind, Result};
use sqlx::postgres::PgRow;

use crate::server::{Answer, Statement, Table};

/// What makes the tables and functions.
pub(super) const SCHEMA: &str = concat!(include_str!("schema.sql"), include_str!("modes.sql"));

/// The version of the tables, in `meta`.
pub(super) const VERSION: i64 = 7;

/// How many rows of a table are looked at by one sweep.
pub(super) const SWEPT_AT_ONCE: u64 = 500;

/// The tables that are swept, the one that counts first: their key, where the sweep goes on as such a key, and what is of
/// no use any more.
const SWEPT: [(&str, &str, &str, &str); 6] = [
    ("lock", "name", "place", "expires_us < {t}_now() - 86400000000 AND token <= 36028797018963967"),
    (
        "waiter",
        "name",
        "place",
        "NOT EXISTS (SELECT FROM {t}_client AS c WHERE c.id = client AND abs({t}_now() - c.seen_us) < 60000000)",
    ),
    ("client", "id", "coalesce(nullif(place, ''), '-1')::bigint", "seen_us < {t}_now() - 60000000"),
    ("holder", "name", "place", "expires_us < {t}_now() - 86400000000"),
    ("gone", "owner", "place", "at_us < {t}_now() - 3600000000"),
    (
        "value",
        "owner",
        "place",
        "at_us < {t}_now() - 60000000
            AND NOT EXISTS (SELECT FROM {t}_waiter AS w WHERE w.owner = {t}_value.owner AND w.name = {t}_value.name)
            AND NOT EXISTS (SELECT FROM {t}_lock AS l
                WHERE l.name = {t}_value.name AND l.owner IN ({t}_value.owner, 'kept#' || {t}_value.owner))",
    ),
];

/// By the order of the keys, so that no sweep reads more than its share, and without a wait for a row that is in use.
pub(super) const SWEEP: &str = "WITH turn AS (SELECT place FROM {t}_meta
        WHERE key = '{table}' AND abs({t}_now() - value) >= $1 FOR UPDATE SKIP LOCKED),
    seen AS MATERIALIZED (SELECT ctid AS at, {key} AS key, {old} AS old FROM {t}_{table}
        WHERE {key} > (SELECT {place} FROM turn) ORDER BY {key} LIMIT {some}),
    swept AS (DELETE FROM {t}_{table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {t}_{table}
        WHERE ctid = ANY (ARRAY(SELECT s.at FROM seen AS s WHERE s.old)) AND {old} FOR UPDATE SKIP LOCKED)) RETURNING 1)
    UPDATE {t}_meta SET value = {t}_now(),
        place = (SELECT CASE count(*) WHEN {some} THEN max(s.key)::text ELSE '' END FROM seen AS s)
        WHERE key = '{table}' AND EXISTS (SELECT FROM turn) RETURNING (SELECT count(*) FROM swept) AS deleted";

/// The statements, with the names of the tables.
#[derive(Debug)]
pub(super) struct Statements {
    /// Answers whether the tables are there, the schema that they are in or will be made in, whether the server is a
    /// standby, and its version.
    pub(super) find: Statement,
    /// Answers the mode of the tables, and their version.
    pub(super) mode: Statement,
    /// Answers the tables' version and mode; fails if they have another shape.
    pub(super) probe: Statement,
    /// $1 key, $2 owner, $3 lease, $4 client or null, $5 place: see the function.
    pub(super) acquire: Statement,
    /// $1 keys, $2 owners, $3 leases: see the function.
    pub(super) acquire_free: Statement,
    /// The arguments of `acquire`, and $6 what is shown.
    pub(super) acquire_showing: Statement,
    /// $1 keys, $2 owners. Releases those locks that these owners hold and that nobody waits for; answers whose, and whether
    /// their leases still ran. What another is at is left out, as it is in `acquire_free`.
    pub(super) release_unwaited: Statement,
    /// $1 key, $2 owner, $3 whether the owner gives up, $4 whether this is a transaction of its own: see the procedure.
    pub(super) release: Statement,
    /// The same for who showed something.
    pub(super) release_showing: Statement,
    /// $1 key, $2 owner, $3 for how long, $4 and $5 as those of `release`: see the procedure.
    pub(super) keep: Statement,
    /// The arguments of `acquire`, and $6 the mode: see the function.
    pub(super) acquire_beside: Statement,
    /// The arguments of `release`: see the procedure.
    pub(super) release_beside: Statement,
    /// $1 keys, $2 owners, $3 leases. Answers the owners that still held theirs beside others, which are prolonged.
    pub(super) renew_beside: Statement,
    /// $1 key, $2 how many permits, $3 how often that was asked before; null: that is the question. See the function.
    pub(super) resize: Statement,
    /// $1 key, $2 owner, $3 what is shown from now on, $4 when that was said: see the function.
    pub(super) proclaim: Statement,
    /// $1 keys, $2 owners, $3 leases. Answers the owners that still held theirs, which are prolonged.
    pub(super) renew: Statement,
    /// $1 client, $2 whether it listens, $3 keys, $4 owners: see the function.
    pub(super) look: Statement,
    /// $1 key. Answers the status of this lock.
    pub(super) inspect: Statement,
    /// $1 key. Answers its holder, if there is one.
    pub(super) holder: Statement,
    /// $1 the first key, $2 the key after which to begin, $3 the first key behind the last, $4 how many. Answers their
    /// status.
    pub(super) list: Statement,
    /// $1 key, $2 the token above which the next one is.
    pub(super) raise: Statement,
    /// $1 the key of a rate limiter, $2 the stretch of its line to reserve, $3 how much of that has to be over first, $4 how
    /// long that may be from now on. The row is that of a lock that nobody has: `expires_us` is until when the line is taken.
    /// Answers how long it is until whoever asked goes on, and 1 if it was reserved. (`token` is the time of the attempt.)
    pub(super) reserve: Statement,
    /// $1 how long ago the last time has to be. Looks at the next rows of a table, deletes those of no use any more, and
    /// answers how many these were; no row: it was not so long ago, or another one is at it.
    pub(super) sweep: [Statement; 6],
    /// Answers the settings that void a promise.
    pub(super) doctor: Statement,
}

/// What the holder of the lock `l` shows.
const VALUE: &str =
    "(SELECT v.value FROM {t}_value AS v WHERE v.owner = {t}_first(l.owner) AND v.name = l.name) AS value";

/// What is answered of a lock: its key, its holder, and its waiters.
const STATUS: &str = "SELECT n.name, l.owner, l.token, {t}_now() - l.since_us AS held_us, l.expires_us - {t}_now() AS left_us,
    SHOWN,
    ARRAY(SELECT w.owner FROM {t}_waiter AS w WHERE w.name = n.name AND {t}_lives(w.client, {t}_now()) ORDER BY w.ticket)
        AS waiters,
    ARRAY(SELECT w.mode FROM {t}_waiter AS w WHERE w.name = n.name AND {t}_lives(w.client, {t}_now()) ORDER BY w.ticket)
        AS modes,
    CASE WHEN {t}_is_mark(l.owner) THEN (SELECT json_agg(json_build_array(h.owner, h.token, h.slots,
        {t}_now() - h.since_us, h.expires_us - {t}_now()) ORDER BY h.token)::text
        FROM {t}_holder AS h WHERE h.name = n.name AND h.expires_us > {t}_now()) END AS several
    FROM (FROM_NAMES) AS n
    LEFT JOIN {t}_lock AS l ON l.name = n.name AND l.owner IS NOT NULL AND l.expires_us > {t}_now()";

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let fill = |text: &str| Statement::from(table.fill(text));
        let status = |names: &str| STATUS.replace("SHOWN", VALUE).replace("FROM_NAMES", names);
        Self {
            find: fill(
                "SELECT to_regclass('{t}_meta') IS NOT NULL AS made, pg_is_in_recovery() AS standby,
                    current_setting('server_version_num')::bigint AS server,
                    coalesce((SELECT relnamespace::regnamespace FROM pg_class WHERE oid = to_regclass('{t}_meta')),
                        to_regnamespace(quote_ident(current_schema())))::text AS schema",
            ),
            mode: fill(
                "SELECT (SELECT place FROM {t}_meta WHERE key = 'mode') AS mode,
                    (SELECT value FROM {t}_meta WHERE key = 'version') AS version",
            ),
            probe: fill(
                "SELECT (SELECT value FROM {t}_meta WHERE key = 'version') AS version,
                    (SELECT place FROM {t}_meta WHERE key = 'mode') AS mode,
                    (SELECT count(*) FROM (SELECT place FROM {t}_meta LIMIT 1) AS m),
                    (SELECT count(*) FROM (SELECT name, owner, token, lease_us, since_us, expires_us, waited_for, resizes
                        FROM {t}_lock LIMIT 1) AS l),
                    (SELECT count(*) FROM (SELECT name, ticket, owner, lease_us, client, place, mode FROM {t}_waiter LIMIT 1) AS w),
                    (SELECT count(*) FROM (SELECT name, owner, token, slots, lease_us, since_us, expires_us
                        FROM {t}_holder LIMIT 1) AS h),
                    (SELECT count(*) FROM (SELECT id, seen_us, listens FROM {t}_client LIMIT 1) AS c),
                    (SELECT count(*) FROM (SELECT owner, at_us FROM {t}_gone LIMIT 1) AS g),
                    (SELECT count(*) FROM (SELECT owner, name, value, at_us, said_us FROM {t}_value LIMIT 1) AS v)",
            ),
            acquire: fill("SELECT {t}_acquire($1, $2, $3, $4, $5)"),
            acquire_free: fill("SELECT who, given FROM {t}_acquire_free($1, $2, $3)"),
            acquire_showing: fill("SELECT {t}_acquire_showing($1, $2, $3, $4, $5, $6)"),
            release_unwaited: fill(
                "WITH own AS MATERIALIZED (SELECT name FROM {t}_lock WHERE name = ANY ($1) AND NOT waited_for
                    FOR NO KEY UPDATE SKIP LOCKED)
                UPDATE {t}_lock AS l SET owner = NULL FROM own, unnest($1::text[], $2::text[]) AS j(name, owner)
                WHERE own.name = j.name AND l.name = j.name AND l.owner = j.owner AND NOT l.waited_for
                RETURNING j.owner AS who, l.expires_us > {t}_now() AS in_time",
            ),
            release: fill("CALL {t}_release($1, $2, $3, $4, NULL)"),
            release_showing: fill("CALL {t}_release_showing($1, $2, $3, $4, NULL)"),
            keep: fill("CALL {t}_keep($1, $2, $3, $4, $5, NULL)"),
            acquire_beside: fill("SELECT {t}_acquire_beside($1, $2, $3, $4, $5, $6)"),
            release_beside: fill("CALL {t}_release_beside($1, $2, $3, $4, NULL)"),
            renew_beside: fill("SELECT {t}_renew_beside($1, $2, $3) AS owner"),
            resize: fill("SELECT {t}_resize($1, $2, $3)"),
            proclaim: fill("SELECT {t}_proclaim($1, $2, $3, $4)"),
            renew: fill(
                "UPDATE {t}_lock AS l SET lease_us = j.lease, expires_us = {t}_now() + j.lease
                FROM unnest($1::text[], $2::text[], $3::bigint[]) AS j(name, owner, lease)
                WHERE l.name = j.name AND l.owner = j.owner AND l.expires_us > {t}_now() RETURNING l.owner",
            ),
            look: fill("SELECT holder, given, from_us, left_us, in_line, now_us FROM {t}_look($1, $2, $3, $4)"),
            inspect: fill(&status("SELECT $1 COLLATE \"C\" AS name")),
            holder: fill(&format!(
                "SELECT owner, token, {{t}}_now() - since_us AS held_us, expires_us - {{t}}_now() AS left_us, {VALUE}
                FROM {{t}}_lock AS l WHERE name = $1 AND owner IS NOT NULL AND expires_us > {{t}}_now()",
            )),
            list: fill(&format!(
                "{} ORDER BY n.name LIMIT $4",
                status(
                    "SELECT name FROM {t}_lock WHERE name >= $1 AND name > $2 AND name < $3
                        AND owner IS NOT NULL AND expires_us > {t}_now()
                    UNION SELECT name FROM {t}_waiter WHERE name >= $1 AND name > $2 AND name < $3
                        AND {t}_lives(client, {t}_now())"
                )
            )),
            raise: fill(
                "INSERT INTO {t}_lock AS l (name, token, lease_us, since_us, expires_us, waited_for)
                SELECT $1, greatest($2, m.value), 0, {t}_now(), {t}_now(), EXISTS (SELECT FROM {t}_waiter AS w WHERE w.name = $1)
                    FROM {t}_meta AS m WHERE m.key = 'floor'
                ON CONFLICT (name) DO UPDATE SET token = $2 WHERE l.token < $2",
            ),
            reserve: fill(
                "INSERT INTO {t}_lock AS l (name, token, lease_us, since_us, expires_us)
                SELECT $1, now.us, ($3::bigint <= $4::bigint)::int, $3, now.us + ($3 <= $4)::int * $2::bigint
                    FROM (SELECT {t}_now() AS us OFFSET 0) AS now
                ON CONFLICT (name) DO UPDATE SET token = EXCLUDED.token,
                    lease_us = (greatest(l.expires_us - EXCLUDED.token, 0) + $3 <= $4)::int,
                    since_us = greatest(l.expires_us - EXCLUDED.token, 0) + $3,
                    expires_us = greatest(l.expires_us, EXCLUDED.token)
                        + (greatest(l.expires_us - EXCLUDED.token, 0) + $3 <= $4)::int * $2
                RETURNING since_us AS wait_us, lease_us AS fits",
            ),
            sweep: SWEPT.map(|(table, key, place, old)| {
                let sweep = SWEEP.replace("{table}", table).replace("{key}", key);
                fill(&sweep.replace("{place}", place).replace("{old}", old).replace("{some}", &SWEPT_AT_ONCE.to_string()))
            }),
            doctor: fill(
                "SELECT current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
                    current_setting('synchronous_commit') AS synchronous_commit, current_setting('server_encoding') AS encoding,
                    current_setting('synchronous_standby_names') AS synchronous_standbys,
                    (SELECT count(*) FROM pg_stat_replication) AS standbys,
                    (SELECT relpersistence::text FROM pg_class WHERE oid = '{t}_lock'::regclass) AS persistence,
                    (SELECT n.nspname = session_user FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                        WHERE c.oid = '{t}_lock'::regclass) AS own,
                    ARRAY(SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = '{bare}_lock' AND relkind = 'r'
                        AND relpersistence <> 't' ORDER BY 1) AS schemas",
            ),
        }
    }
}

/// The row of a statement that always answers one.
pub(crate) fn the_row(answer: &Answer<sqlx::Postgres>) -> Result<&PgRow> {
    answer.rows.first().ok_or_else(|| Error::new(ErrorKind::Unknown, "the server answered nothing"))
}
