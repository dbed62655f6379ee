//! All the SQL. Each statement decides alone and commits by itself.
//!
//! `{now}` is the time at which it is come to, also after a wait for a row: NOW() would be the time at which the
//! statement began.

use crate::server::{Statement, Table};

/// What makes the tables.
pub(super) const SCHEMA: &str = include_str!("schema.sql");

/// The version of the tables, in `meta`.
pub(super) const VERSION: i64 = 2;

/// How many leases one statement prolongs, with one parameter for each key and each owner.
pub(super) const RENEWED_AT_ONCE: usize = 100;

/// How many rows of a table are looked at by one sweep, and how many of these go by one statement.
pub(super) const SWEPT_AT_ONCE: usize = 500;
pub(super) const DELETED_AT_ONCE: usize = 50;

/// The tables that are swept: the index of their key, the key, their tokens, which stay as the floor for new rows, and what
/// is of no use any more.
const SWEPT: [(&str, &str, &str, &str, &str); 3] = [
    ("lock", "PRIMARY", "name", "token", "expires_us < {now} - 86400000000"),
    ("waiter", "owner", "owner", "0", "seen_us < {now} - 60000000"),
    ("gone", "PRIMARY", "owner", "0", "at_us < {now} - 3600000000"),
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
const NOW: &str = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";

/// Does the waiter `w` still count? One that was not seen for three seconds has lost its turn, though not its place.
const LIVES: &str = "ABS(w.seen_us - {now}) < 3000000";

/// The statements, with the names of the tables.
#[derive(Debug)]
pub(super) struct Statements {
    /// Answers the tables' version; fails if they have another shape.
    pub(super) probe: Statement,
    /// Takes the lock, unless it is held, somebody may be in line, or the owner has given up. Changes one row or none,
    /// and answers the token as the inserted id. What it reads is what is committed: see [`SETUP`].
    /// Owner, owner, lease, lease, owner, key, owner, owner.
    pub(super) grant: Statement,
    /// The same, but looks whether anybody is in line before the ticket, which takes half as long again.
    /// Notes whether anybody else is. Key, owner, the parameters of the other, key, ticket, owner.
    pub(super) grant_in_line: Statement,
    /// Makes the row of a lock that has none. Key.
    pub(super) make: Statement,
    /// Answers how long the lock is held (null: free), how often it was granted, how many are before the ticket, and
    /// whether the owner has given up.
    /// Key, ticket, owner, owner, key.
    pub(super) look: Statement,
    /// Ends a lease sooner that lasts longer than it should, because the clock went back. Key.
    pub(super) shorten: Statement,
    /// Draws a ticket, or keeps the one that is there, and answers it as the inserted id. Key, owner, owner.
    pub(super) enter: Statement,
    /// Keeps the owner's ticket alive. Owner.
    pub(super) stay: Statement,
    /// Notes that somebody is in line. Key.
    pub(super) line: Statement,
    /// Gives the owner's ticket back. Owner.
    pub(super) leave: Statement,
    /// Notes that the owner has given up. Owner.
    pub(super) give_up: Statement,
    /// Releases the lock that the owner has. Changes one row or none, and answers as the inserted id whether its lease
    /// still ran.
    /// Key, owner.
    pub(super) release: Statement,
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
    /// The next grant's token is above this one. Token, key, token.
    pub(super) raise: Statement,
    /// Notes a sweep, if the last was so many microseconds ago.
    pub(super) sweep_is_due: Statement,
    /// Rows with tokens up to this one may go. Token, token.
    pub(super) raise_floor: Statement,
    /// Of each table that is swept.
    pub(super) sweep: [Sweep; 3],
}

/// What a new connection is told. Repeatable reads make what a change asks of other tables read, and lock, what is
/// committed; by weaker ones an owner's giving up could be overlooked.
pub(super) const SETUP: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    SET SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1, SESSION autocommit = 1, SESSION sql_safe_updates = 0";

/// The columns of a lock's holder.
const HOLDER: &str =
    "l.owner AS owner, l.token AS token, {now} - l.since_us AS held_us, l.expires_us - {now} AS left_us";

/// Is anybody but this owner in line?
const LINE: &str =
    "line_us = IF(EXISTS (SELECT 1 FROM {t}_waiter AS w WHERE w.name = ? AND w.owner <> ?), line_us, 0),";

/// What takes a lock, if nobody else has it. The columns that are read are set after that.
const GRANT: &str = "UPDATE {t}_lock SET {line} turns = turns + 1,
    token = LAST_INSERT_ID(IF(owner = ? AND expires_us > {now}, token, GREATEST(token + 1, {now}))),
    since_us = IF(owner = ? AND expires_us > {now}, since_us, {now}),
    lease_us = ?, expires_us = {now} + ?, owner = ?
    WHERE name = ? AND (owner IS NULL OR owner = ? OR expires_us <= {now})
    AND NOT EXISTS (SELECT 1 FROM {t}_gone AS g WHERE g.owner = ?)";

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let fill = |text: &str| {
            Statement::from(
                table.fill(text).replace("{lives}", LIVES).replace("{holder}", HOLDER).replace("{now}", NOW),
            )
        };
        let many = vec!["?"; RENEWED_AT_ONCE].join(", ");
        let renew = |keys: &str| {
            fill(&format!(
                "UPDATE {{t}}_lock SET lease_us = ?, expires_us = {{now}} + ?
                WHERE name IN ({keys}) AND owner IN ({keys}) AND expires_us > {{now}}"
            ))
        };
        Self {
            probe: fill(
                "SELECT (SELECT value FROM {t}_meta WHERE name = 'version') AS version,
                    (SELECT COUNT(*) FROM (SELECT place FROM {t}_meta LIMIT 1) AS m),
                    (SELECT COUNT(*) FROM (SELECT name, owner, token, lease_us, since_us, expires_us, line_us, turns FROM {t}_lock LIMIT 1) AS l),
                    (SELECT COUNT(*) FROM (SELECT ticket, name, owner, seen_us FROM {t}_waiter LIMIT 1) AS w),
                    (SELECT COUNT(*) FROM (SELECT owner, at_us FROM {t}_gone LIMIT 1) AS g)",
            ),
            grant: fill(&format!("{} AND line_us <= {{now}}", GRANT.replace("{line}", ""))),
            grant_in_line: fill(&format!(
                "{} AND NOT EXISTS (SELECT 1 FROM {{t}}_waiter AS w
                    WHERE w.name = ? AND w.ticket < ? AND w.owner <> ? AND {{lives}})",
                GRANT.replace("{line}", LINE)
            )),
            make: fill(
                "INSERT IGNORE INTO {t}_lock (name, owner, token, lease_us, since_us, expires_us)
                SELECT ?, NULL, value, 0, 0, 0 FROM {t}_meta WHERE name = 'floor'",
            ),
            look: fill(
                "SELECT IF(l.owner IS NULL OR l.expires_us <= {now}, NULL, l.expires_us - {now}) AS left_us, l.lease_us, l.turns,
                    (SELECT COUNT(*) FROM {t}_waiter AS w
                        WHERE w.name = ? AND w.ticket < ? AND w.owner <> ? AND {lives}) AS ahead,
                    (SELECT COUNT(*) FROM {t}_gone AS g WHERE g.owner = ?) AS gone
                FROM {t}_lock AS l WHERE l.name = ?",
            ),
            shorten: fill(
                "UPDATE {t}_lock SET expires_us = {now} + lease_us WHERE name = ? AND expires_us - {now} > lease_us",
            ),
            enter: fill(
                "INSERT INTO {t}_waiter (name, owner, seen_us)
                SELECT ?, ?, {now} FROM {t}_meta AS m
                    WHERE m.name = 'version' AND NOT EXISTS (SELECT 1 FROM {t}_gone AS g WHERE g.owner = ?)
                ON DUPLICATE KEY UPDATE ticket = LAST_INSERT_ID(ticket), seen_us = {now}",
            ),
            stay: fill("UPDATE {t}_waiter SET seen_us = {now} WHERE owner = ?"),
            line: fill("UPDATE {t}_lock SET line_us = {now} + 3000000 WHERE name = ?"),
            leave: fill("DELETE FROM {t}_waiter WHERE owner = ?"),
            give_up: fill("INSERT IGNORE INTO {t}_gone VALUES (?, {now})"),
            release: fill(
                "UPDATE {t}_lock SET since_us = LAST_INSERT_ID(expires_us > {now}), owner = NULL WHERE name = ? AND owner = ?",
            ),
            renew: renew(&many),
            renew_one: renew("?"),
            holder: fill(
                "SELECT {holder} FROM {t}_lock AS l WHERE l.name = ? AND l.owner IS NOT NULL AND l.expires_us > {now}",
            ),
            list: fill(
                "SELECT n.name AS name, {holder} FROM (
                    SELECT name FROM {t}_lock WHERE name >= ? AND name > ? AND name < ? AND owner IS NOT NULL AND expires_us > {now}
                    UNION SELECT w.name FROM {t}_waiter AS w WHERE w.name >= ? AND w.name > ? AND w.name < ? AND {lives}
                ) AS n
                LEFT JOIN {t}_lock AS l ON l.name = n.name AND l.owner IS NOT NULL AND l.expires_us > {now}
                ORDER BY n.name LIMIT ?",
            ),
            waiters: fill(
                "SELECT w.name AS name, w.owner AS owner FROM {t}_waiter AS w WHERE w.name >= ? AND w.name <= ? AND {lives}
                    AND NOT EXISTS (SELECT 1 FROM {t}_lock AS l WHERE l.name = w.name AND l.owner = w.owner)
                ORDER BY w.name, w.ticket",
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
