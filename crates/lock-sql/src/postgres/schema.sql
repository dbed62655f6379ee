-- The tables and functions of Oarlock's locks, version 1. All times are microseconds since 1970 by the database's clock.
-- Whoever uses the locks needs SELECT, INSERT, UPDATE and DELETE on the tables.
BEGIN;
-- Two programs may make them at once.
SELECT pg_advisory_xact_lock(hashtextextended('{t}', 1));

CREATE TABLE IF NOT EXISTS {t}_meta (key text PRIMARY KEY, value bigint NOT NULL);
INSERT INTO {t}_meta VALUES ('version', 1), ('floor', 0), ('swept', 0) ON CONFLICT DO NOTHING;

-- A lock's row stays when it is released, so that its token goes on.
CREATE TABLE IF NOT EXISTS {t}_lock (
    name text COLLATE "C" PRIMARY KEY, owner text, token bigint NOT NULL, lease_us bigint NOT NULL,
    since_us bigint NOT NULL, expires_us bigint NOT NULL
) WITH (fillfactor = 50);

-- Who waits, and where to tell them.
CREATE TABLE IF NOT EXISTS {t}_waiter (
    name text COLLATE "C" NOT NULL, ticket bigint GENERATED ALWAYS AS IDENTITY, owner text NOT NULL, lease_us bigint NOT NULL,
    client bigint NOT NULL, place bigint NOT NULL, PRIMARY KEY (name, ticket)
);

-- The clients with waiters. One that listens has a session lock on its id, which goes when its connection does.
CREATE TABLE IF NOT EXISTS {t}_client (id bigint PRIMARY KEY, seen_us bigint NOT NULL, listens boolean NOT NULL);

-- Owners who gave up while a request of theirs was on its way: should it land yet, it is refused.
CREATE TABLE IF NOT EXISTS {t}_gone (owner text PRIMARY KEY, at_us bigint NOT NULL);

CREATE OR REPLACE FUNCTION {t}_now() RETURNS bigint LANGUAGE sql AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- A row that is deleted, by a sweep or by hand, leaves its token here.
CREATE OR REPLACE FUNCTION {t}_forget() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {t}_meta SET value = OLD.token WHERE key = 'floor' AND value < OLD.token;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS forget ON {t}_lock;
CREATE TRIGGER forget AFTER DELETE ON {t}_lock FOR EACH ROW EXECUTE FUNCTION {t}_forget();

-- What decides about a lock takes this first, until the transaction's end. What is read afterwards is the present.
CREATE OR REPLACE FUNCTION {t}_decide(key text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    -- Not by PERFORM, which would be a query of its own.
    IF pg_advisory_xact_lock(hashtextextended(key, 2)) IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN {t}_now();
END $$;

-- Gives the lock to this owner, whoever had it. Answers the token: above the last one, and not below the clock.
CREATE OR REPLACE FUNCTION {t}_give(key text, who text, lease bigint, at_us bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    given bigint;
BEGIN
    UPDATE {t}_lock SET owner = who, token = greatest(token + 1, at_us), lease_us = lease, since_us = at_us,
        expires_us = at_us + lease WHERE name = key RETURNING token INTO given;
    IF NOT FOUND THEN
        INSERT INTO {t}_lock (name, owner, token, lease_us, since_us, expires_us) VALUES (key, who,
            greatest((SELECT m.value + 1 FROM {t}_meta AS m WHERE m.key = 'floor'), at_us), lease, at_us, at_us + lease)
            RETURNING token INTO given;
    END IF;
    RETURN given;
END $$;

-- Does this client still count? Not if it was not seen for three of its turns, or its connection is gone.
CREATE OR REPLACE FUNCTION {t}_lives(whose bigint, at_us bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c {t}_client;
BEGIN
    SELECT * INTO c FROM {t}_client WHERE id = whose;
    RETURN FOUND AND CASE WHEN c.listens
        THEN abs(at_us - c.seen_us) < 15000000 AND NOT pg_try_advisory_xact_lock_shared(whose)
        ELSE abs(at_us - c.seen_us) < 3000000 END;
END $$;

-- Hands the lock, which is free or about to be, to the first in line who lives, and tells them. Answers whether there was anybody.
CREATE OR REPLACE FUNCTION {t}_hand_over(key text, at_us bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    w {t}_waiter;
    given bigint;
BEGIN
    FOR w IN SELECT * FROM {t}_waiter WHERE name = key ORDER BY ticket LOOP
        IF {t}_lives(w.client, at_us) THEN
            DELETE FROM {t}_waiter WHERE name = key AND ticket = w.ticket;
            given := {t}_give(key, w.owner, w.lease_us, at_us);
            PERFORM pg_notify('oarlock_' || w.client, w.place || ' ' || given || ' ' || at_us);
            RETURN true;
        END IF;
        -- It keeps its place for a minute, should it only be cut off.
        DELETE FROM {t}_waiter WHERE name = key AND ticket = w.ticket AND NOT EXISTS (
            SELECT FROM {t}_client WHERE id = w.client AND abs(at_us - seen_us) < 60000000);
    END LOOP;
    RETURN false;
END $$;

-- Takes the lock, or with a client enters the line. Answers the token or null; how long the lock is held; the time; and the token of
-- who holds it. All null but the time: the owner has given up.
CREATE OR REPLACE FUNCTION {t}_acquire(key text, who text, lease bigint, whose bigint, at_place bigint)
    RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint := {t}_decide(key);
    given bigint;
    left_us bigint;
    l record;
BEGIN
    SELECT k.owner, k.token, k.lease_us, k.expires_us - now_us AS left_us,
            EXISTS (SELECT FROM {t}_gone AS g WHERE g.owner = who) AS gone,
            EXISTS (SELECT FROM {t}_waiter AS w WHERE w.name = key) AS waited_for
        INTO l FROM (SELECT) AS one LEFT JOIN {t}_lock AS k ON k.name = key;
    IF l.owner = who AND l.left_us > 0 THEN
        RETURN ARRAY[l.token, l.left_us, now_us, l.token];
    END IF;
    IF l.gone THEN
        RETURN ARRAY[NULL, NULL, now_us, NULL];
    END IF;
    IF l.owner IS NOT NULL AND l.left_us > 0 THEN
        left_us := least(l.left_us, l.lease_us);
        IF l.left_us > l.lease_us THEN
            -- The clock went back. A lease from now on is no shorter than what the holder was promised.
            UPDATE {t}_lock SET expires_us = now_us + lease_us WHERE name = key;
        END IF;
    END IF;
    IF whose IS NOT NULL AND (left_us IS NOT NULL OR l.waited_for) THEN
        UPDATE {t}_waiter SET client = whose, place = at_place, lease_us = lease WHERE name = key AND owner = who;
        IF NOT FOUND THEN
            INSERT INTO {t}_waiter (name, owner, lease_us, client, place) VALUES (key, who, lease, whose, at_place);
        END IF;
    END IF;
    IF left_us IS NOT NULL THEN
        RETURN ARRAY[NULL, left_us, now_us, l.token];
    END IF;
    -- It came free without a release, and others may have come before.
    IF l.waited_for AND {t}_hand_over(key, now_us) THEN
        SELECT k.owner, k.token, k.lease_us INTO l FROM {t}_lock AS k WHERE k.name = key;
        RETURN ARRAY[CASE WHEN l.owner = who THEN l.token END, l.lease_us, now_us, l.token];
    END IF;
    given := {t}_give(key, who, lease, now_us);
    IF l.waited_for THEN
        DELETE FROM {t}_waiter WHERE name = key AND owner = who;
    END IF;
    RETURN ARRAY[given, lease, now_us, given];
END $$;

-- Releases the lock, or leaves the line. Answers whether its lease still ran; null: the owner did not hold it.
CREATE OR REPLACE FUNCTION {t}_release(key text, who text, give_up boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint := {t}_decide(key);
    end_us bigint;
    waited_for boolean;
BEGIN
    IF give_up THEN
        INSERT INTO {t}_gone VALUES (who, now_us) ON CONFLICT DO NOTHING;
    END IF;
    SELECT expires_us, EXISTS (SELECT FROM {t}_waiter AS w WHERE w.name = key) INTO end_us, waited_for
        FROM {t}_lock WHERE name = key AND owner = who;
    IF NOT FOUND THEN
        DELETE FROM {t}_waiter WHERE name = key AND owner = who;
        RETURN NULL;
    END IF;
    IF waited_for AND {t}_hand_over(key, now_us) THEN
        RETURN end_us > now_us;
    END IF;
    UPDATE {t}_lock SET owner = NULL WHERE name = key;
    RETURN end_us > now_us;
END $$;

-- What a client with waiters does now and then: shows that it lives, serves locks that came free without a release, and
-- answers of each lock who holds it since when and for how long, with which token, and whether this owner is in line.
CREATE OR REPLACE FUNCTION {t}_look(me bigint, hears boolean, keys text[], whos text[])
    RETURNS TABLE (holder text, given bigint, from_us bigint, left_us bigint, in_line boolean) LANGUAGE plpgsql AS $$
DECLARE
    l {t}_lock;
    now_us bigint := {t}_now();
BEGIN
    INSERT INTO {t}_client VALUES (me, now_us, hears) ON CONFLICT (id) DO UPDATE SET seen_us = now_us;
    FOR i IN 1 .. cardinality(keys) LOOP
        SELECT * INTO l FROM {t}_lock WHERE name = keys[i];
        IF l.owner IS NULL OR l.expires_us <= now_us OR l.expires_us - now_us > l.lease_us THEN
            now_us := {t}_decide(keys[i]);
            UPDATE {t}_lock SET expires_us = now_us + lease_us WHERE name = keys[i] AND expires_us - now_us > lease_us;
            IF NOT EXISTS (SELECT FROM {t}_lock WHERE name = keys[i] AND owner IS NOT NULL AND expires_us > now_us) THEN
                PERFORM {t}_hand_over(keys[i], now_us);
            END IF;
            SELECT * INTO l FROM {t}_lock WHERE name = keys[i];
        END IF;
        holder := l.owner;
        given := l.token;
        from_us := l.since_us;
        left_us := l.expires_us - now_us;
        in_line := EXISTS (SELECT FROM {t}_waiter WHERE name = keys[i] AND owner = whos[i]);
        RETURN NEXT;
    END LOOP;
END $$;
COMMIT;
