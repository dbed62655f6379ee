-- The tables of Oarlock's locks, version 2. All times are microseconds since 1970 by the database's clock.
-- Whoever uses the locks needs SELECT, INSERT, UPDATE and DELETE on them.
-- Of each table that is swept: behind which key that goes on.
CREATE TABLE IF NOT EXISTS {t}_meta (
    name VARBINARY(32) PRIMARY KEY, value BIGINT NOT NULL, place VARBINARY(1024) NOT NULL DEFAULT ''
) ENGINE=InnoDB;
INSERT IGNORE INTO {t}_meta (name, value) VALUES ('version', 2), ('floor', 0), ('swept', 0), ('lock', 0), ('waiter', 0), ('gone', 0);

-- A lock's row stays when it is released, so that its token goes on. `turns` counts its grants. Until `line_us` somebody may be in line for it. Names are bytes: no collation takes two for one.
CREATE TABLE IF NOT EXISTS {t}_lock (
    name VARBINARY(1024) PRIMARY KEY, owner VARBINARY(512), token BIGINT NOT NULL, lease_us BIGINT NOT NULL,
    since_us BIGINT NOT NULL, expires_us BIGINT NOT NULL, line_us BIGINT NOT NULL DEFAULT 0,
    turns BIGINT NOT NULL DEFAULT 0
) ENGINE=InnoDB;

-- Those who wait and want to be served in their order.
CREATE TABLE IF NOT EXISTS {t}_waiter (
    ticket BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(1024) NOT NULL, owner VARBINARY(512) NOT NULL,
    seen_us BIGINT NOT NULL, UNIQUE KEY (owner), KEY (name, ticket)
) ENGINE=InnoDB;

-- Owners who gave up while a request of theirs was on its way: should it land yet, it is refused.
CREATE TABLE IF NOT EXISTS {t}_gone (owner VARBINARY(512) PRIMARY KEY, at_us BIGINT NOT NULL) ENGINE=InnoDB;
