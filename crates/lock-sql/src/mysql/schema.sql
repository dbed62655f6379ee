-- The tables of Oarlock's locks, version 5. All times are microseconds since 1970 by the database's clock.
-- Whoever uses the locks needs SELECT, INSERT, UPDATE and DELETE on them.
-- Of each table that is swept: behind which key that goes on.
CREATE TABLE IF NOT EXISTS {t}_meta (
    name VARBINARY(32) PRIMARY KEY, value BIGINT NOT NULL, place VARBINARY(1024) NOT NULL DEFAULT ''
) ENGINE=InnoDB;
-- Tables without a mode are those of rows.
INSERT IGNORE INTO {t}_meta VALUES ('mode', 0, 'row');
INSERT IGNORE INTO {t}_meta (name, value) VALUES
    ('version', 5), ('floor', 0), ('swept', 0), ('lock', 0), ('holder', 0), ('waiter', 0), ('client', 0), ('gone', 0), ('value', 0);

-- A lock's row stays when it is released, so that its token goes on. Until `line_us` somebody may be in line for it. Names are bytes: no collation takes two for one.
-- An owner that let its hold go on without it has `kept#` before it from then on, and nobody has that name.
CREATE TABLE IF NOT EXISTS {t}_lock (
    name VARBINARY(1024) PRIMARY KEY, owner VARBINARY(512), token BIGINT NOT NULL, lease_us BIGINT NOT NULL,
    since_us BIGINT NOT NULL, expires_us BIGINT NOT NULL, line_us BIGINT NOT NULL DEFAULT 0,
    rev BIGINT NOT NULL DEFAULT 0
) ENGINE=InnoDB;

-- Those who hold a lock together. Then its owner is `shared#`, or `permits#` and how many there are, until the end of the longest
-- of their leases: without that these rows mean nothing. `rev` rises with each write to a lock that is held so.
CREATE TABLE IF NOT EXISTS {t}_holder (
    owner VARBINARY(512) PRIMARY KEY, name VARBINARY(1024) NOT NULL, token BIGINT NOT NULL, slots VARBINARY(8192) NOT NULL,
    lease_us BIGINT NOT NULL, since_us BIGINT NOT NULL, expires_us BIGINT NOT NULL, KEY (name)
) ENGINE=InnoDB;

-- Those who wait, in the order of their tickets, the times at which they came, each for a client. Who was granted the lock has its token, and is in line no more: the row goes some time after that was told.
-- The mode is '' of who wants the lock alone, 's' beside others, 'p2/5' with two of five permits.
-- A row whose owner begins with `kept#` tells its client, in the same way, that a hold may end earlier than was known.
CREATE TABLE IF NOT EXISTS {t}_waiter (
    owner VARBINARY(512) PRIMARY KEY, name VARBINARY(1024) NOT NULL, ticket BIGINT NOT NULL, lease_us BIGINT NOT NULL,
    client VARBINARY(20) NOT NULL, token BIGINT NOT NULL DEFAULT 0, at_us BIGINT NOT NULL DEFAULT 0, mode VARBINARY(32) NOT NULL DEFAULT '',
    KEY (name, token, ticket), KEY (client, token)
) ENGINE=InnoDB;

-- What owners show with their holds. A row is there before its owner is granted the lock, and counts only while that owner has it, or kept it. The time at which it was said last, `said_us`, is by the owner's own clock.
CREATE TABLE IF NOT EXISTS {t}_value (
    owner VARBINARY(512) PRIMARY KEY, name VARBINARY(1024) NOT NULL, value VARBINARY(4096) NOT NULL,
    said_us BIGINT NOT NULL DEFAULT 0, at_us BIGINT NOT NULL
) ENGINE=InnoDB;

-- Clients with waiters: when each was last seen, and the session that is its bell, or 0. While it lives, another one has locked `oarlock_` and its id.
CREATE TABLE IF NOT EXISTS {t}_client (id VARBINARY(20) PRIMARY KEY, seen_us BIGINT NOT NULL, rings BIGINT NOT NULL) ENGINE=InnoDB;

-- The marks of owners who gave up while a request of theirs was on its way: should it land yet, it is refused. A mark begins with
-- two digits, one of 256 pairs. A row for each pair, which stays, keeps the others from being next to each other.
CREATE TABLE IF NOT EXISTS {t}_gone (mark VARBINARY(514) PRIMARY KEY, at_us BIGINT NOT NULL) ENGINE=InnoDB;
INSERT IGNORE INTO {t}_gone SELECT CONCAT(one.digit, other.digit), 9000000000000000000
    FROM (SELECT '0' AS digit UNION SELECT '1' UNION SELECT '2' UNION SELECT '3' UNION SELECT '4' UNION SELECT '5' UNION SELECT '6'
        UNION SELECT '7' UNION SELECT '8' UNION SELECT '9' UNION SELECT 'a' UNION SELECT 'b' UNION SELECT 'c' UNION SELECT 'd'
        UNION SELECT 'e' UNION SELECT 'f') AS one
    JOIN (SELECT '0' AS digit UNION SELECT '1' UNION SELECT '2' UNION SELECT '3' UNION SELECT '4' UNION SELECT '5' UNION SELECT '6'
        UNION SELECT '7' UNION SELECT '8' UNION SELECT '9' UNION SELECT 'a' UNION SELECT 'b' UNION SELECT 'c' UNION SELECT 'd'
        UNION SELECT 'e' UNION SELECT 'f') AS other;
