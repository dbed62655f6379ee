-- The tables and functions of Oarlock's locks by sessions (mode=session), version 8, for PostgreSQL 14 or later. All times
-- are microseconds since 1970 by the database's clock. Whoever uses the locks needs SELECT, INSERT, UPDATE and DELETE on
-- the tables, and USAGE and SELECT on the sequence.
--
-- A session that wants a lock takes the advisory lock on the hash of its name, at which PostgreSQL keeps the line. Then it
-- writes the note of its hold, unless the note says that another's still lasts: the session of that one ended, or lost its
-- connection, before its lease did. So a lock is another's only after a release, or after the lease; and while a session
-- lives and holds the advisory lock, not even then.
--
-- A hold that goes on without its owner is such a note, with no session and with the owner `kept#` and the text of who had it: to
-- all others that is another owner, whom nobody is.
--
-- The notes are not logged: no write of theirs waits for the disk, and a crash of the server empties the table, when it
-- ends all sessions too.
BEGIN;
-- Many programs may make them at once, and the last waits for all others.
SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '10s';
SELECT pg_advisory_xact_lock(hashtextextended('{t}', 1));

-- `base` is added to what the sequence counts; `hold` and `wait` are when these tables were swept, and behind which key the
-- sweep goes on.
CREATE TABLE IF NOT EXISTS {t}_meta (key text PRIMARY KEY, value bigint NOT NULL, place text NOT NULL DEFAULT '');
-- Tables without a mode are those of rows.
INSERT INTO {t}_meta SELECT 'mode', 0, 'session' WHERE NOT EXISTS (SELECT FROM {t}_meta) ON CONFLICT DO NOTHING;
INSERT INTO {t}_meta VALUES ('version', 8), ('base', 0), ('hold', 0), ('wait', 0), ('value', 0)
    ON CONFLICT DO NOTHING;

CREATE SEQUENCE IF NOT EXISTS {t}_token;

-- The note of a lock's last hold. It has no owner after a release.
CREATE UNLOGGED TABLE IF NOT EXISTS {t}_hold (
    key bigint PRIMARY KEY, name text COLLATE "C" NOT NULL, owner text, token bigint NOT NULL, pid integer NOT NULL,
    began_us bigint NOT NULL, lease_us bigint NOT NULL, since_us bigint NOT NULL, expires_us bigint NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX IF NOT EXISTS {bare}_hold_name ON {t}_hold (name);

-- For whom a session waits, if it does: pg_locks says whether. The session 0 stands for all, since the last crash.
CREATE UNLOGGED TABLE IF NOT EXISTS {t}_wait (
    pid integer PRIMARY KEY, key bigint NOT NULL, name text COLLATE "C" NOT NULL, owner text NOT NULL
) WITH (fillfactor = 50);

-- What owners show with their holds. Whoever writes here has the row of the note. A release deletes the owner's value, and what
-- is left of others is swept. The time at which it was said last, `said_us`, is by the owner's own clock.
CREATE UNLOGGED TABLE IF NOT EXISTS {t}_value (
    owner text NOT NULL, name text COLLATE "C" NOT NULL, value text NOT NULL, at_us bigint NOT NULL,
    said_us bigint NOT NULL DEFAULT 0, PRIMARY KEY (owner, name)
);

CREATE OR REPLACE FUNCTION {t}_now() RETURNS bigint LANGUAGE sql AS $$
    SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;

-- Whose hold it was before it was kept, if it was.
CREATE OR REPLACE FUNCTION {t}_first(who text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN left(who, 5) = 'kept#' THEN substr(who, 6) ELSE who END
$$;

-- The number of a name's advisory lock. Other tables have other numbers, and so do other programs' locks.
CREATE OR REPLACE FUNCTION {t}_key(its_name text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ('x' || encode(substr(sha256(convert_to('{t}_hold'::regclass::oid::text || ' ' || its_name, 'UTF8')), 1, 8), 'hex'))
        ::bit(64)::bigint;
END $$;

-- The number by which the sequence has counted so far.
CREATE OR REPLACE FUNCTION {t}_counted() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce(pg_sequence_last_value('{t}_token'), 0);
END $$;

-- When this process of the server began, or null: it has ended, and with it all that it held.
CREATE OR REPLACE FUNCTION {t}_began(its_pid integer) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT (extract(epoch FROM backend_start) * 1000000)::bigint FROM pg_stat_get_activity(its_pid));
END $$;

-- The first that a session asks. Answers which one it is, and after how many milliseconds without a request the server ends
-- it. After a crash the sequence may have fallen back by what it counted in the last second, and a standby may know less than
-- that: before anybody counts again, tokens leap over it.
CREATE OR REPLACE FUNCTION {t}_open() RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {t}_wait WHERE pid = 0) THEN
        PERFORM FROM {t}_meta WHERE key = 'base' FOR UPDATE;
        INSERT INTO {t}_wait VALUES (0, 0, '', '') ON CONFLICT DO NOTHING;
        IF FOUND THEN
            PERFORM set_config('synchronous_commit', 'on', true);
            UPDATE {t}_meta SET value = greatest(value + CASE WHEN {t}_counted() > 0 THEN 1048576 ELSE 0 END,
                {t}_now() - {t}_counted()) WHERE key = 'base';
        END IF;
    END IF;
    RETURN ARRAY[pg_backend_pid(), {t}_began(pg_backend_pid()),
        (extract(epoch FROM current_setting('idle_session_timeout')::interval) * 1000)::bigint];
END $$;

-- Takes a lock for this session, which began then: at once or not at all (0), when its turn comes (1), or because its turn
-- has come (2). Answers the token; after how many microseconds it was granted, or for how many more another's hold lasts
-- whose session has ended; the process; and the number of the advisory lock. Neither token nor time: another has it. No
-- token, and a time below zero: its turn has not come within its patience.
--
-- Who waits has a snapshot of the database, for which nothing that is deleted meanwhile can be removed. So the patience has
-- an end, of some milliseconds (0: none), and who comes again stands at the end of the line.
CREATE OR REPLACE FUNCTION {t}_take(its_name text, who text, lease bigint, began bigint, how integer, patience integer)
    RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    start_us CONSTANT bigint := {t}_now();
    k CONSTANT bigint := {t}_key(its_name);
    now_us bigint;
    left_us bigint;
    given bigint;
    h {t}_hold;
BEGIN
    IF how < 2 THEN
        IF NOT pg_try_advisory_lock(k) THEN
            IF how = 0 THEN
                RETURN ARRAY[NULL, NULL, pg_backend_pid(), k];
            END IF;
            PERFORM set_config('lock_timeout', patience::text, true);
            BEGIN
                PERFORM pg_advisory_lock(k);
            EXCEPTION WHEN lock_not_available THEN
                -- Its turn may have come just then.
                IF NOT EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND granted
                    AND objsubid = 1 AND classid::bigint << 32 | objid::bigint = k) THEN
                    RETURN ARRAY[NULL, -1, pg_backend_pid(), k];
                END IF;
            END;
            PERFORM set_config('lock_timeout', '0', true);
        END IF;
    END IF;
    now_us := {t}_now();
    UPDATE {t}_hold SET owner = who, token = (SELECT value FROM {t}_meta WHERE key = 'base') + nextval('{t}_token'),
        pid = pg_backend_pid(), began_us = began, lease_us = lease, since_us = now_us, expires_us = now_us + lease
        WHERE key = k AND owner IS NULL AND name = its_name RETURNING token INTO given;
    WHILE given IS NULL LOOP
        -- Whoever undoes it may be about to commit: this waits for that, and sees it.
        SELECT * INTO h FROM {t}_hold WHERE key = k FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            INSERT INTO {t}_hold VALUES (k, its_name, NULL, 0, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING;
            CONTINUE;
        END IF;
        IF h.name <> its_name THEN
            RAISE EXCEPTION 'the number % is that of another name', k USING ERRCODE = 'OL001';
        END IF;
        now_us := {t}_now();
        left_us := h.expires_us - now_us;
        IF h.owner <> who AND left_us > 0 THEN
            IF left_us > h.lease_us THEN
                -- The clock went back. A lease from now on is no shorter than what the holder was promised.
                UPDATE {t}_hold SET expires_us = now_us + lease_us WHERE key = k;
                left_us := h.lease_us;
            END IF;
            IF how = 0 THEN
                PERFORM pg_advisory_unlock(k);
                left_us := NULL;
            ELSE
                -- It has the advisory lock, and waits all the same: let that be seen.
                INSERT INTO {t}_wait AS w VALUES (pg_backend_pid(), k, its_name, who)
                    ON CONFLICT (pid) DO UPDATE SET key = EXCLUDED.key, name = EXCLUDED.name, owner = EXCLUDED.owner
                    WHERE w.owner <> EXCLUDED.owner OR w.key <> EXCLUDED.key;
            END IF;
            RETURN ARRAY[NULL, left_us, pg_backend_pid(), k];
        END IF;
        UPDATE {t}_hold SET owner = who, pid = pg_backend_pid(), began_us = began, lease_us = lease, since_us = now_us,
            expires_us = now_us + lease, token = CASE WHEN h.owner = who THEN h.token
                ELSE (SELECT value FROM {t}_meta WHERE key = 'base') + nextval('{t}_token') END
            WHERE key = k RETURNING token INTO given;
    END LOOP;
    RETURN ARRAY[given, now_us - start_us, pg_backend_pid(), k];
END $$;

-- The same for an owner that shows something. Asked again, it leaves what was proclaimed meanwhile.
CREATE OR REPLACE FUNCTION {t}_take_showing(its_name text, who text, lease bigint, began bigint, how integer, patience integer,
    shown text) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    answer CONSTANT bigint[] := {t}_take(its_name, who, lease, began, how, patience);
    now_us CONSTANT bigint := {t}_now();
BEGIN
    IF answer[1] IS NOT NULL THEN
        INSERT INTO {t}_value VALUES (who, its_name, shown, now_us) ON CONFLICT (owner, name) DO UPDATE SET at_us = now_us;
    END IF;
    RETURN answer;
END $$;

-- Shows something else with the lock, unless its owner said that earlier than what it shows: then this landed late. Answers
-- whether this owner holds it.
CREATE OR REPLACE FUNCTION {t}_show(its_name text, who text, shown text, said bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint;
    h {t}_hold;
BEGIN
    SELECT * INTO h FROM {t}_hold WHERE key = {t}_key(its_name) FOR NO KEY UPDATE;
    now_us := {t}_now();
    IF h.owner IS DISTINCT FROM who OR h.expires_us <= now_us THEN
        RETURN false;
    END IF;
    INSERT INTO {t}_value AS v VALUES (who, its_name, shown, now_us, said)
        ON CONFLICT (owner, name) DO UPDATE SET value = EXCLUDED.value, at_us = EXCLUDED.at_us, said_us = EXCLUDED.said_us
        WHERE v.said_us <= EXCLUDED.said_us;
    RETURN true;
END $$;

-- Gives the lock of this session back. Answers whether it was held until now. The note is free before the next in line is
-- woken, who else would wait for this to be committed.
CREATE OR REPLACE PROCEDURE {t}_release(k bigint, who text, INOUT was_held boolean) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {t}_hold SET owner = NULL WHERE key = k AND owner = who;
    was_held := FOUND;
    COMMIT;
    PERFORM pg_advisory_unlock(k);
END $$;

-- The same for an owner that shows something.
CREATE OR REPLACE PROCEDURE {t}_release_showing(k bigint, who text, INOUT was_held boolean) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM {t}_hold WHERE key = k AND owner = who FOR NO KEY UPDATE;
    IF FOUND THEN
        DELETE FROM {t}_value WHERE owner = who AND {t}_key(name) = k;
    END IF;
    CALL {t}_release(k, who, was_held);
END $$;

-- Has the hold of this session go on without it and without its owner, for so long from now. Answers whether it does. The note
-- says so before the next in line is woken, who looks at it.
CREATE OR REPLACE PROCEDURE {t}_keep(k bigint, who text, rest bigint, INOUT is_kept boolean) LANGUAGE plpgsql AS $$
DECLARE
    now_us CONSTANT bigint := {t}_now();
BEGIN
    UPDATE {t}_hold SET owner = 'kept#' || who, pid = 0, began_us = 0, lease_us = rest, expires_us = now_us + rest
        WHERE key = k AND owner = who;
    -- Or it does since this was asked before.
    is_kept := FOUND OR EXISTS (SELECT FROM {t}_hold WHERE key = k AND owner = 'kept#' || who AND expires_us > now_us);
    COMMIT;
    PERFORM pg_advisory_unlock(k);
END $$;

-- Ends this process, if it began then, and waits until it is gone. Answers whether it is.
CREATE OR REPLACE FUNCTION {t}_end(its_pid integer, began bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR turn IN 0 .. 299 LOOP
        IF {t}_began(its_pid) IS DISTINCT FROM began THEN
            RETURN true;
        END IF;
        IF turn % 50 = 0 THEN
            PERFORM pg_terminate_backend(its_pid);
        END IF;
        PERFORM pg_sleep(0.002);
        PERFORM pg_stat_clear_snapshot();
    END LOOP;
    RETURN false;
END $$;

-- Leaves nothing of this owner: ends the session that asked for it, or the one that the note names, and frees the lock.
-- A session that asked for it later has not asked for this: what it holds stays, should this land late. Answers whether it
-- was held until now; null: the session has not ended yet, and nothing was done.
CREATE OR REPLACE FUNCTION {t}_undo(its_name text, who text, its_pid integer, began bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    k CONSTANT bigint := {t}_key(its_name);
    end_us bigint;
BEGIN
    IF its_pid IS NULL THEN
        SELECT pid, began_us INTO its_pid, began FROM {t}_hold WHERE key = k AND owner = who;
    END IF;
    IF its_pid IS NOT NULL AND NOT {t}_end(its_pid, began) THEN
        RETURN NULL;
    END IF;
    UPDATE {t}_hold SET owner = NULL WHERE key = k AND owner = who
        AND (its_pid IS NULL OR (pid, began_us) = (its_pid, began)) RETURNING expires_us INTO end_us;
    IF FOUND THEN
        DELETE FROM {t}_value WHERE owner = {t}_first(who) AND name = its_name;
    END IF;
    RETURN coalesce(end_us > {t}_now(), false);
END $$;

-- Has a hold go on as `keep` does, and ends the session that asked for it, or the one that the note names. Answers whether it goes
-- on; null: the session has not ended yet, and nothing was done.
CREATE OR REPLACE FUNCTION {t}_keep_alone(its_name text, who text, rest bigint, its_pid integer, began bigint)
    RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    k CONSTANT bigint := {t}_key(its_name);
    now_us bigint;
    h {t}_hold;
BEGIN
    -- Whoever has the advisory lock after the session waits for this.
    SELECT * INTO h FROM {t}_hold WHERE key = k FOR NO KEY UPDATE;
    now_us := {t}_now();
    IF its_pid IS NULL AND h.owner = who THEN
        its_pid := h.pid;
        began := h.began_us;
    END IF;
    IF its_pid IS NOT NULL AND NOT {t}_end(its_pid, began) THEN
        RETURN NULL;
    END IF;
    IF h.owner = who AND (h.pid, h.began_us) = (its_pid, began) AND h.expires_us > now_us THEN
        now_us := {t}_now();
        UPDATE {t}_hold SET owner = 'kept#' || who, pid = 0, began_us = 0, lease_us = rest, expires_us = now_us + rest
            WHERE key = k;
        RETURN true;
    END IF;
    RETURN coalesce(h.owner = 'kept#' || who AND h.expires_us > now_us, false);
END $$;

-- Has it be seen for whom this session waits. Answers what the session does; null: it has ended.
CREATE OR REPLACE FUNCTION {t}_look(its_pid integer, began bigint, its_name text, who text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    does text;
BEGIN
    SELECT coalesce(state, '') INTO does FROM pg_stat_get_activity(its_pid);
    IF {t}_began(its_pid) IS DISTINCT FROM began THEN
        RETURN NULL;
    END IF;
    IF does <> 'idle' THEN
        INSERT INTO {t}_wait AS w VALUES (its_pid, {t}_key(its_name), its_name, who)
            ON CONFLICT (pid) DO UPDATE SET key = EXCLUDED.key, name = EXCLUDED.name, owner = EXCLUDED.owner
            WHERE w.owner <> EXCLUDED.owner OR w.key <> EXCLUDED.key;
    END IF;
    RETURN does;
END $$;
COMMIT;
