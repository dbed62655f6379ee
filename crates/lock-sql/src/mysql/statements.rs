//! All the SQL. Each statement decides alone and commits by itself, but for those of [`HAND_OVER`].
//!
//! `{now}` is the time at which it is come to, also after a wait for a row: NOW() would be the time at which the
//! statement began.
//!
//! **No waiter is forgotten.** Whoever enters the line first writes its row, then sees to `line_us`, and then looks at
//! the lock. A release that frees the lock without a look at the line needs `line_us` to be over, so it came before that
//! was written, and the look finds a free lock; any other holds the lock's row while it reads the line, with locks on
//! what it reads and on the gaps, and so either sees the row, or ended before it was written, and the look finds the lock
//! free. Who finds it so hands it over itself.
//! What is decided here, by what was read before, is written only if whoever has entered since stands behind somebody who
//! is left in line, and whom nobody could serve yet: so nobody who enters is in the way of those who write.
//!
//! **Nobody is given a lock that does not want it any more.** A hand-over locks the row of the waiter that it chooses until
//! it commits. Who leaves deletes that row first and releases then: either the row is gone for the hand-over, or the
//! release finds what it was given, and passes it on. And nobody who holds the lock is in line for it: who enters anew,
//! perhaps granted meanwhile, writes no row then.
//!
//! **Nobody is given a lock after giving up.** A grant locks the gap in `gone` in which its owner's mark would be, until it
//! commits: so who gives up has to wait for it, and then finds what it was given. Marks are spread over many gaps, with
//! rows between them that stay: or the grants of all others would keep who gives up waiting.
//!
//! **Nobody is told of a grant that a crash of the server would undo.** See [`HAND_OVER`].

use super::hand_over::{HAND_OVER, KEEP, READ, safe};
use crate::server::{Statement, Table};

/// What makes the tables.
pub(super) const SCHEMA: &str = include_str!("schema.sql");

/// The version of the tables, in `meta`.
pub(super) const VERSION: i64 = 5;

/// Answers the mode of the tables, and their version.
pub(super) const MODE: &str = "SELECT (SELECT value FROM {t}_meta WHERE name = 'version') AS version,
    (SELECT CONVERT(place USING utf8mb4) FROM {t}_meta WHERE name = 'mode') AS mode";

/// How many leases one statement prolongs, with one parameter for each key and each owner.
pub(super) const RENEWED_AT_ONCE: usize = 100;

/// How many rows of a table are looked at by one sweep, and how many of these go by one statement.
pub(super) const SWEPT_AT_ONCE: usize = 500;
pub(super) const DELETED_AT_ONCE: usize = 50;

/// The tables that are swept: the index of their key, the key, their tokens, which stay as the floor for new rows, and what
/// is of no use any more.
const SWEPT: [(&str, &str, &str, &str, &str); 6] = [
    ("lock", "PRIMARY", "name", "token", "expires_us < {now} - 86400000000"),
    // They keep their places for a minute, should their client only be cut off.
    (
        "waiter",
        "PRIMARY",
        "owner",
        "0",
        "(token > 0 AND at_us < {now} - 60000000
            OR NOT EXISTS (SELECT 1 FROM {t}_client AS c WHERE c.id = client AND c.seen_us > {now} - 60000000))",
    ),
    ("holder", "PRIMARY", "owner", "0", "expires_us < {now} - 60000000"),
    ("client", "PRIMARY", "id", "0", "seen_us < {now} - 3600000000"),
    ("gone", "PRIMARY", "mark", "0", "at_us < {now} - 3600000000"),
    // Of who died: neither in line, nor the last who had the lock. Whoever tries to take it has just written its row.
    (
        "value",
        "PRIMARY",
        "owner",
        "0",
        "(at_us < {now} - 60000000 AND NOT EXISTS (SELECT 1 FROM {t}_waiter AS w WHERE w.owner = {t}_value.owner)
            AND NOT EXISTS (SELECT 1 FROM {t}_lock AS l WHERE l.name = {t}_value.name AND {t}_value.owner = {before}))",
    ),
];

/// How one table is swept: to look reads without a lock, and what goes is named by its keys, so that no other row is locked.
#[derive(Debug)]
pub(super) struct Sweep {
    /// Answers the keys and tokens of the next rows, and whether they are of no use any more.
    pub(super) look: Statement,
    /// Deletes those of these that still are of no use. Keys.
    pub(super) delete: Statement,
    /// Notes where to go on. Key.
    pub(super) go_on: Statement,
}

/// Microseconds since 1970.
pub(crate) const NOW: &str = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";

/// Is the waiter `w` in line, and does its client still count? Not if it was not seen for three of its turns, or its bell
/// is gone.
const WAITS: &str = "w.token = 0 AND EXISTS (SELECT 1 FROM {t}_client AS c WHERE c.id = w.client AND IF(c.rings,
    ABS(c.seen_us - {now}) < 15000000 AND IS_USED_LOCK(CONCAT('oarlock_', c.id)) IS NOT NULL, ABS(c.seen_us - {now}) < 3000000))";

/// When the hold of the lock `l` ends, or the first of several.
const UNTIL: &str = "IF(l.owner = 'shared#' OR LEFT(l.owner, 8) = 'permits#',
    LEAST(l.expires_us, IFNULL((SELECT MIN(h.expires_us) FROM {t}_holder AS h WHERE h.name = l.name), 0)), l.expires_us)";

/// The statements, with the names of the tables. Where one is a script, `{key}`, `{owner}` and such stand in it for what
/// is put there.
#[derive(Debug)]
pub(super) struct Statements {
    /// As [`MODE`]; fails if the tables have another shape.
    pub(super) probe: Statement,
    /// Takes the lock, unless it is held, somebody may be in line, or the owner has given up. Changes one row or none,
    /// and answers the token as the inserted id. What it reads is what is committed: see [`SETUP`].
    /// Owner, owner, lease, lease, owner, key, owner, mark.
    pub(super) grant: Statement,
    /// A part of a script: the same.
    pub(super) grant_together: Statement,
    /// The same, but looks whether anybody else is in line. Key, owner, the parameters of the other, key, owner.
    pub(super) grant_past_line: Statement,
    /// Makes the row of a lock that has none. Key.
    pub(super) make: Statement,
    /// Answers how long the lock is held (null: free), whether this owner has it, its last token, the time, whether
    /// anybody else is in line, and whether the owner has given up. Owner, key, owner, mark, key.
    pub(super) look: Statement,
    /// Reserves a stretch of the line of a rate limiter. Its inserted id is one more than twice the time until whoever asked goes
    /// on, and one more than that if it was reserved; 0: there is no row. The row is that of a lock that nobody has:
    /// `expires_us` is until when the line is taken. Columns are set in this order. How much of the stretch has to be over
    /// first, how long that may be from now on, the same, the length of the stretch, key.
    pub(super) reserve: Statement,
    /// Ends a lease sooner that lasts longer than it should, because the clock went back. Key.
    pub(super) shorten: Statement,
    /// A script: enters the line, unless the owner has the lock or given up, or keeps the place that is there, notes that somebody is in line, and looks.
    pub(super) enter: Statement,
    /// A script: the same for who wants it beside others, unless what it is used as now is `{another}`. It answers as
    /// `state`.
    pub(super) enter_beside: Statement,
    /// Gives the owner's place in line back. Owner.
    pub(super) leave: Statement,
    /// Notes that the owner has given up. Its mark.
    pub(super) give_up: Statement,
    /// Releases the lock that the owner has, if nobody may be in line. Changes one row or none, and answers as the inserted
    /// id whether its lease still ran. Key, owner.
    pub(super) release: Statement,
    /// A script: the same where somebody may be in line, who then has it; see [`HAND_OVER`].
    pub(super) pass_on: Statement,
    /// A script: the same with a lock that nobody has any more.
    pub(super) serve: Statement,
    /// A script: the same with a lock that the owner, `{owner}` or `{only}`, reads, alone or with others.
    pub(super) end_reading: Statement,
    /// A script: lets the owner's hold go on without it, if its lease still runs, and tells the first in line that the end may
    /// be earlier; see [`KEEP`].
    pub(super) keep: Statement,
    /// Writes down, before the owner tries to take the lock, what it shows with it, unless that or a later value is there.
    /// Owner, key, value.
    pub(super) show: Statement,
    /// Shows another value with the lock that the owner holds, unless it said a later one. Changes nothing if it does not
    /// hold it. Value, when it said so by its own clock, key, owner.
    pub(super) proclaim: Statement,
    /// Deletes the owner's value, unless it has the lock, as it may if this comes late, or kept it. Owner.
    pub(super) hide: Statement,
    /// Shows that a client lives. Client, the session that is its bell, or 0.
    pub(super) seen: Statement,
    /// A script: what is waited for, by `{keys}`.
    pub(super) watched: Statement,
    /// A script: which of `{owners}` are in line.
    pub(super) in_line: Statement,
    /// A script: sleeps until the bell is rung, unless there are grants for this client already, but for those it was told.
    pub(super) sleep: Statement,
    /// A script: answers them, and whether they are known to be on the disk.
    pub(super) granted: Statement,
    /// A script: these `{rows}` were told.
    pub(super) heard: Statement,
    /// A script: rings a bell.
    pub(super) ring: Statement,
    /// Prolongs leases. Lease, lease, keys, owners.
    pub(super) renew: Statement,
    /// The same for a single one. Lease, lease, key, owner.
    pub(super) renew_one: Statement,
    /// Answers the holder of a lock, or nothing. Key.
    pub(super) holder: Statement,
    /// Answers the locks that are held or waited for: from a key on, after a key, before a key; the same again; how
    /// many.
    pub(super) list: Statement,
    /// Answers who waits for the locks from a key to a key.
    pub(super) waiters: Statement,
    /// Answers who holds locks together, from a key to a key.
    pub(super) holders: Statement,
    /// Answers everything about a lock at one moment: its row, who holds it together, and who is in line and lives, or
    /// does not. In no order, which would take a table of its own. A mark, and the key three times.
    pub(super) state: Statement,
    /// The beginning of a script: writes what was decided, if the lock is what it was, and all in line who are granted it are.
    pub(super) decide: Statement,
    /// What else is asked there, if nobody who lives is in line any more then.
    pub(super) nobody_else: Statement,
    /// What follows in it: who does not hold it together with others any more.
    pub(super) part_all: Statement,
    /// Who does from now on.
    pub(super) join: Statement,
    /// Who was in line, and is to hear of its grant.
    pub(super) granted_in_line: Statement,
    /// Who was in line, and asks.
    pub(super) out_of_line: Statement,
    /// What ends it, and rings a bell.
    pub(super) ring_if_done: Statement,
    /// What shows, before that, that the grant of one in line is on the disk: see [`safe`].
    pub(super) show_safe: Statement,
    /// A script: takes the lock to read, if nobody may be in line.
    pub(super) share: Statement,
    /// A script: ends one of several holds, if nobody may be in line.
    pub(super) part: Statement,
    /// A script: prolongs the lease of one of several.
    pub(super) renew_beside: Statement,
    /// The next grant's token is above this one. Token, key, token.
    pub(super) raise: Statement,
    /// Notes a sweep, if the last was so many microseconds ago.
    pub(super) sweep_is_due: Statement,
    /// Rows with tokens up to this one may go. Token, token.
    pub(super) raise_floor: Statement,
    /// Of each table that is swept.
    pub(super) sweep: [Sweep; SWEPT.len()],
}

/// What a new connection is told. Repeatable reads make what a change asks of other tables read, and lock, what is
/// committed; by weaker ones an owner's giving up could be overlooked.
pub(super) const SETUP: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    SET SESSION sql_mode = 'STRICT_ALL_TABLES', SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1, SESSION autocommit = 1, SESSION sql_safe_updates = 0";

/// Locks the lock's row before those of its holders. A condition of an UPDATE that does not name its row is looked at before
/// the row is locked, and what it looks at is locked first: so readers that come and go would wait for each other, and the
/// server would undo one after the other.
const ROW_FIRST: &str = " SET @oarlock = (SELECT l.rev FROM {t}_lock AS l WHERE l.name = {key} FOR UPDATE);";

/// The columns of a lock's holder.
const HOLDER: &str =
    "l.owner AS owner, l.token AS token, {now} - l.since_us AS held_us, l.expires_us - {now} AS left_us,
    (SELECT v.value FROM {t}_value AS v WHERE v.owner = {before}) AS value";

/// The owner in the row `l`, also after it kept its hold.
const BEFORE: &str = "IF(LEFT(l.owner, 5) = 'kept#', SUBSTRING(l.owner, 6), l.owner)";

/// What takes a lock, if nobody else has it. The columns that are read are set after that.
const GRANT: &str = "UPDATE {t}_lock SET {line}
    token = LAST_INSERT_ID(IF(owner = ? AND expires_us > {now}, token, GREATEST(token + 1, {now}))),
    since_us = IF(owner = ? AND expires_us > {now}, since_us, {now}),
    lease_us = ?, expires_us = {now} + ?, owner = ?
    WHERE name = ? AND (owner IS NULL OR owner = ? OR expires_us <= {now})
    AND NOT EXISTS (SELECT 1 FROM {t}_gone AS g WHERE g.mark = ?)";

/// After so many statements of `enter` it is done.
pub(super) const ENTERED: usize = 3;

/// For so long a bell sleeps at most, in seconds: what a ring that does not come costs, and how long whoever alters the
/// tables waits for it.
pub(super) const SLEEPS: u64 = 1;

/// The time until which somebody may be in line is never over while somebody is.
pub(super) const ALWAYS: &str = "9000000000000000000";

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let fill = |text: &str| {
            Statement::from(
                table
                    .fill(
                        &text
                            .replace("{row_first}", ROW_FIRST)
                            .replace("{until}", UNTIL)
                            .replace("{waits}", WAITS)
                            .replace("{safe}", &safe("w.client", "w.token", "w.owner"))
                            .replace("{given}", &safe("w.client", "l.token", "w.owner"))
                            .replace("{holder}", HOLDER)
                            .replace("{before}", BEFORE),
                    )
                    .replace("{now}", NOW),
            )
        };
        let many = vec!["?"; RENEWED_AT_ONCE].join(", ");
        let renew = |keys: &str| {
            fill(&format!(
                "UPDATE {{t}}_lock SET lease_us = ?, expires_us = {{now}} + ?
                WHERE name IN ({keys}) AND owner IN ({keys}) AND expires_us > {{now}}"
            ))
        };
        let look = |owner: &str, mark: &str, key: &str| {
            format!(
                "SELECT IF(l.owner IS NULL OR l.expires_us <= {{now}}, NULL, l.expires_us - {{now}}) AS left_us, l.lease_us,
                    IFNULL(l.owner = {owner}, 0) AS mine, l.token, {{now}} AS now_us,
                    IF(LEFT(l.owner, 8) = 'permits#' AND l.expires_us > {{now}}, CAST(SUBSTRING(l.owner, 9) AS SIGNED), 0) AS permits,
                    EXISTS (SELECT 1 FROM {{t}}_waiter AS w WHERE w.name = {key} AND w.owner <> {owner} AND {{waits}}) AS in_line,
                    EXISTS (SELECT 1 FROM {{t}}_gone AS g WHERE g.mark = {mark}) AS gone
                FROM {{t}}_lock AS l WHERE l.name = {key}"
            )
        };
        let state = |mark: &str, key: &str| {
            format!(
                "SELECT 0 AS what, l.owner AS owner, l.token AS a, l.expires_us AS b, l.rev AS c, l.since_us AS d, {{now}} AS e,
                    IF(EXISTS (SELECT 1 FROM {{t}}_gone AS g WHERE g.mark = {mark}), 'gone', '') AS text FROM {{t}}_lock AS l WHERE l.name = {key}
                UNION ALL SELECT 1, h.owner, h.token, h.expires_us, h.lease_us, h.since_us, 0, h.slots FROM {{t}}_holder AS h WHERE h.name = {key}
                UNION ALL SELECT 2, w.owner, w.ticket, w.lease_us, IFNULL(k.rings, 0), IF({{waits}}, 1, 0), 0, CONCAT(w.mode, ' ', w.client)
                    FROM {{t}}_waiter AS w LEFT JOIN {{t}}_client AS k ON k.id = w.client WHERE w.name = {key} AND w.token = 0"
            )
        };
        let hand_over = |first: &str, whose: &str, together: &str| {
            fill(&HAND_OVER.replace("{first}", first).replace("{whose}", whose).replace("{together}", together))
        };
        let together = "LEFT(l.owner, 7) = 'shared#' OR LEFT(l.owner, 8) = 'permits#'";
        Self {
            probe: fill(&format!(
                "{MODE}, {}",
                "(SELECT COUNT(*) FROM (SELECT name, owner, token, lease_us, since_us, expires_us, line_us, rev FROM {t}_lock LIMIT 1) AS l),
                    (SELECT COUNT(*) FROM (SELECT owner, name, ticket, lease_us, client, token, at_us, mode FROM {t}_waiter LIMIT 1) AS w),
                    (SELECT COUNT(*) FROM (SELECT owner, name, token, slots, lease_us, since_us, expires_us FROM {t}_holder LIMIT 1) AS h),
                    (SELECT COUNT(*) FROM (SELECT id, seen_us, rings FROM {t}_client LIMIT 1) AS c),
                    (SELECT COUNT(*) FROM (SELECT owner, name, value, said_us, at_us FROM {t}_value LIMIT 1) AS v),
                    (SELECT COUNT(*) FROM (SELECT mark, at_us FROM {t}_gone LIMIT 1) AS g)",
            )),
            grant: fill(&format!("{} AND line_us <= {{now}}", GRANT.replace("{line}", ""))),
            grant_together: fill(&format!(
                "{} AND line_us <= {{now}}",
                ["{owner}", "{owner}", "{lease}", "{lease}", "{owner}", "{key}", "{owner}", "{mark}"]
                    .iter()
                    .fold(GRANT.replace("{line}", ""), |text, value| text.replacen('?', value, 1))
            )),
            grant_past_line: fill(&format!(
                "{} AND NOT EXISTS (SELECT 1 FROM {{t}}_waiter AS w WHERE w.name = ? AND w.owner <> ? AND {{waits}})",
                GRANT.replace(
                    "{line}",
                    "line_us = IF(EXISTS (SELECT 1 FROM {t}_waiter AS w WHERE w.name = ? AND w.owner <> ? AND w.token = 0), line_us, 0),"
                )
            )),
            make: fill(
                "INSERT IGNORE INTO {t}_lock (name, owner, token, lease_us, since_us, expires_us)
                SELECT ?, NULL, value, 0, 0, 0 FROM {t}_meta WHERE name = 'floor'",
            ),
            look: fill(&look("?", "?", "?")),
            reserve: fill(
                "UPDATE {t}_lock SET since_us = GREATEST(expires_us - {now}, 0) + ?,
                    lease_us = LAST_INSERT_ID(2 * since_us + 1 + (since_us <= ?)),
                    expires_us = IF(since_us <= ?, GREATEST(expires_us, {now}) + ?, expires_us)
                WHERE name = ?",
            ),
            shorten: fill(
                "UPDATE {t}_lock SET expires_us = {now} + lease_us WHERE name = ? AND expires_us - {now} > lease_us",
            ),
            enter: fill(&format!(
                "INSERT INTO {{t}}_waiter (name, owner, ticket, lease_us, client)
                SELECT {{key}}, {{owner}}, {{now}}, {{lease}}, '{{client}}' FROM {{t}}_meta AS m
                    WHERE m.name = 'version' AND NOT EXISTS (SELECT 1 FROM {{t}}_gone AS g WHERE g.mark = {{mark}})
                    AND NOT EXISTS (SELECT 1 FROM {{t}}_lock AS l WHERE l.name = {{key}} AND l.expires_us > {{now}}
                        AND (l.owner = {{owner}} OR LEFT(l.owner, 8) = 'permits#'))
                ON DUPLICATE KEY UPDATE ticket = IF(token = 0, ticket, VALUES(ticket)),
                    client = '{{client}}', lease_us = {{lease}}, token = 0, at_us = 0;
                UPDATE {{t}}_lock SET line_us = {ALWAYS} WHERE name = {{key}} AND line_us < {ALWAYS};
                {}",
                look("{owner}", "{mark}", "{key}")
            )),
            enter_beside: fill(&format!(
                "START TRANSACTION;{{row_first}}
                UPDATE {{t}}_lock SET line_us = {ALWAYS} WHERE name = {{key}}
                    AND (owner IS NULL OR expires_us <= {{now}} OR owner <> {{only}} AND NOT ({{another}}))
                    AND NOT EXISTS (SELECT 1 FROM {{t}}_gone AS g WHERE g.mark = {{mark}})
                    AND NOT EXISTS (SELECT 1 FROM {{t}}_holder AS h WHERE h.owner = {{owner}} AND h.expires_us > {{now}});
                SET @oarlock = ROW_COUNT();
                INSERT INTO {{t}}_waiter (name, owner, ticket, lease_us, client, mode)
                    SELECT {{key}}, {{owner}}, {{now}}, {{lease}}, '{{client}}', {{mode}} FROM {{t}}_meta AS m
                    WHERE m.name = 'version' AND @oarlock = 1
                    ON DUPLICATE KEY UPDATE ticket = IF(token = 0, ticket, VALUES(ticket)),
                    client = '{{client}}', lease_us = {{lease}}, token = 0, at_us = 0;
                COMMIT;
                {}",
                state("{mark}", "{key}")
            )),
            leave: fill("DELETE FROM {t}_waiter WHERE owner = ?"),
            give_up: fill("INSERT IGNORE INTO {t}_gone VALUES (?, {now})"),
            release: fill(
                "UPDATE {t}_lock SET since_us = LAST_INSERT_ID(expires_us > {now}), owner = NULL
                    WHERE name = ? AND owner = ? AND line_us <= {now}",
            ),
            pass_on: hand_over("", "owner = {owner}", together),
            serve: hand_over("", "(owner IS NULL OR expires_us <= {now})", together),
            // Where others go on to read, nobody else can do so now.
            end_reading: hand_over(
                READ,
                "@oarlock = 1 AND (owner = {only} OR NOT EXISTS (
                    SELECT 1 FROM {t}_holder AS h WHERE h.name = {key} AND h.expires_us > {now}))",
                "FALSE",
            ),
            keep: fill(KEEP),
            show: fill(
                "INSERT INTO {t}_value (owner, name, value, at_us) VALUES (?, ?, ?, {now}) ON DUPLICATE KEY UPDATE at_us = {now}",
            ),
            proclaim: fill(
                "INSERT INTO {t}_value (owner, name, value, said_us, at_us)
                SELECT l.owner, l.name, ?, ?, {now} FROM {t}_lock AS l WHERE l.name = ? AND l.owner = ? AND l.expires_us > {now}
                ON DUPLICATE KEY UPDATE value = IF(said_us <= VALUES(said_us), VALUES(value), value),
                    said_us = GREATEST(said_us, VALUES(said_us)), at_us = VALUES(at_us)",
            ),
            hide: fill(
                "DELETE FROM {t}_value WHERE owner = ?
                    AND NOT EXISTS (SELECT 1 FROM {t}_lock AS l WHERE l.name = {t}_value.name AND {t}_value.owner = {before})",
            ),
            seen: fill("INSERT INTO {t}_client VALUES (?, {now}, ?) ON DUPLICATE KEY UPDATE seen_us = {now}"),
            watched: fill(
                "SELECT l.name, l.owner, l.lease_us, {now} AS now_us,
                    IF(l.owner IS NULL OR {until} <= {now}, NULL, {until} - {now}) AS left_us
                FROM {t}_lock AS l WHERE l.name IN ({keys})",
            ),
            in_line: fill("SELECT w.owner FROM {t}_waiter AS w WHERE w.owner IN ({owners}) AND w.token = 0"),
            sleep: fill(&format!(
                "SELECT IF(EXISTS (SELECT 1 FROM {{t}}_waiter AS w WHERE w.client = '{{client}}' AND w.token > 0{{told}}), 0,
                    GET_LOCK('oarlock_{{client}}', {SLEEPS}))"
            )),
            granted: fill(
                "SELECT w.owner, w.token, w.at_us, IS_USED_LOCK({safe}) IS NOT NULL AS safe, (SELECT h.slots FROM {t}_holder AS h WHERE h.owner = w.owner AND h.token = w.token) AS slots
                FROM {t}_waiter AS w WHERE w.client = '{client}' AND w.token > 0{told} LOCK IN SHARE MODE",
            ),
            heard: fill("DELETE FROM {t}_waiter WHERE {rows}"),
            ring: fill("KILL QUERY IF(IS_USED_LOCK('oarlock_{client}') IS NULL, 0, {bell})"),
            renew: renew(&many),
            renew_one: renew("?"),
            holder: fill(
                "SELECT {holder} FROM {t}_lock AS l WHERE l.name = ? AND l.owner IS NOT NULL AND l.expires_us > {now}",
            ),
            list: fill(
                "SELECT n.name AS name, {holder} FROM (
                    SELECT name FROM {t}_lock WHERE name >= ? AND name > ? AND name < ? AND owner IS NOT NULL AND expires_us > {now}
                    UNION SELECT w.name FROM {t}_waiter AS w WHERE w.name >= ? AND w.name > ? AND w.name < ? AND {waits}
                ) AS n
                LEFT JOIN {t}_lock AS l ON l.name = n.name AND l.owner IS NOT NULL AND l.expires_us > {now}
                ORDER BY n.name LIMIT ?",
            ),
            waiters: fill(
                "SELECT w.name AS name, w.owner AS owner, w.mode AS mode FROM {t}_waiter AS w WHERE w.name >= ? AND w.name <= ? AND {waits}
                ORDER BY w.name, w.ticket",
            ),
            holders: fill(
                "SELECT h.name, h.owner, h.token, h.slots, {now} - h.since_us AS held_us, h.expires_us - {now} AS left_us
                FROM {t}_holder AS h WHERE h.name >= ? AND h.name <= ? AND h.expires_us > {now} ORDER BY h.name, h.token",
            ),
            state: fill(&state("?", "?")),
            decide: fill(
                "START TRANSACTION;
                UPDATE {t}_lock SET owner = {owner}, token = {token}, since_us = {since}, lease_us = {lease}, expires_us = {expires},
                    line_us = {line}, rev = rev + 1
                    WHERE name = {key} AND rev = {rev} AND token = {seen_token} AND owner <=> {seen_owner} AND expires_us = {seen_expires}
                    AND NOT EXISTS (SELECT 1 FROM {t}_gone AS g WHERE g.mark = {mark})
                    AND (SELECT COUNT(*) FROM {t}_waiter AS w WHERE w.owner IN ({granted}) AND w.name = {key} AND w.token = 0) = {count}{and};
                SET @oarlock = ROW_COUNT()",
            ),
            nobody_else: fill(
                " AND NOT EXISTS (SELECT 1 FROM {t}_waiter AS w WHERE w.name = {key} AND w.token = 0 AND w.owner NOT IN ({known}))",
            ),
            part_all: fill("; DELETE FROM {t}_holder WHERE owner IN ({owners}) AND @oarlock = 1"),
            join: fill(
                "; INSERT INTO {t}_holder (owner, name, token, slots, lease_us, since_us, expires_us)
                    SELECT {owner}, {key}, {token}, {slots}, {lease}, {since}, {expires} FROM {t}_meta AS m
                    WHERE m.name = 'version' AND @oarlock = 1",
            ),
            granted_in_line: fill("; UPDATE {t}_waiter SET token = {token}, at_us = {at} WHERE owner = {owner} AND @oarlock = 1"),
            out_of_line: fill("; DELETE FROM {t}_waiter WHERE owner = {owner} AND @oarlock = 1"),
            show_safe: fill(&format!(", IF(@oarlock = 1, GET_LOCK({}, 0), 0)", safe("'{client}'", "{token}", "{owner}"))),
            ring_if_done: fill("; KILL QUERY IF(@oarlock = 1 AND IS_USED_LOCK('oarlock_{client}') IS NOT NULL, {bell}, 0)"),
            share: fill(
                "START TRANSACTION;{row_first}
                UPDATE {t}_lock SET token = LAST_INSERT_ID(GREATEST(token + 1, {now})),
                    since_us = IF(owner = 'shared#' AND expires_us > {now}, since_us, {now}),
                    expires_us = GREATEST(IF(owner = 'shared#', expires_us, 0), {now} + {lease}), lease_us = expires_us - {now},
                    owner = 'shared#', rev = rev + 1
                    WHERE name = {key} AND line_us <= {now} AND (owner IS NULL OR owner = 'shared#' OR expires_us <= {now})
                    AND NOT EXISTS (SELECT 1 FROM {t}_gone AS g WHERE g.mark = {mark})
                    AND NOT EXISTS (SELECT 1 FROM {t}_holder AS h WHERE h.owner = {owner});
                SET @oarlock = ROW_COUNT();
                DELETE FROM {t}_holder WHERE name = {key} AND expires_us <= {now} AND @oarlock = 1;
                INSERT INTO {t}_holder (owner, name, token, slots, lease_us, since_us, expires_us)
                    SELECT {owner}, {key}, l.token, '', {lease}, {now}, {now} + {lease} FROM {t}_lock AS l
                    WHERE l.name = {key} AND @oarlock = 1;
                COMMIT",
            ),
            part: fill(
                "START TRANSACTION;
                UPDATE {t}_lock SET rev = rev + 1 WHERE name = {key} AND line_us <= {now} AND expires_us > {now}
                    AND (owner = 'shared#' OR LEFT(owner, 8) = 'permits#');
                SET @oarlock = ROW_COUNT();
                DELETE FROM {t}_holder WHERE owner = {owner} AND expires_us > {now} AND @oarlock = 1;
                UPDATE {t}_lock SET owner = IF(EXISTS (SELECT 1 FROM {t}_holder AS h WHERE h.name = {key} AND h.expires_us > {now}), owner, NULL),
                    expires_us = IFNULL((SELECT MAX(h.expires_us) FROM {t}_holder AS h WHERE h.name = {key}), expires_us)
                    WHERE name = {key} AND @oarlock = 1;
                COMMIT",
            ),
            renew_beside: fill(
                "START TRANSACTION;{row_first}
                UPDATE {t}_lock SET expires_us = GREATEST(expires_us, {now} + {lease}), lease_us = expires_us - {now}, rev = rev + 1
                    WHERE name = {key} AND expires_us > {now} AND (owner = 'shared#' OR LEFT(owner, 8) = 'permits#')
                    AND EXISTS (SELECT 1 FROM {t}_holder AS h WHERE h.owner = {owner} AND h.expires_us > {now});
                SET @oarlock = ROW_COUNT();
                UPDATE {t}_holder SET lease_us = {lease}, expires_us = {now} + {lease} WHERE owner = {owner} AND @oarlock = 1;
                COMMIT",
            ),
            raise: fill("UPDATE {t}_lock SET token = ? WHERE name = ? AND token < ?"),
            sweep_is_due: fill("UPDATE {t}_meta SET value = {now} WHERE name = 'swept' AND ABS({now} - value) >= ?"),
            raise_floor: fill("UPDATE {t}_meta SET value = ? WHERE name = 'floor' AND value < ?"),
            sweep: SWEPT.map(|(table, index, key, token, old)| {
                let keys = vec!["?"; DELETED_AT_ONCE].join(", ");
                let fill = |text: &str| {
                    let text = text.replace("{table}", table).replace("{index}", index).replace("{key}", key);
                    fill(&text.replace("{token}", token).replace("{old}", old).replace("{keys}", &keys))
                };
                Sweep {
                    look: fill(&format!(
                        "SELECT {{key}} AS swept, {{token}} AS token, {{old}} AS old FROM {{t}}_{{table}} FORCE INDEX ({{index}})
                            WHERE {{key}} > (SELECT place FROM {{t}}_meta WHERE name = '{{table}}') ORDER BY {{key}} LIMIT {SWEPT_AT_ONCE}"
                    )),
                    delete: fill(
                        "DELETE FROM {t}_{table} WHERE {key} IN ({keys}) AND {old}
                            AND {token} <= (SELECT value FROM {t}_meta WHERE name = 'floor')",
                    ),
                    go_on: fill("UPDATE {t}_meta SET place = ? WHERE name = '{table}'"),
                }
            }),
        }
    }
}
