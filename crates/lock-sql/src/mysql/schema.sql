-- The tables of Oarlock's locks, version 3. All times are microseconds since 1970 by the database's clock.
-- Whoever uses the locks needs SELECT, INSERT, UPDATE and DELETE on them.
-- Of each table that is swept: behind which key that goes on.
CREATE TABLE IF NOT EXISTS {t}_meta (
    name VARBINARY(32) PRIMARY KEY, value BIGINT NOT NULL, place VARBINARY(1024) NOT NULL DEFAULT ''
) ENGINE=InnoDB;
INSERT IGNORE INTO {t}_meta (name, value) VALUES
    ('version', 3), ('floor', 0), ('swept', 0), ('lock', 0), ('waiter', 0), ('client', 0), ('gone', 0);

-- A lock's row stays when it is released, so that its token goes on. Until `line_us` somebody may be in line for it. Names are bytes: no collation takes two for one.
CREATE TABLE IF NOT EXISTS {t}_lock (
    name VARBINARY(1024) PRIMARY KEY, owner VARBINARY(512), token BIGINT NOT NULL, lease_us BIGINT NOT NULL,
    since_us BIGINT NOT NULL, expires_us BIGINT NOT NULL, line_us BIGINT NOT NULL DEFAULT 0
) ENGINE=InnoDB;

-- Those who wait, in the order of their tickets, the times at which they came, each for a client. Who was granted the lock has its token, and is in line no more: the row goes when that is known.
CREATE TABLE IF NOT EXISTS {t}_waiter (
    owner VARBINARY(512) PRIMARY KEY, name VARBINARY(1024) NOT NULL, ticket BIGINT NOT NULL, lease_us BIGINT NOT NULL,
    client VARBINARY(20) NOT NULL, token BIGINT NOT NULL DEFAULT 0, at_us BIGINT NOT NULL DEFAULT 0,
    KEY (name, token, ticket), KEY (client, token)
) ENGINE=InnoDB;

-- Clients with waiters: when each was last seen, and the session that is its bell, or 0. While it lives, another one has locked `oarlock_` and its id.
CREATE TABLE IF NOT EXISTS {t}_client (id VARBINARY(20) PRIMARY KEY, seen_us BIGINT NOT NULL, rings BIGINT NOT NULL) ENGINE=InnoDB;

-- Owners who gave up while a request of theirs was on its way: should it land yet, it is refused.
CREATE TABLE IF NOT EXISTS {t}_gone (owner VARBINARY(512) PRIMARY KEY, at_us BIGINT NOT NULL) ENGINE=InnoDB;
