-- The tables of Oarlock's locks by sessions (mode=session), version 5, for MySQL 8 and MariaDB 10.6 or later. All times
-- are microseconds since 1970 by the database's clock. Whoever uses the locks needs SELECT, INSERT, UPDATE and DELETE
-- on them.
--
-- A session that wants a lock takes the server's lock on `k`, a hash of its name, by GET_LOCK. Then it writes the note
-- of its hold, unless the note that is there says that another's still lasts: the session of that one ended, or lost
-- its connection, before its lease did. So a lock is another's only after a release, or after the lease; and while a
-- session lives and has the server's lock, not even then.
--
-- A session that lives has the server's lock on `oarlock_s_` and its number, and one that waits has that on
-- `oarlock_w_` and its number, too.
--
-- A hold that goes on without its owner is such a note, with no session and with the owner `kept#` and the text of who
-- had it: to all others that is another owner, whom nobody is.
--
-- All but the first table are in memory: no write of theirs waits for the disk, and a restart of the server empties
-- them, when it ends all sessions too.

-- Below `ceiling` is each token that was given. `swept` is when these tables were.
CREATE TABLE IF NOT EXISTS {t}_meta (
    name VARBINARY(32) PRIMARY KEY, value BIGINT NOT NULL, place VARBINARY(1024) NOT NULL DEFAULT ''
) ENGINE=InnoDB;
-- Tables without a mode are those of rows.
INSERT IGNORE INTO {t}_meta VALUES ('mode', 0, 'session');
INSERT IGNORE INTO {t}_meta (name, value) VALUES ('version', 5), ('ceiling', 0), ('swept', 0);

-- What tokens are above since the server started, and which server that is: a replica has the row of its primary. While
-- there is no row of a server's own, nobody counts.
CREATE TABLE IF NOT EXISTS {t}_epoch (
    one TINYINT PRIMARY KEY, server VARBINARY(512) NOT NULL, floor BIGINT NOT NULL
) ENGINE=MEMORY;

-- The notes of holds. The table counts the tokens: each row has a higher one than those before. One without a name
-- keeps the count above what it is to be above.
CREATE TABLE IF NOT EXISTS {t}_hold (
    k VARBINARY(40) NOT NULL, name VARBINARY(1024) NOT NULL, owner VARBINARY(512) NOT NULL,
    token BIGINT NOT NULL AUTO_INCREMENT, session BIGINT UNSIGNED NOT NULL, lease_us BIGINT NOT NULL, since_us BIGINT NOT NULL,
    expires_us BIGINT NOT NULL, PRIMARY KEY (k) USING HASH, KEY (token) USING HASH
) ENGINE=MEMORY;

-- For whom a session waits, if it does: its locks say whether.
CREATE TABLE IF NOT EXISTS {t}_wait (
    session BIGINT UNSIGNED NOT NULL, k VARBINARY(40) NOT NULL, name VARBINARY(1024) NOT NULL, owner VARBINARY(512) NOT NULL,
    at_us BIGINT NOT NULL, PRIMARY KEY (session) USING HASH
) ENGINE=MEMORY;

-- What owners show with their holds. A release deletes the owner's row, and what is left of others is swept. The time
-- at which it was said last, `said_us`, is by the owner's own clock.
CREATE TABLE IF NOT EXISTS {t}_shown (
    owner VARBINARY(512) NOT NULL, k VARBINARY(40) NOT NULL, value VARBINARY(4096) NOT NULL, said_us BIGINT NOT NULL,
    at_us BIGINT NOT NULL, PRIMARY KEY (owner) USING HASH
) ENGINE=MEMORY;
