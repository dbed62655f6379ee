//! The SQL of locks that several hold at a time. The parameters are those of `statements`; ?8 is JSON, `{"m": "s"}` of who shares
//! the lock, `{"m": "p", "take": 2, "of": 5}` of who takes permits, and with `"wake"` of who waits.
//!
//! Then the row of the lock is held by a mark, `shared#` or `permits#5`, until the end of the longest lease, and each holder has
//! a row in `oarlock_holder`. So to whoever wants the lock alone it is one that is held. Triggers keep the two together: the
//! lock's row follows the holders', which go when the mark does.
//!
//! A reader that finds the lock free has no such row: it takes the lock as its owner would alone, under the name `shared#` and
//! its own, by the same statements and for the same price. It gets a row when the next reader comes. So whatever is done for
//! a reader is tried first under that name, and then by its row; never the other way round, since it may get one in between.

use super::statements::{held, left, living};

/// Is it marked, as what several hold?
macro_rules! marked {
    ($row:literal) => {
        concat!("(", $row, ".owner = 'shared#' OR substr(", $row, ".owner, 1, 8) = 'permits#')")
    };
}

/// Is it a reader's that took it while it was free?
macro_rules! only_reader {
    ($row:literal) => {
        concat!("(substr(", $row, ".owner, 1, 7) = 'shared#' AND ", $row, ".owner <> 'shared#')")
    };
}

/// Has the row of a lock follow those of its holders. (A trigger knows no names but those of the tables.)
macro_rules! follow {
    ($holder:literal) => {
        concat!(
            "UPDATE oarlock_lock SET
        owner = CASE WHEN EXISTS (SELECT 1 FROM oarlock_holder AS h WHERE h.name = oarlock_lock.name) THEN owner END,
        lease_us = coalesce((SELECT max(h.lease_us) FROM oarlock_holder AS h WHERE h.name = oarlock_lock.name), lease_us),
        expires_us = coalesce((SELECT max(h.expires_us) FROM oarlock_holder AS h WHERE h.name = oarlock_lock.name), expires_us),
        expires_wall_us = coalesce(
            (SELECT max(h.expires_wall_us) FROM oarlock_holder AS h WHERE h.name = oarlock_lock.name), expires_wall_us)
        WHERE name = ",
            $holder,
            ".name AND ",
            marked!("oarlock_lock"),
            "; "
        )
    };
}

/// Makes the table of holders, and gives waiters a mode, in a new file and in one that an earlier release made: '' of who wants
/// the lock alone, 's' beside others, 'p2/5' with two of five permits.
pub(super) const MODES: &str = concat!(
    "CREATE TABLE IF NOT EXISTS oarlock_holder (
    name TEXT NOT NULL, owner TEXT NOT NULL, slots TEXT NOT NULL, mark TEXT NOT NULL, lease_us INTEGER NOT NULL,
    since_us INTEGER NOT NULL, expires_us INTEGER NOT NULL, expires_wall_us INTEGER NOT NULL, boot INTEGER NOT NULL,
    token INTEGER NOT NULL, PRIMARY KEY (name, owner)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS oarlock_joins BEFORE INSERT ON oarlock_holder BEGIN
    DELETE FROM oarlock_holder WHERE name = NEW.name AND (boot <> NEW.boot OR expires_us <= NEW.since_us);
END;
CREATE TRIGGER IF NOT EXISTS oarlock_joined AFTER INSERT ON oarlock_holder BEGIN
    DELETE FROM oarlock_waiter WHERE name = NEW.name AND owner = NEW.owner;
    INSERT INTO oarlock_lock (name, owner, lease_us, since_us, expires_us, expires_wall_us, boot, token)
        VALUES (NEW.name, NEW.mark, NEW.lease_us, NEW.since_us, NEW.expires_us, NEW.expires_wall_us, NEW.boot, NEW.token)
        ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease_us = excluded.lease_us,
            since_us = CASE WHEN oarlock_lock.owner = excluded.owner THEN oarlock_lock.since_us ELSE excluded.since_us END,
            expires_us = excluded.expires_us, expires_wall_us = excluded.expires_wall_us, boot = excluded.boot,
            token = excluded.token; ",
    follow!("NEW"),
    "END;
CREATE TRIGGER IF NOT EXISTS oarlock_prolonged AFTER UPDATE OF expires_us ON oarlock_holder BEGIN ",
    follow!("NEW"),
    "END;
CREATE TRIGGER IF NOT EXISTS oarlock_left AFTER DELETE ON oarlock_holder BEGIN ",
    follow!("OLD"),
    "END;
CREATE TRIGGER IF NOT EXISTS oarlock_unmarked AFTER UPDATE OF owner ON oarlock_lock WHEN ",
    marked!("OLD"),
    " AND NOT coalesce(",
    marked!("NEW"),
    ", false) BEGIN
    DELETE FROM oarlock_holder WHERE name = NEW.name;
END;
CREATE TRIGGER IF NOT EXISTS oarlock_mark_gone AFTER DELETE ON oarlock_lock WHEN ",
    marked!("OLD"),
    " BEGIN
    DELETE FROM oarlock_holder WHERE name = OLD.name;
END;
ALTER TABLE oarlock_waiter ADD COLUMN mode TEXT NOT NULL DEFAULT ''"
);

/// Gives the reader that took the lock while it was free a row, before the next one gets its own; and tells those in line how
/// many permits there are from now on. Also in a file that has the rest of MODES from an earlier release.
pub(super) const SECOND: &str = concat!(
    "CREATE TRIGGER IF NOT EXISTS oarlock_second BEFORE INSERT ON oarlock_holder WHEN NEW.mark = 'shared#' BEGIN
    INSERT INTO oarlock_holder (name, owner, slots, mark, lease_us, since_us, expires_us, expires_wall_us, boot, token)
        SELECT l.name, substr(l.owner, 8), '[]', 'shared#', l.lease_us, l.since_us, l.expires_us, l.expires_wall_us, l.boot, l.token
        FROM oarlock_lock AS l WHERE l.name = NEW.name AND l.boot = NEW.boot AND l.expires_us > NEW.since_us AND ",
    only_reader!("l"),
    ";
END;
CREATE TRIGGER IF NOT EXISTS oarlock_resized AFTER UPDATE OF owner ON oarlock_lock
    WHEN substr(OLD.owner, 1, 8) = 'permits#' AND substr(NEW.owner, 1, 8) = 'permits#' AND OLD.owner <> NEW.owner BEGIN
    UPDATE oarlock_waiter SET mode = substr(mode, 1, instr(mode, '/')) || substr(NEW.owner, 9)
        WHERE name = NEW.name AND substr(mode, 1, 1) = 'p';
END"
);

/// Answers whether waiters have a mode, which those of an earlier release have not.
pub(super) const WAITERS_HAVE_MODES: &str =
    "SELECT count(*) FROM pragma_table_info('oarlock_waiter') WHERE name = 'mode'";

/// How the lock is held, null if it is free.
macro_rules! phase {
    () => {
        concat!("(SELECT l.owner FROM oarlock_lock AS l WHERE l.name = ?1 AND ", held!(), ")")
    };
}

/// The holders that count.
macro_rules! holders {
    () => {
        concat!(
            "oarlock_holder AS h WHERE h.name = ?1 AND h.boot = ?3 AND h.expires_us > ?4
                AND EXISTS (SELECT 1 FROM oarlock_lock AS l WHERE l.name = ?1 AND l.boot = ?3 AND l.expires_us > ?4 AND ",
            marked!("l"),
            ")"
        )
    };
}

/// The mark under which the lock can be had, null if it cannot. Who stands in line goes by the permits that there are by now.
macro_rules! mark {
    () => {
        concat!(
            "(SELECT CASE
                WHEN p.phase IS NULL OR p.here AND p.wanted =
                    CASE substr(p.phase, 1, 7) WHEN 'shared#' THEN 'shared#' ELSE p.phase END THEN p.wanted
                WHEN p.here AND substr(p.phase, 1, 8) = 'permits#' AND substr(p.wanted, 1, 8) = 'permits#'
                    AND EXISTS (SELECT 1 FROM oarlock_waiter AS w WHERE w.name = ?1 AND w.owner = ?2) THEN p.phase END
            FROM (SELECT ",
            phase!(),
            " AS phase, CASE ?8 ->> 'm' WHEN 's' THEN 'shared#' ELSE 'permits#' || coalesce((SELECT substr(w.mode, instr(w.mode, '/') + 1)
                    FROM oarlock_waiter AS w WHERE w.name = ?1 AND w.owner = ?2 AND substr(w.mode, 1, 1) = 'p'), ?8 ->> 'of')
                END AS wanted,
                (SELECT l.boot = ?3 FROM oarlock_lock AS l WHERE l.name = ?1) AS here) AS p)"
        )
    };
}

/// The slots that can be had under a mark, as JSON; null if there are not enough.
macro_rules! slots {
    ($mark:literal) => {
        concat!(
            "CASE WHEN ",
            $mark,
            " IS NULL THEN NULL WHEN ",
            $mark,
            " = 'shared#' THEN '[]' WHEN substr(",
            $mark,
            ", 9) - (SELECT coalesce(sum(json_array_length(h.slots)), 0) FROM ",
            holders!(),
            ") >= ?8 ->> 'take' THEN (
                WITH RECURSIVE n(slot) AS (SELECT 0 UNION ALL SELECT slot + 1 FROM n WHERE slot + 1 < CAST(substr(",
            $mark,
            ", 9) AS INTEGER))
                SELECT json_group_array(f.slot) FROM (SELECT n.slot FROM n WHERE n.slot NOT IN (
                    SELECT j.value FROM (SELECT h.slots FROM ",
            holders!(),
            ") AS t, json_each(t.slots) AS j) ORDER BY n.slot LIMIT ?8 ->> 'take') AS f) END"
        )
    };
}

/// What this owner has of it.
macro_rules! own {
    () => {
        concat!(
            "(SELECT h.token, h.slots, h.expires_us - ?4 AS left_us FROM ",
            holders!(),
            " AND h.owner = ?2 UNION ALL SELECT l.token, '[]', ",
            left!(),
            " FROM oarlock_lock AS l WHERE l.name = ?1 AND l.owner = 'shared#' || ?2 AND ",
            held!(),
            ")"
        )
    };
}

/// Where to wake the first in line, if it can have the lock beside those who have it from now on: if nobody else has it, or as one
/// more reader, or if there are permits left of those that a mark tells.
macro_rules! who_fits {
    ($mark:literal, $taken:literal, $nobody:expr) => {
        concat!(
            "(SELECT f.wake FROM (SELECT w.wake, w.mode FROM oarlock_waiter AS w
                WHERE w.name = ?1 AND w.owner <> ?2 AND ",
            living!(),
            " ORDER BY w.ticket LIMIT 1) AS f WHERE f.mode = 's' AND ",
            $mark,
            " = 'shared#' OR ",
            $nobody,
            " OR substr(f.mode, 1, 1) = 'p' AND substr(",
            $mark,
            ", 9) - ",
            $taken,
            " - (SELECT coalesce(sum(json_array_length(h.slots)), 0) FROM ",
            others!(),
            ") >= CAST(substr(f.mode, 2) AS INTEGER))"
        )
    };
}

/// The holders that count, but for this owner.
macro_rules! others {
    () => {
        "oarlock_holder AS h WHERE h.name = ?1 AND h.owner <> ?2 AND h.boot = ?3 AND h.expires_us > ?4"
    };
}

/// Takes the lock beside others, as GRANT takes it alone. Answers the token, the slots, and where to wake the next in line if it
/// can have it too; or nothing, and then nothing was written; nor is it by an owner who has the lock already, see OWN.
pub(super) const GRANT_BESIDE: &str = concat!(
    "INSERT INTO oarlock_holder (name, owner, slots, mark, lease_us, since_us, expires_us, expires_wall_us, boot, token)
     SELECT ?1, ?2, s.slots, s.mark, ?6, ?4, ?4 + ?6, ?5 + ?6, ?3, max(?5,
        (SELECT value FROM oarlock_meta WHERE key = 'floor') + 1,
        coalesce((SELECT l.token + 1 FROM oarlock_lock AS l WHERE l.name = ?1), 0))
     FROM (SELECT m.mark AS mark, ",
    slots!("m.mark"),
    " AS slots FROM (SELECT ",
    mark!(),
    " AS mark) AS m) AS s
     WHERE s.slots IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ",
    own!(),
    ")
        AND NOT EXISTS (SELECT 1 FROM oarlock_waiter AS w
            WHERE w.name = ?1 AND w.ticket < ?7 AND w.owner <> ?2 AND ",
    living!(),
    ")
     RETURNING token, slots, ?6 AS left_us, ",
    who_fits!("mark", "json_array_length(slots)", "false"),
    " AS wake"
);

/// Answers what this owner has already, as GRANT_BESIDE does, and how the lock is held.
pub(super) const OWN: &str = concat!(
    "SELECT o.token AS token, o.slots AS slots, o.left_us AS left_us, ",
    phase!(),
    " AS phase FROM (SELECT 1) LEFT JOIN ",
    own!(),
    " AS o"
);

/// What a waiter with a ticket goes by, as in `view`; how the lock is held; and whether it has it already.
macro_rules! view_beside {
    ($ticket:literal) => {
        concat!(
            "(SELECT CASE WHEN s.slots IS NULL THEN coalesce((SELECT min(h.expires_us) - ?4 FROM ",
            holders!(),
            "), (SELECT ",
            left!(),
            " FROM oarlock_lock AS l WHERE l.name = ?1 AND ",
            held!(),
            "), 0) END FROM (SELECT ",
            slots!("m.mark"),
            " AS slots FROM (SELECT ",
            mark!(),
            " AS mark) AS m) AS s) AS held_us,
             (SELECT max(w.seen_us) + 3000000 - ?4 FROM oarlock_waiter AS w
                WHERE w.name = ?1 AND w.ticket < ",
            $ticket,
            " AND w.owner <> ?2 AND ",
            living!(),
            ") AS ahead_us, ",
            phase!(),
            " AS phase"
        )
    };
}

/// Draws a ticket, as ENTER does. Answers also whether the owner has it already.
pub(super) const ENTER_BESIDE: &str = concat!(
    "INSERT INTO oarlock_waiter (name, ticket, owner, wake, seen_us, boot, mode)
     SELECT ?1, coalesce((SELECT w.ticket FROM oarlock_waiter AS w WHERE w.name = ?1 AND w.owner = ?2),
        (SELECT max(w.ticket) + 1 FROM oarlock_waiter AS w WHERE w.name = ?1), 1), ?2, ?8 ->> 'wake', ?4, ?3, ?8 ->> 'mode'
     WHERE true
     ON CONFLICT (name, ticket) DO UPDATE SET wake = excluded.wake, seen_us = excluded.seen_us, boot = excluded.boot
     RETURNING ticket, ",
    view_beside!("oarlock_waiter.ticket"),
    ", EXISTS (SELECT 1 FROM ",
    own!(),
    ") AS mine"
);

/// As LOOK does.
pub(super) const LOOK_BESIDE: &str = concat!(
    "SELECT (SELECT ?4 - w.seen_us FROM oarlock_waiter AS w
        WHERE w.name = ?1 AND w.ticket = ?7 AND w.owner = ?2 AND w.boot = ?3) AS unseen_us, ",
    view_beside!("?7")
);

/// Ends the hold of ?2. Answers, if it had one, whether its lease still ran, and where to wake the first in line if it can have
/// the lock now.
pub(super) const RELEASE_BESIDE: &str = concat!(
    "DELETE FROM oarlock_holder WHERE name = ?1 AND owner = ?2
     RETURNING boot = ?3 AND expires_us > ?4 AS in_time, ",
    who_fits!(
        "(SELECT l.owner FROM oarlock_lock AS l WHERE l.name = ?1)",
        "0",
        concat!("NOT EXISTS (SELECT 1 FROM ", others!(), ")")
    ),
    " AS wake"
);

/// Prolongs the leases in ?8, as RENEW does.
pub(super) const RENEW_BESIDE: &str = concat!(
    "UPDATE oarlock_holder SET lease_us = j.lease, expires_us = ?4 + j.lease, expires_wall_us = ?5 + j.lease
     FROM (SELECT value ->> 0 AS name, value ->> 1 AS owner, value ->> 2 AS lease FROM json_each(?8)) AS j
     WHERE oarlock_holder.name = j.name AND oarlock_holder.owner = j.owner
        AND oarlock_holder.boot = ?3 AND oarlock_holder.expires_us > ?4
        AND EXISTS (SELECT 1 FROM oarlock_lock AS l WHERE l.name = j.name AND ",
    marked!("l"),
    ")
     RETURNING owner"
);

/// Changes how many permits there are to ?7. Answers a row if it did.
pub(super) const RESIZE: &str = concat!(
    "UPDATE oarlock_lock AS l SET owner = 'permits#' || ?7
     WHERE l.name = ?1 AND substr(l.owner, 1, 8) = 'permits#' AND ",
    held!(),
    " AND NOT EXISTS (SELECT 1 FROM oarlock_waiter AS w WHERE w.name = ?1 AND substr(w.mode, 1, 1) = 'p'
        AND CAST(substr(w.mode, 2) AS INTEGER) > ?7 AND ",
    living!(),
    ")
     RETURNING 1"
);
