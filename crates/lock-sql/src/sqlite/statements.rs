//! All the SQL. Each statement decides alone, and commits by itself or with those that run beside it.
//!
//! The parameters are the same everywhere, see [`Ask`]: ?1 the lock's key, ?2 the owner, ?3 our boot, ?4 the host's
//! time, ?5 the wall clock, ?6 a lease, ?7 a ticket or a limit, ?8 a text. All times are in microseconds.

use rusqlite::Statement;

use super::host_clock::Moment;

/// The version of the tables below, in `oarlock_meta`.
pub(super) const VERSION: i64 = 2;

/// Is the row `l` held? One of another boot (the host restarted, or it is another host's file) goes by the wall clock.
/// More time left than its lease means that the wall clock went back. Then it has ended, since its owner ended with that
/// boot; but a kept hold needs no owner, and lasts for its whole time from the start of this boot, if that clock does
/// not say otherwise by then.
macro_rules! held {
    () => {
        "(l.owner IS NOT NULL AND CASE WHEN l.boot = ?3 THEN l.expires_us > ?4
            WHEN l.expires_wall_us - ?5 <= l.lease_us THEN l.expires_wall_us > ?5
            ELSE substr(l.owner, 1, 5) = 'kept#' AND l.lease_us > ?4 END)"
    };
}

/// How long the row `l` is still held.
macro_rules! left {
    () => {
        "CASE WHEN l.boot = ?3 THEN l.expires_us - ?4
            WHEN l.expires_wall_us - ?5 <= l.lease_us THEN l.expires_wall_us - ?5 ELSE l.lease_us - ?4 END"
    };
}

/// The owner of the row `l`, also after it kept its hold.
macro_rules! before {
    () => {
        "CASE WHEN substr(l.owner, 1, 5) = 'kept#' THEN substr(l.owner, 6) ELSE l.owner END"
    };
}

/// Does the waiter `w` still count? One that was not seen for three seconds has lost its turn, though not its place.
macro_rules! living {
    () => {
        "(w.boot = ?3 AND w.seen_us > ?4 - 3000000)"
    };
}

pub(super) use {held, left, living};

/// What a waiter with a ticket goes by: how long the lock is held (null: free), and how long somebody ahead counts even
/// if nothing more is seen of them (null: nobody is ahead).
macro_rules! view {
    ($ticket:literal) => {
        concat!(
            "(SELECT ",
            left!(),
            " FROM oarlock_lock AS l WHERE l.name = ?1 AND ",
            held!(),
            ") AS held_us,
             (SELECT max(w.seen_us) + 3000000 - ?4 FROM oarlock_waiter AS w
                WHERE w.name = ?1 AND w.ticket < ",
            $ticket,
            " AND w.owner <> ?2 AND ",
            living!(),
            ") AS ahead_us"
        )
    };
}

/// What a grant makes of the row `l` that is there. Who has it already keeps its token.
macro_rules! given {
    () => {
        concat!(
            "ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease_us = excluded.lease_us,
        since_us = CASE WHEN l.owner = excluded.owner AND ",
            held!(),
            " THEN l.since_us ELSE excluded.since_us END,
        expires_us = excluded.expires_us, expires_wall_us = excluded.expires_wall_us, boot = excluded.boot,
        token = CASE WHEN l.owner = excluded.owner AND ",
            held!(),
            " THEN l.token ELSE max(l.token + 1, excluded.token) END"
        )
    };
}

/// Where to wake the first in line.
macro_rules! first {
    () => {
        concat!(
            "(SELECT w.wake FROM oarlock_waiter AS w WHERE w.name = ?1 AND w.owner <> ?2 AND ",
            living!(),
            " ORDER BY w.ticket LIMIT 1)"
        )
    };
}

/// Makes the tables. A lock's row stays when it is released, so that its token goes on; a row that is deleted, by us or
/// by hand, leaves its token in `floor`. A grant takes the winner's ticket in the same write. A ticket that nobody has
/// looked after for a minute goes when the next one is drawn. An owner that let its hold go on without it has `kept#` before
/// it from then on, which is nobody's name.
pub(super) const SCHEMA: &str = "
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS oarlock_meta (
    key TEXT PRIMARY KEY, value INTEGER NOT NULL, place TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO oarlock_meta (key, value) VALUES ('version', 2), ('floor', 0), ('swept', 0);
CREATE TABLE IF NOT EXISTS oarlock_lock (
    name TEXT PRIMARY KEY, owner TEXT, lease_us INTEGER NOT NULL, since_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL, expires_wall_us INTEGER NOT NULL, boot INTEGER NOT NULL, token INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS oarlock_waiter (
    name TEXT NOT NULL, ticket INTEGER NOT NULL, owner TEXT NOT NULL, wake TEXT, seen_us INTEGER NOT NULL,
    boot INTEGER NOT NULL, PRIMARY KEY (name, ticket)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS oarlock_first_grant AFTER INSERT ON oarlock_lock BEGIN
    DELETE FROM oarlock_waiter WHERE name = NEW.name AND owner = NEW.owner;
END;
CREATE TRIGGER IF NOT EXISTS oarlock_grant AFTER UPDATE OF token ON oarlock_lock BEGIN
    DELETE FROM oarlock_waiter WHERE name = NEW.name AND owner = NEW.owner;
END;
CREATE TRIGGER IF NOT EXISTS oarlock_forget AFTER DELETE ON oarlock_lock WHEN OLD.token <= 36028797018963967 BEGIN
    UPDATE oarlock_meta SET value = OLD.token WHERE key = 'floor' AND value < OLD.token;
END;
CREATE TRIGGER IF NOT EXISTS oarlock_line AFTER INSERT ON oarlock_waiter BEGIN
    DELETE FROM oarlock_waiter WHERE name = NEW.name AND (boot <> NEW.boot OR seen_us < NEW.seen_us - 60000000);
END;
COMMIT;";

/// Makes the table of values, also in a file that an earlier release made. A row is there before its owner is granted
/// the lock, and counts only while that owner holds it, or kept it.
pub(super) const VALUES: &str = "
CREATE TABLE IF NOT EXISTS oarlock_value (
    name TEXT NOT NULL, owner TEXT NOT NULL, value TEXT NOT NULL, at_us INTEGER NOT NULL, PRIMARY KEY (name, owner)
) STRICT, WITHOUT ROWID";

/// Answers whether the tables were made.
pub(super) const IS_MADE: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'oarlock_meta'";

/// Answers the tables' version and, if they have our shape, fails in no other way.
pub(super) const PROBE: &str = "
SELECT (SELECT value FROM oarlock_meta WHERE key = 'version' AND place = ''), (SELECT value FROM oarlock_meta WHERE key = 'floor'),
    (SELECT count(*) FROM (SELECT name, owner, lease_us, since_us, expires_us, expires_wall_us, boot, token
        FROM oarlock_lock LIMIT 1)),
    (SELECT count(*) FROM (SELECT name, ticket, owner, wake, seen_us, boot, mode FROM oarlock_waiter LIMIT 1)),
    (SELECT count(*) FROM (SELECT name, owner, slots, mark, lease_us, since_us, expires_us, expires_wall_us, boot, token
        FROM oarlock_holder LIMIT 1)),
    (SELECT count(*) FROM (SELECT name, owner, value, at_us FROM oarlock_value LIMIT 1))";

/// Takes the lock for ?2 with the lease ?6, unless it is held or somebody is in line before the ticket ?7. Answers the
/// token, or nothing, and then nothing was written. The owner that already holds it keeps its token.
pub(super) const GRANT: &str = concat!(
    "INSERT INTO oarlock_lock AS l (name, owner, lease_us, since_us, expires_us, expires_wall_us, boot, token)
     SELECT ?1, ?2, ?6, ?4, ?4 + ?6, ?5 + ?6, ?3, max(?5, (SELECT value FROM oarlock_meta WHERE key = 'floor') + 1)
     WHERE NOT EXISTS (SELECT 1 FROM oarlock_waiter AS w
            WHERE w.name = ?1 AND w.ticket < ?7 AND w.owner <> ?2 AND ",
    living!(),
    ")
        OR EXISTS (SELECT 1 FROM oarlock_lock AS l WHERE l.name = ?1 AND l.owner = ?2 AND ",
    held!(),
    ")
     ",
    given!(),
    " WHERE l.owner = ?2 OR NOT ",
    held!(),
    "
     RETURNING token"
);

/// Takes all the locks in ?8, a JSON array of `[key, owner, lease]`, unless one is held by another or somebody is in line for
/// it. Answers the key and the token of each, or nothing, and then nothing was written. Whoever has them already keeps the
/// tokens.
pub(super) const GRANT_ALL: &str = concat!(
    "INSERT INTO oarlock_lock AS l (name, owner, lease_us, since_us, expires_us, expires_wall_us, boot, token)
     SELECT j.value ->> 0, j.value ->> 1, j.value ->> 2, ?4, ?4 + (j.value ->> 2), ?5 + (j.value ->> 2), ?3,
        max(?5, (SELECT value FROM oarlock_meta WHERE key = 'floor') + 1) + j.key
     FROM json_each(?8) AS j
     WHERE NOT EXISTS (SELECT 1 FROM json_each(?8) AS k LEFT JOIN oarlock_lock AS l ON l.name = k.value ->> 0
        WHERE CASE WHEN ",
    held!(),
    " THEN l.owner <> k.value ->> 1
            ELSE EXISTS (SELECT 1 FROM oarlock_waiter AS w
                WHERE w.name = k.value ->> 0 AND w.owner <> k.value ->> 1 AND ",
    living!(),
    ") END)
     ",
    given!(),
    " RETURNING name, token"
);

/// When the line of the rate limiter in the row `l` is free: not before now, and one of another boot is forgotten.
macro_rules! begins {
    () => {
        "max(CASE WHEN l.boot = ?3 THEN l.expires_us ELSE 0 END, ?4)"
    };
}

/// How long it is until whoever asks goes on, if the line is not free.
macro_rules! goes_on {
    () => {
        concat!(begins!(), " - ?4 + excluded.since_us")
    };
}

/// Until when the line is taken then.
macro_rules! line_end {
    () => {
        concat!(begins!(), " + (", goes_on!(), " <= ?7) * ?6")
    };
}

/// Reserves ?6 of the line of a rate limiter, of which ?8 has to be over first, if that is no longer than ?7 from now. The
/// row is that of a lock that nobody has: `expires_us` is until when the line is taken, `since_us` how long it is until
/// whoever asked goes on, and `lease_us` whether it was reserved. Answers these two.
pub(super) const RESERVE: &str = concat!(
    "INSERT INTO oarlock_lock AS l (name, owner, lease_us, since_us, expires_us, expires_wall_us, boot, token)
     SELECT ?1, NULL, f.ahead <= ?7, f.ahead, ?4 + (f.ahead <= ?7) * ?6, ?5 + (f.ahead <= ?7) * ?6, ?3, 0
     FROM (SELECT CAST(?8 AS INTEGER) AS ahead) AS f WHERE true
     ON CONFLICT (name) DO UPDATE SET
        lease_us = ",
    goes_on!(),
    " <= ?7, since_us = ",
    goes_on!(),
    ", expires_us = ",
    line_end!(),
    ", expires_wall_us = ",
    line_end!(),
    " - ?4 + ?5,
        boot = ?3
     RETURNING lease_us AS fits, since_us AS wait_us"
);

/// Draws a ticket, to be woken at ?8, or finds the one that the owner has. Answers the ticket and the view: telling
/// here that the lock is free closes the gap between an attempt that failed and a ticket that a release can see.
pub(super) const ENTER: &str = concat!(
    "INSERT INTO oarlock_waiter (name, ticket, owner, wake, seen_us, boot)
     SELECT ?1, coalesce((SELECT w.ticket FROM oarlock_waiter AS w WHERE w.name = ?1 AND w.owner = ?2),
        (SELECT max(w.ticket) + 1 FROM oarlock_waiter AS w WHERE w.name = ?1), 1), ?2, ?8, ?4, ?3
     WHERE true
     ON CONFLICT (name, ticket) DO UPDATE SET wake = excluded.wake, seen_us = excluded.seen_us, boot = excluded.boot
     RETURNING ticket, ",
    view!("oarlock_waiter.ticket"),
    ", (SELECT l.owner FROM oarlock_lock AS l WHERE l.name = ?1 AND ",
    held!(),
    ") AS phase"
);

/// Answers for how long the ticket ?7 was not seen (null: it is gone) and the view.
pub(super) const LOOK: &str = concat!(
    "SELECT (SELECT ?4 - w.seen_us FROM oarlock_waiter AS w
        WHERE w.name = ?1 AND w.ticket = ?7 AND w.owner = ?2 AND w.boot = ?3) AS unseen_us, ",
    view!("?7")
);

/// Keeps the ticket ?7 alive. No answer.
pub(super) const STAY: &str =
    "UPDATE oarlock_waiter SET seen_us = ?4, boot = ?3 WHERE name = ?1 AND ticket = ?7 AND owner = ?2";

/// Releases the lock that ?2 has. Answers, if it had it, whether its lease still ran, and where to wake the first in
/// line.
pub(super) const RELEASE: &str = concat!(
    "UPDATE oarlock_lock SET owner = NULL WHERE name = ?1 AND owner = ?2
     RETURNING CASE WHEN boot = ?3 THEN expires_us > ?4
        WHEN expires_wall_us - ?5 <= lease_us THEN expires_wall_us > ?5
        ELSE substr(?2, 1, 5) = 'kept#' AND lease_us > ?4 END AS in_time, ",
    first!(),
    " AS wake"
);

/// Lets the hold of ?2 go on without it for ?6, if its lease still runs. Answers, if so, where to wake the first in line,
/// for whom the end may now be earlier.
pub(super) const KEEP: &str = concat!(
    "UPDATE oarlock_lock SET owner = 'kept#' || ?2, lease_us = ?6, expires_us = ?4 + ?6, expires_wall_us = ?5 + ?6
     WHERE name = ?1 AND owner = ?2 AND boot = ?3 AND expires_us > ?4
     RETURNING ",
    first!(),
    " AS wake"
);

/// Writes down, before the owner ?2 tries to take the lock, that it shows ?8 with it, unless that or a later value is
/// there. No answer.
pub(super) const SHOW: &str = "
INSERT INTO oarlock_value (name, owner, value, at_us) VALUES (?1, ?2, ?8, ?5)
ON CONFLICT (name, owner) DO UPDATE SET at_us = excluded.at_us";

/// Shows ?8 with the lock that ?2 holds. Answers a row if it does hold it, and its lease still runs.
pub(super) const PROCLAIM: &str = "
INSERT INTO oarlock_value (name, owner, value, at_us)
SELECT ?1, ?2, ?8, ?5 FROM oarlock_lock AS l
    WHERE l.name = ?1 AND l.owner = ?2 AND l.boot = ?3 AND l.expires_us > ?4
ON CONFLICT (name, owner) DO UPDATE SET value = excluded.value, at_us = excluded.at_us
RETURNING 1";

/// Deletes the value of ?2, unless it holds the lock, or kept it. No answer.
pub(super) const HIDE: &str = concat!(
    "DELETE FROM oarlock_value AS v WHERE v.name = ?1 AND v.owner = ?2
        AND NOT EXISTS (SELECT 1 FROM oarlock_lock AS l WHERE l.name = ?1 AND v.owner = ",
    before!(),
    ")"
);

/// Gives the ticket of ?2 back. No answer.
pub(super) const LEAVE: &str = "DELETE FROM oarlock_waiter WHERE name = ?1 AND owner = ?2";

/// Answers where to wake the first in line, if the lock is free, or held by some whom others may join.
pub(super) const NEXT: &str = concat!(
    "SELECT ",
    first!(),
    " AS wake
     WHERE NOT EXISTS (SELECT 1 FROM oarlock_lock AS l WHERE l.name = ?1 AND ",
    held!(),
    " AND substr(l.owner, 1, 7) <> 'shared#' AND substr(l.owner, 1, 8) <> 'permits#')"
);

/// Lets the waiter that is not reached at ?8 lose its turn. If it lives after all, it is seen again at its next tick.
pub(super) const PASS_OVER: &str =
    "UPDATE oarlock_waiter SET seen_us = min(seen_us, ?4 - 3000000) WHERE name = ?1 AND wake = ?8";

/// Prolongs the leases in ?8, a JSON array of `[key, owner, lease]`. Answers the owners that still held theirs.
pub(super) const RENEW: &str = "
UPDATE oarlock_lock SET lease_us = j.lease, expires_us = ?4 + j.lease, expires_wall_us = ?5 + j.lease
FROM (SELECT value ->> 0 AS name, value ->> 1 AS owner, value ->> 2 AS lease FROM json_each(?8)) AS j
WHERE oarlock_lock.name = j.name AND oarlock_lock.owner = j.owner
    AND oarlock_lock.boot = ?3 AND oarlock_lock.expires_us > ?4
RETURNING owner";

/// Has the next grant's token above ?7. No answer.
pub(super) const RAISE: &str = "
INSERT INTO oarlock_lock AS l (name, owner, lease_us, since_us, expires_us, expires_wall_us, boot, token)
VALUES (?1, NULL, 0, ?4, ?4, ?5, ?3, ?7)
ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE l.token < excluded.token";

/// What is answered of a holder.
macro_rules! holder {
    () => {
        concat!(
            "l.owner AS owner, l.token AS token, l.lease_us AS lease_us, ",
            left!(),
            " AS left_us, CASE WHEN l.boot = ?3 THEN ?4 - l.since_us END AS held_us,
                (SELECT v.value FROM oarlock_value AS v WHERE v.name = l.name AND v.owner = ",
            before!(),
            ") AS value"
        )
    };
}

/// Answers who holds the lock, or nothing.
pub(super) const HOLDER: &str =
    concat!("SELECT ", holder!(), " FROM oarlock_lock AS l WHERE l.name = ?1 AND ", held!());

/// What is answered of a lock: its key, its holder, and its waiters as a JSON array.
macro_rules! status {
    () => {
        concat!(
            "SELECT n.name AS name, ",
            holder!(),
            ",
                (SELECT json_group_array(json_array(w.owner, w.mode)) FROM (SELECT * FROM oarlock_waiter AS w
                    WHERE w.name = n.name AND ",
            living!(),
            " ORDER BY w.ticket) AS w) AS waiters,
                CASE WHEN l.owner = 'shared#' OR substr(l.owner, 1, 8) = 'permits#' THEN
                    (SELECT json_group_array(json_array(h.owner, h.token, json(h.slots), ?4 - h.since_us, h.expires_us - ?4))
                    FROM (SELECT * FROM oarlock_holder AS h WHERE h.name = n.name AND h.boot = ?3 AND h.expires_us > ?4
                        ORDER BY h.token) AS h) END AS several"
        )
    };
}

/// Answers the status of one lock.
pub(super) const INSPECT: &str =
    concat!(status!(), " FROM (SELECT ?1 AS name) AS n LEFT JOIN oarlock_lock AS l ON l.name = n.name AND ", held!());

/// Answers the status of at most ?7 locks that are held or waited for, with keys from ?1 on, after ?2, and before ?8.
pub(super) const LIST: &str = concat!(
    status!(),
    " FROM (
        SELECT l.name FROM oarlock_lock AS l WHERE l.name >= ?1 AND l.name > ?2 AND l.name < ?8 AND ",
    held!(),
    "
        UNION SELECT w.name FROM oarlock_waiter AS w WHERE w.name >= ?1 AND w.name > ?2 AND w.name < ?8 AND ",
    living!(),
    "
     ) AS n LEFT JOIN oarlock_lock AS l ON l.name = n.name AND ",
    held!(),
    " ORDER BY n.name LIMIT ?7"
);

/// Answers, if the last sweep was ?6 ago, behind which name the next one begins, and with which it ends if it is one of ?7
/// rows (null: with the last of all).
pub(super) const SWEEP_IS_DUE: &str = "
SELECT m.place AS place, (SELECT l.name FROM oarlock_lock AS l WHERE l.name > m.place ORDER BY l.name LIMIT 1 OFFSET ?7 - 1) AS last
FROM oarlock_meta AS m WHERE m.key = 'swept' AND abs(m.value - ?5) >= ?6";

/// The names of a sweep: behind ?1, up to ?8. A blob is behind every text.
macro_rules! swept {
    ($row:literal) => {
        concat!($row, ".name > ?1 AND ", $row, ".name <= coalesce(?8, x'')")
    };
}

/// Deletes the rows of these names that have been free for a day, and answers one for each. The trigger keeps their tokens;
/// but of what no store of ours can have counted nothing is kept, and its row stays.
pub(super) const SWEEP: &str = concat!(
    "DELETE FROM oarlock_lock AS l WHERE ",
    swept!("l"),
    " AND l.expires_wall_us < ?5 - 86400000000 AND l.token <= 36028797018963967 AND NOT ",
    held!(),
    " RETURNING 1"
);

/// Deletes the tickets for these names that nobody has looked after for a minute. No answer.
pub(super) const SWEEP_LINE: &str =
    concat!("DELETE FROM oarlock_waiter AS w WHERE ", swept!("w"), " AND (w.boot <> ?3 OR w.seen_us < ?4 - 60000000)");

/// Deletes the values for these names that belong to no hold, and that nobody is about to take the lock with: who dies
/// leaves them behind. No answer.
pub(super) const SWEEP_VALUES: &str = concat!(
    "DELETE FROM oarlock_value AS v WHERE ",
    swept!("v"),
    " AND abs(v.at_us - ?5) > 60000000
        AND NOT EXISTS (SELECT 1 FROM oarlock_lock AS l WHERE l.name = v.name AND v.owner = ",
    before!(),
    ")"
);

/// Notes the sweep. No answer.
pub(super) const SWEEP_IS_DONE: &str =
    "UPDATE oarlock_meta SET value = ?5, place = coalesce(?8, '') WHERE key = 'swept'";

/// Move what the log has into the file: at first beside others that write, and then the rest of it, while nobody does,
/// so that the log is empty.
pub(super) const CHECKPOINTS: [&str; 2] = ["PRAGMA wal_checkpoint(PASSIVE)", "PRAGMA wal_checkpoint(TRUNCATE)"];

/// Answers the journal's mode.
pub(super) const JOURNAL_MODE: &str = "PRAGMA journal_mode";

/// Asks for a write-ahead log, and answers the mode that the journal now has.
pub(super) const USE_WAL: &str = "PRAGMA journal_mode = WAL";

/// Begins a transaction that several requests share, as one that writes.
pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";

/// Commits it.
pub(super) const COMMIT: &str = "COMMIT";

/// Undoes it.
pub(super) const ROLLBACK: &str = "ROLLBACK";

/// How a connection begins. A write costs its pages: ours are few and their rows short; a file that exists keeps its own
/// size. A crash of the host may take the last commits, but it takes every holder too, and tokens also follow the clock.
/// What has no holder is made to last by itself: see `Store::make_last`.
pub(super) const SETTINGS: &str = "PRAGMA page_size = 2048; PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = NORMAL";

/// From here on, the store itself waits for other writers.
pub(super) const WAIT_FOR_NOBODY: &str = "PRAGMA busy_timeout = 0";

/// A statement and its parameters; those that it does not name may stay empty.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ask<'a> {
    pub(super) statement: &'static str,
    /// ?1
    pub(super) key: &'a str,
    /// ?2
    pub(super) owner: &'a str,
    /// ?6
    pub(super) lease_us: i64,
    /// ?7
    pub(super) number: i64,
    /// ?8
    pub(super) text: Option<&'a str>,
    /// May it take long? Then it runs on a thread for blocking calls.
    pub(super) long: bool,
    /// Is it no part of a request?
    pub(super) beside: bool,
    /// Is the file made for it, and our tables in it, if they are missing?
    pub(super) makes: bool,
}

/// An [`Ask`] that waits for its turn.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) statement: &'static str,
    key: String,
    owner: String,
    lease_us: i64,
    number: i64,
    text: Option<String>,
    pub(super) long: bool,
    pub(super) makes: bool,
}

impl From<Ask<'_>> for Asked {
    fn from(ask: Ask<'_>) -> Self {
        let Ask { statement, key, owner, lease_us, number, text, long, makes, .. } = ask;
        let text = text.map(str::to_owned);
        Self { statement, key: key.to_owned(), owner: owner.to_owned(), lease_us, number, text, long, makes }
    }
}

impl Asked {
    /// Binds the parameters. A statement need not name the last ones.
    pub(super) fn bind(&self, statement: &mut Statement<'_>, boot: i64, now: Moment) -> rusqlite::Result<()> {
        let count = statement.parameter_count();
        for index in 1..=count {
            match index {
                1 => statement.raw_bind_parameter(index, &self.key)?,
                2 => statement.raw_bind_parameter(index, &self.owner)?,
                3 => statement.raw_bind_parameter(index, boot)?,
                4 => statement.raw_bind_parameter(index, now.host_us)?,
                5 => statement.raw_bind_parameter(index, now.wall_us)?,
                6 => statement.raw_bind_parameter(index, self.lease_us)?,
                7 => statement.raw_bind_parameter(index, self.number)?,
                _ => statement.raw_bind_parameter(index, self.text.as_deref())?,
            }
        }
        Ok(())
    }
}
