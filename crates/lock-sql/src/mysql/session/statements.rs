//! All the SQL of locks by sessions. What is sent over a session is text, in which `{key}`, `{owner}` and such stand
//! for what is put there: the key as it is, which is hexadecimal digits; text in hexadecimal digits; and numbers.
//!
//! Statements on the tables in memory decide alone: such a table is locked as a whole by who writes to it. `{now}` is
//! the time at which it is come to.

use super::super::statements::{MODE, NOW};
use crate::server::{Statement, Table};

/// What makes the tables.
pub(crate) const SCHEMA: &str = include_str!("schema.sql");

/// So far the durable limit of tokens is ahead of those that are given.
pub(super) const AHEAD: i64 = 1 << 20;

/// How many rows of a table one sweep deletes.
pub(super) const SWEPT_AT_ONCE: u64 = 500;

/// What is swept: dead notes, also of clocks that went forward, unless a session has the lock; who waits no more; what
/// nobody shows any more.
const SWEPT: [&str; 3] = [
    "DELETE FROM {t}_hold WHERE expires_us < {now} - 60000000 AND name <> '' AND IS_USED_LOCK(k) IS NULL LIMIT {some}",
    "DELETE FROM {t}_wait WHERE at_us < {now} - 60000000 AND NOT IS_USED_LOCK(CONCAT('oarlock_s_', session)) <=> session LIMIT {some}",
    "DELETE FROM {t}_shown WHERE at_us < {now} - 60000000 AND NOT EXISTS (
        SELECT 1 FROM {t}_hold AS h WHERE h.k = {t}_shown.k AND {first} = {t}_shown.owner) LIMIT {some}",
];

/// The owner in the note `h`, also after it kept its hold.
const FIRST: &str = "IF(LEFT(h.owner, 5) = 'kept#', SUBSTRING(h.owner, 6), h.owner)";

/// What is answered of the holder in the note `h`.
const HOLDER: &str =
    "h.owner AS owner, h.token AS token, {now} - h.since_us AS held_us, h.expires_us - {now} AS left_us,
    (SELECT v.value FROM {t}_shown AS v WHERE v.owner = {first}) AS value";

/// Does the session of the row `w` wait? It asks for the server's lock; or it has that, while a note says that the hold
/// is another's.
const WAITING: &str = "IF(IS_USED_LOCK(w.k) <=> w.session,
    EXISTS (SELECT 1 FROM {t}_hold AS o WHERE o.k = w.k AND o.session <> w.session AND o.expires_us > {now}),
    IS_USED_LOCK(CONCAT('oarlock_w_', w.session)) <=> w.session)";

/// Which server this is. A replica has the rows of its primary, too.
const ME: &str = "CONCAT(@@hostname, ':', @@port, ':', @@server_id)";

/// What was counted from since this server started, as `e`.
const EPOCH: &str = "{t}_epoch AS e WHERE e.server = {me}";

/// Writes the note of a hold, if this session has the server's lock and there is none. Answers the token as the
/// inserted id.
const NOTE: &str = "INSERT IGNORE INTO {t}_hold (k, name, owner, session, lease_us, since_us, expires_us)
    SELECT '{key}', {name}, {owner}, {id}, {lease}, {now}, {now} + {lease} FROM DUAL WHERE @oarlock = 1 AND CONNECTION_ID() = {id}";

/// Takes the server's lock.
const GET: &str = "@oarlock = GET_LOCK('{key}', {patience})";

/// The same, with a lock of the session's own around it that shows that it waits.
const WAIT: &str = "@oarlock = GET_LOCK('oarlock_w_{id}', 0), {get}, @oarlock_w = RELEASE_LOCK('oarlock_w_{id}')";

/// Shows a value, before the note is written. Asked again, it leaves what was proclaimed meanwhile.
const SHOW: &str = "INSERT INTO {t}_shown (owner, k, value, said_us, at_us)
    SELECT {owner}, '{key}', {value}, 0, {now} FROM DUAL WHERE @oarlock = 1 ON DUPLICATE KEY UPDATE at_us = {now}; ";

/// Is the hold one that goes on without its session and its owner?
const KEPT: &str = "SELECT COUNT(*) AS is_kept FROM {t}_hold
    WHERE k = '{key}' AND owner = CONCAT('kept#', {owner}) AND expires_us > {now}";

/// Has it be seen for whom a session waits.
const WAITS: &str = "INSERT INTO {t}_wait (session, k, name, owner, at_us) VALUES ({id}, '{key}', {name}, {owner}, {now} - {waited})
    ON DUPLICATE KEY UPDATE at_us = IF(owner = {owner}, at_us, {now} - {waited}), k = '{key}', name = {name}, owner = {owner}";

/// The statements, with the names of the tables.
#[derive(Debug)]
pub(super) struct Statements {
    /// Answers the mode of the tables, and their version; fails if they have another shape.
    pub(super) probe: Statement,
    /// Answers what tokens are above since the server started, if that is known, and which server it is.
    pub(super) floor: Statement,
    /// Answers the server's clock.
    pub(super) now: Statement,
    /// The limit of tokens is this one at least. It is always written, so that what others wrote is on the disk then,
    /// too. Limit.
    pub(super) lift_ceiling: Statement,
    /// The same by more than was ever given, and than the clock says. Answers the limit before that as the inserted id.
    pub(super) leap: Statement,
    /// A script: tokens are above `{floor}`.
    pub(super) count_on: Statement,
    /// The same, which is what they are above since the server `{server}` started, unless another client said so
    /// before.
    pub(super) begin: Statement,
    /// Over a session: what it is told first. It answers which one it is, after how many seconds it is ended, whether
    /// it has a lock of its own that shows that it lives, and the floor.
    pub(super) open: Statement,
    /// Over a session: for how long it may be idle.
    pub(super) idle: Statement,
    /// Over a session: takes the server's lock, if that is free, and writes the note.
    pub(super) take: Statement,
    /// The same for who shows something.
    pub(super) take_showing: Statement,
    /// The same as `take`, after a wait of so many seconds.
    pub(super) wait: Statement,
    /// The same for who shows something.
    pub(super) wait_showing: Statement,
    /// Over a session that has the server's lock: takes the place of a note that is over.
    pub(super) take_over: Statement,
    /// The same for who shows something.
    pub(super) take_over_showing: Statement,
    /// Over a session: answers why there is no note of its.
    pub(super) seen: Statement,
    /// Over a session: gives the server's lock back.
    pub(super) let_go: Statement,
    /// Over a session: gives the lock back, if it was held. Who is woken by that comes to the note when this is done,
    /// for the table is locked until then.
    pub(super) release: Statement,
    /// What follows in it of who shows something, also by itself.
    pub(super) hide: Statement,
    /// Over a session: prolongs its hold.
    pub(super) renew: Statement,
    /// The same for a hold whose session has ended. Lease, lease, key, owner.
    pub(super) renew_alone: Statement,
    /// Ends a lease sooner that lasts longer than it should, because the clock went back. Key.
    pub(super) shorten: Statement,
    /// Has a hold go on without its session and its owner, and answers whether it does.
    pub(super) keep: Statement,
    /// The same over another connection, of a hold that lasts.
    pub(super) keep_alone: Statement,
    /// Answers whether a hold goes on without its session and its owner.
    pub(super) is_kept: Statement,
    /// Owner, key. Says that its hold was ended by somebody else; it stands among the values, and is swept with them.
    pub(super) mark_evicted: Statement,
    /// Owner, key. Answers a row if that was said.
    pub(super) was_evicted: Statement,
    /// Shows another value with the lock that its owner holds. Changes nothing if it does not hold it.
    /// Value, said, key, owner, said, value, said.
    pub(super) proclaim: Statement,
    /// Answers the session that a note names and that has its lock, and the floor. Key, owner.
    pub(super) noted: Statement,
    /// A script: ends a session, if it is of this floor. Fails if there is none.
    pub(super) end: Statement,
    /// A script: answers whether a session is there.
    pub(super) is_there: Statement,
    /// A script: frees what an owner has, or has by one session. The first statement says whether its lease still ran.
    /// The value goes if a note went. Otherwise this may be late, and another session of the same owner have shown the
    /// value and not written its note yet.
    pub(super) free: Statement,
    /// A script: answers what a session does.
    pub(super) look: Statement,
    /// A script, or over a session: has it be seen for whom a session waits.
    pub(super) waits: Statement,
    /// Over a session: it does not wait any more.
    pub(super) waits_no_more: Statement,
    /// Answers the holder of a lock, if there is one. Key.
    pub(super) holder: Statement,
    /// Answers who waits for the locks from a name to a name.
    pub(super) waiters: Statement,
    /// Answers the locks that are held or waited for: from a name on, after a name, before a name; the same again; how
    /// many.
    pub(super) list: Statement,
    /// Notes a sweep, if the last was so many microseconds ago.
    pub(super) sweep_is_due: Statement,
    pub(super) sweep: [Statement; SWEPT.len()],
}

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let fill = |text: &str| {
            let text = text.replace("{waiting}", WAITING).replace("{holder}", HOLDER).replace("{first}", FIRST);
            let text = text.replace("{epoch}", EPOCH).replace("{me}", ME);
            Statement::from(table.fill(&text).replace("{now}", NOW))
        };
        let take =
            |waiting: &str, between: &str| fill(&format!("SET {}; {between}{NOTE}", waiting.replace("{get}", GET)));
        let take_over = |between: &str| {
            fill(&format!("DELETE FROM {{t}}_hold WHERE k = '{{key}}' AND expires_us <= {{now}}; {between}{NOTE}"))
        };
        let count_on = "REPLACE INTO {t}_hold (k, name, owner, token, session, lease_us, since_us, expires_us)
            VALUES ('', '', '', {floor}, 0, 0, 0, 0)";
        let keep = |which: &str| {
            format!(
                "UPDATE {{t}}_hold SET owner = CONCAT('kept#', owner), session = 0, lease_us = {{rest}}, expires_us = {{now}} + {{rest}}
                    WHERE k = '{{key}}' AND owner = {{owner}}{which}; {KEPT}"
            )
        };
        Self {
            probe: fill(&format!(
                "{MODE}, {}",
                "(SELECT COUNT(*) FROM (SELECT one, server, floor FROM {t}_epoch LIMIT 1) AS e),
                    (SELECT COUNT(*) FROM (SELECT k, name, owner, token, session, lease_us, since_us, expires_us FROM {t}_hold LIMIT 1) AS h),
                    (SELECT COUNT(*) FROM (SELECT session, k, name, owner, at_us FROM {t}_wait LIMIT 1) AS w),
                    (SELECT COUNT(*) FROM (SELECT owner, k, value, said_us, at_us FROM {t}_shown LIMIT 1) AS v)",
            )),
            floor: fill("SELECT {me} AS me, (SELECT e.floor FROM {epoch}) AS floor"),
            now: fill("SELECT {now} AS now_us"),
            lift_ceiling: fill("UPDATE {t}_meta SET value = GREATEST(value + 1, ?) WHERE name = 'ceiling'"),
            leap: fill(&format!(
                "UPDATE {{t}}_meta SET value = LAST_INSERT_ID(GREATEST(value, {{now}})) + {AHEAD} WHERE name = 'ceiling'"
            )),
            count_on: fill(count_on),
            begin: fill(&format!(
                "{count_on}; INSERT INTO {{t}}_epoch (one, server, floor) VALUES (1, {{server}}, {{floor}})
                    ON DUPLICATE KEY UPDATE floor = IF(server = {{server}}, floor, {{floor}}), server = {{server}}"
            )),
            open: fill(
                "SET SESSION wait_timeout = {idle}, SESSION net_read_timeout = {idle}, SESSION net_write_timeout = {idle},
                    /*M! SESSION max_statement_time = 0, */ SESSION sql_mode = 'STRICT_ALL_TABLES', SESSION autocommit = 1,
                    SESSION lock_wait_timeout = 1, SESSION sql_safe_updates = 0;
                SELECT CAST(CONNECTION_ID() AS SIGNED) AS id, CAST(@@SESSION.wait_timeout AS SIGNED) AS idle,
                    GET_LOCK(CONCAT('oarlock_s_', CONNECTION_ID()), 0) AS is_shown, (SELECT e.floor FROM {epoch}) AS floor",
            ),
            idle: fill(
                "SET SESSION wait_timeout = {idle}, SESSION net_read_timeout = {idle}, SESSION net_write_timeout = {idle}; ",
            ),
            take: take("{get}", ""),
            take_showing: take("{get}", SHOW),
            wait: take(WAIT, ""),
            wait_showing: take(WAIT, SHOW),
            take_over: take_over(""),
            take_over_showing: take_over(SHOW),
            seen: fill(
                "SELECT CAST(@oarlock AS SIGNED) AS got, CAST(CONNECTION_ID() AS SIGNED) AS id, h.name AS name, h.owner AS owner,
                    h.token AS token, h.lease_us AS lease_us, h.expires_us - {now} AS left_us
                FROM (SELECT 1 AS one) AS d LEFT JOIN {t}_hold AS h ON h.k = '{key}'",
            ),
            let_go: fill("DO RELEASE_LOCK('{key}')"),
            release: fill("DELETE FROM {t}_hold WHERE k = '{key}' AND owner = {owner} AND RELEASE_LOCK('{key}') IS NOT NULL"),
            hide: fill("DELETE FROM {t}_shown WHERE owner = {owner}"),
            renew: fill(
                "UPDATE {t}_hold SET lease_us = {lease}, expires_us = {now} + {lease}, session = CONNECTION_ID()
                WHERE k = '{key}' AND owner = {owner}",
            ),
            renew_alone: fill(
                "UPDATE {t}_hold SET lease_us = ?, expires_us = {now} + ? WHERE k = ? AND owner = ? AND expires_us > {now}",
            ),
            shorten: fill(
                "UPDATE {t}_hold SET expires_us = {now} + lease_us WHERE k = ? AND expires_us > {now} + lease_us",
            ),
            keep: fill(&format!("{}; DO RELEASE_LOCK('{{key}}')", keep(""))),
            keep_alone: fill(&keep("{of_session} AND expires_us > {now}")),
            is_kept: fill(KEPT),
            mark_evicted: fill(
                "INSERT INTO {t}_shown (owner, k, value, said_us, at_us) VALUES (CONCAT('evicted#', ?), ?, '', 0, {now})
                    ON DUPLICATE KEY UPDATE at_us = {now}",
            ),
            was_evicted: fill("SELECT 1 AS was FROM {t}_shown WHERE owner = CONCAT('evicted#', ?) AND k = ?"),
            proclaim: fill(
                "INSERT INTO {t}_shown (owner, k, value, said_us, at_us)
                    SELECT h.owner, h.k, ?, ?, {now} FROM {t}_hold AS h WHERE h.k = ? AND h.owner = ? AND h.expires_us > {now}
                    ON DUPLICATE KEY UPDATE value = IF({t}_shown.said_us <= ?, ?, value),
                        said_us = GREATEST({t}_shown.said_us, ?), at_us = {now}",
            ),
            noted: fill(
                "SELECT CAST(h.session AS SIGNED) AS id, (SELECT e.floor FROM {epoch}) AS floor FROM {t}_hold AS h
                WHERE h.k = ? AND h.owner = ? AND h.session > 0 AND IS_USED_LOCK(h.k) <=> h.session",
            ),
            end: fill(
                "SELECT IF(EXISTS (SELECT 1 FROM {epoch} AND e.floor = {floor}), {id}, 0) INTO @oarlock; KILL CONNECTION @oarlock",
            ),
            is_there: fill("SELECT IS_USED_LOCK('oarlock_s_{id}') <=> {id} AS is_there FROM {epoch} AND e.floor = {floor}"),
            free: fill(
                "DELETE FROM {t}_hold WHERE k = '{key}' AND owner = {owner}{of_session} AND expires_us > {now};
                SET @oarlock_ended = ROW_COUNT();
                DELETE FROM {t}_hold WHERE k = '{key}' AND owner = {owner}{of_session};
                DELETE FROM {t}_shown WHERE owner = {first_owner} AND @oarlock_ended + ROW_COUNT() > 0 AND NOT EXISTS (
                    SELECT 1 FROM {t}_hold AS h
                    WHERE h.k = '{key}' AND h.owner IN ({first_owner}, CONCAT('kept#', {first_owner})))",
            ),
            look: fill(
                "SELECT IS_USED_LOCK('oarlock_s_{id}') <=> {id} AS is_there, IS_USED_LOCK('oarlock_w_{id}') <=> {id} AS waits,
                    EXISTS (SELECT 1 FROM {t}_hold AS h WHERE h.k = '{key}' AND h.owner = {owner}) AS has_it
                FROM {epoch} AND e.floor = {floor}",
            ),
            waits: fill(WAITS),
            waits_no_more: fill("DELETE FROM {t}_wait WHERE session = {id}"),
            holder: fill("SELECT {holder} FROM {t}_hold AS h WHERE h.k = ? AND h.expires_us > {now}"),
            waiters: fill(
                "SELECT w.name AS name, w.owner AS owner, '' AS mode FROM {t}_wait AS w WHERE w.name >= ? AND w.name <= ? AND {waiting}
                ORDER BY w.name, IS_USED_LOCK(w.k) <=> w.session DESC, w.at_us",
            ),
            list: fill(
                "SELECT n.name AS name, {holder} FROM (
                    SELECT f.k, f.name FROM {t}_hold AS f WHERE f.name >= ? AND f.name > ? AND f.name < ? AND f.expires_us > {now}
                    UNION SELECT w.k, w.name FROM {t}_wait AS w WHERE w.name >= ? AND w.name > ? AND w.name < ? AND {waiting}
                ) AS n LEFT JOIN {t}_hold AS h ON h.k = n.k AND h.expires_us > {now} ORDER BY n.name LIMIT ?",
            ),
            sweep_is_due: fill("UPDATE {t}_meta SET value = {now} WHERE name = 'swept' AND ABS({now} - value) >= ?"),
            sweep: SWEPT.map(|statement| fill(&statement.replace("{some}", &SWEPT_AT_ONCE.to_string()))),
        }
    }
}
