-- The tables and functions of Oarlock's locks, version 7. Those of locks that several hold at a time follow in modes.sql. All times are microseconds since 1970 by the database's clock.
-- Whoever uses the locks needs SELECT, INSERT, UPDATE and DELETE on the tables.
--
-- Whoever changes a lock has its row first, until the transaction's end, in one of three ways.
-- * By one update that demands that nobody waits (`waited_for`), and that the owner is whom it expects. If it had to wait for
--   the row, the server comes to these conditions again, with the row as it is by then.
-- * For many names at once: by a locking read that leaves out what another is at, and demands the same conditions of the rows as
--   they are by then; and an update that demands them once more. So these calls wait for nobody, nor for each other.
-- * By `decide`. What is read afterwards, each statement with a snapshot of its own, is the present. Whoever enters the line has
--   decided, and has set `waited_for`, which goes only when nobody is left in line: so no release overlooks it. Nobody decides
--   about one lock who has another, but for `look`, which goes by the order of names.
-- Who gives up decides, and notes that in `gone`. A late request to acquire had the row before, and is undone; or it has it
-- afterwards, and looks into `gone` only then.
--
-- A hold that goes on without its owner has the owner `kept#` and the text of who had it. To all of these that is another owner,
-- whom nobody is: so whatever the first one asks late finds that it does not hold the lock, and only the time ends the hold, or
-- somebody who evicts it.
BEGIN;
-- Many programs may make them at once, and the last waits for all others.
SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '10s';
SELECT pg_advisory_xact_lock(hashtextextended('{t}', 1));

-- Of each table that is swept: when that was, and behind which key it goes on.
CREATE TABLE IF NOT EXISTS {t}_meta (key text PRIMARY KEY, value bigint NOT NULL, place text NOT NULL DEFAULT '');
INSERT INTO {t}_meta VALUES ('version', 7), ('floor', 0), ('lock', 0), ('waiter', 0), ('client', 0), ('gone', 0),
    ('value', 0), ('holder', 0)
    ON CONFLICT DO NOTHING;
-- Tables are of the mode of their first user. Those without one are of this.
INSERT INTO {t}_meta VALUES ('mode', 0, 'row') ON CONFLICT DO NOTHING;

-- A lock's row stays when it is released, so that its token goes on. `waited_for`: somebody may be in line. `resizes`: how often
-- somebody changed its permits, or tried to.
CREATE TABLE IF NOT EXISTS {t}_lock (
    name text COLLATE "C" PRIMARY KEY, owner text, token bigint NOT NULL, lease_us bigint NOT NULL,
    since_us bigint NOT NULL, expires_us bigint NOT NULL, waited_for boolean NOT NULL DEFAULT false,
    resizes bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Who waits, and where to tell them; and how: '' alone, 's' beside others, 'p2/5' with two of five permits.
CREATE TABLE IF NOT EXISTS {t}_waiter (
    name text COLLATE "C" NOT NULL, ticket bigint GENERATED ALWAYS AS IDENTITY, owner text NOT NULL, lease_us bigint NOT NULL,
    client bigint NOT NULL, place bigint NOT NULL, mode text NOT NULL DEFAULT '', PRIMARY KEY (name, ticket),
    UNIQUE (owner, name)
);

-- The clients with waiters. One that listens has a session lock on its id, which goes when its connection does.
CREATE TABLE IF NOT EXISTS {t}_client (id bigint PRIMARY KEY, seen_us bigint NOT NULL, listens boolean NOT NULL);

-- Owners who gave up while a request of theirs was on its way: should it land yet, it is refused.
CREATE TABLE IF NOT EXISTS {t}_gone (owner text PRIMARY KEY, at_us bigint NOT NULL);

-- What owners show with their holds. Waiters have theirs here too, but only that of a holder is ever looked for. Whoever writes
-- here has the lock's row. A release deletes the owner's value, and what is left of others is swept. The time at which it was said
-- last, `said_us`, is by the owner's own clock.
CREATE TABLE IF NOT EXISTS {t}_value (
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

-- A row that is deleted, by a sweep or by hand, leaves its token here, if that is one: no token is above 2^55 - 1.
CREATE OR REPLACE FUNCTION {t}_forget() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {t}_meta SET value = OLD.token
        WHERE key = 'floor' AND value < OLD.token AND OLD.token <= 36028797018963967;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS forget ON {t}_lock;
CREATE TRIGGER forget AFTER DELETE ON {t}_lock FOR EACH ROW EXECUTE FUNCTION {t}_forget();

-- Takes the row of a lock until the transaction's end, and makes it if there is none. If a reader has it that found it free, that
-- one has a row like every reader from then on: see modes.sql.
CREATE OR REPLACE FUNCTION {t}_decide(key text) RETURNS {t}_lock LANGUAGE plpgsql AS $$
DECLARE
    l {t}_lock;
    now_us bigint := {t}_now();
BEGIN
    LOOP
        SELECT * INTO l FROM {t}_lock WHERE name = key FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        -- Waits for another who makes it.
        INSERT INTO {t}_lock (name, token, lease_us, since_us, expires_us, waited_for) VALUES (key,
            (SELECT m.value FROM {t}_meta AS m WHERE m.key = 'floor'), 0, now_us, now_us,
            EXISTS (SELECT FROM {t}_waiter AS w WHERE w.name = key)) ON CONFLICT DO NOTHING RETURNING * INTO l;
        EXIT WHEN FOUND;
    END LOOP;
    IF l.owner LIKE 'shared#_%' AND l.expires_us > {t}_now() THEN
        DELETE FROM {t}_holder WHERE name = key;
        INSERT INTO {t}_holder VALUES (key, substr(l.owner, 8), l.token, '{}', l.lease_us, l.since_us, l.expires_us);
        l.owner := 'shared#';
        UPDATE {t}_lock SET owner = l.owner WHERE name = key;
    END IF;
    RETURN l;
END $$;

-- Gives the lock to this owner, whoever had it. Answers the token: above the last one, and not below the clock.
CREATE OR REPLACE FUNCTION {t}_give(key text, who text, lease bigint, at_us bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    given bigint;
BEGIN
    UPDATE {t}_lock SET owner = who, token = greatest(token + 1, at_us), lease_us = lease, since_us = at_us,
        expires_us = at_us + lease, waited_for = EXISTS (SELECT FROM {t}_waiter AS w WHERE w.name = key)
        WHERE name = key RETURNING token INTO given;
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

-- Hands the lock to the first in line who lives, or if that one does not want it alone, to all at the head of the line who can
-- have it together. `mark` says how it is held (null: it is free or about to be, see modes.sql). Answers what to tell, a line for
-- each; '' if the first who lives cannot have it yet; or null: there was nobody.
CREATE OR REPLACE FUNCTION {t}_hand_over(key text, at_us bigint, mark text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    w {t}_waiter;
    dead bigint[] := '{}';
    given bigint;
    told text;
BEGIN
    LOOP
        SELECT * INTO w FROM {t}_waiter WHERE name = key AND client <> ALL (dead) ORDER BY ticket LIMIT 1;
        IF NOT FOUND THEN
            RETURN told;
        END IF;
        IF {t}_lives(w.client, at_us) THEN
            IF w.mode = '' THEN
                IF mark IS NOT NULL AND EXISTS (SELECT FROM {t}_holder WHERE name = key) THEN
                    RETURN coalesce(told, '');
                END IF;
                DELETE FROM {t}_waiter WHERE name = key AND ticket = w.ticket;
                RETURN concat_ws(' ', w.client, w.place, {t}_give(key, w.owner, w.lease_us, at_us), at_us);
            END IF;
            given := {t}_join(key, w.owner, w.lease_us, w.mode, mark, at_us);
            IF given IS NULL THEN
                RETURN coalesce(told, '');
            END IF;
            SELECT owner INTO mark FROM {t}_lock WHERE name = key;
            told := concat_ws(E'\n', told, concat_ws(' ', w.client, w.place, given, at_us));
            CONTINUE;
        END IF;
        dead := dead || w.client;
        -- They keep their places for a minute, should it only be cut off.
        DELETE FROM {t}_waiter WHERE name = key AND client = w.client AND NOT EXISTS (
            SELECT FROM {t}_client WHERE id = w.client AND abs(at_us - seen_us) < 60000000);
    END LOOP;
END $$;

-- Tells the clients of those to whom a lock was handed over.
CREATE OR REPLACE FUNCTION {t}_tell(told text) RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify('oarlock_' || split_part(one, ' ', 1), substr(one, strpos(one, ' ') + 1))
        FROM unnest(string_to_array(told, E'\n')) AS one
$$;

-- Takes the lock, or with a client enters the line. Answers the token or null; how long the lock is held; the time; and the token of
-- who holds it. All null but the time: the owner has given up; the time and a number: it is a semaphore of so many permits.
CREATE OR REPLACE FUNCTION {t}_acquire(key text, who text, lease bigint, whose bigint, at_place bigint)
    RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint := {t}_now();
    given bigint;
    held boolean;
    gone boolean;
    -- Null: nobody is in line; else, whether this owner is.
    in_line boolean;
    told text;
    l {t}_lock;
BEGIN
    UPDATE {t}_lock SET owner = who, token = greatest(token + 1, now_us), lease_us = lease, since_us = now_us,
        expires_us = now_us + lease WHERE name = key AND owner IS NULL AND NOT waited_for RETURNING token INTO given;
    IF FOUND THEN
        IF EXISTS (SELECT FROM {t}_gone WHERE owner = who) THEN
            UPDATE {t}_lock SET owner = NULL WHERE name = key;
            RETURN ARRAY[NULL, NULL, now_us, NULL];
        END IF;
        RETURN ARRAY[given, lease, now_us, given];
    END IF;
    IF whose IS NULL THEN
        -- Who only asks, of a lock that another holds, writes nothing.
        SELECT * INTO l FROM {t}_lock WHERE name = key;
        now_us := {t}_now();
        IF l.owner <> who AND l.expires_us > now_us AND l.expires_us - now_us <= l.lease_us THEN
            IF l.owner LIKE 'permits#%' THEN
                RETURN ARRAY[NULL, NULL, now_us, {t}_permits(l.owner)];
            END IF;
            RETURN ARRAY[NULL, l.expires_us - now_us, now_us, l.token];
        END IF;
    END IF;
    l := {t}_decide(key);
    now_us := {t}_now();
    held := l.owner IS NOT NULL AND l.expires_us > now_us;
    IF held AND l.owner = who THEN
        RETURN ARRAY[l.token, l.expires_us - now_us, now_us, l.token];
    END IF;
    -- Without reading the line: however long it is, others wait for this row meanwhile.
    SELECT EXISTS (SELECT FROM {t}_gone WHERE owner = who), CASE WHEN EXISTS (SELECT FROM {t}_waiter WHERE name = key)
        THEN EXISTS (SELECT FROM {t}_waiter WHERE owner = who AND name = key) END INTO gone, in_line;
    IF gone THEN
        RETURN ARRAY[NULL, NULL, now_us, NULL];
    END IF;
    IF held AND in_line IS NOT TRUE AND l.owner LIKE 'permits#%' THEN
        RETURN ARRAY[NULL, NULL, now_us, {t}_permits(l.owner)];
    END IF;
    IF whose IS NOT NULL AND (held OR in_line IS NOT NULL) THEN
        IF in_line THEN
            UPDATE {t}_waiter SET client = whose, place = at_place, lease_us = lease WHERE owner = who AND name = key;
        ELSE
            INSERT INTO {t}_waiter (name, owner, lease_us, client, place) VALUES (key, who, lease, whose, at_place);
        END IF;
        IF NOT l.waited_for THEN
            UPDATE {t}_lock SET waited_for = true WHERE name = key;
        END IF;
    END IF;
    IF held THEN
        IF l.expires_us - now_us > l.lease_us THEN
            -- The clock went back. A lease from now on is no shorter than what the holder was promised.
            UPDATE {t}_lock SET expires_us = now_us + lease_us WHERE name = key;
        END IF;
        -- A crash of the server ends our connections, and then all enter the line anew: nothing here waits for the disk, and
        -- nobody who releases waits for that. Not by PERFORM, which would be a query of its own.
        IF set_config('synchronous_commit', 'off', true) IS NULL THEN
            RETURN NULL;
        END IF;
        RETURN ARRAY[NULL, least(l.expires_us - now_us, l.lease_us), now_us, l.token];
    END IF;
    -- It came free without a release, and others may have come before.
    IF in_line IS NOT NULL THEN
        told := {t}_hand_over(key, now_us);
    END IF;
    IF told IS NOT NULL THEN
        PERFORM {t}_tell(told);
        SELECT * INTO l FROM {t}_lock WHERE name = key;
        RETURN ARRAY[CASE WHEN l.owner = who THEN l.token END, l.lease_us, now_us, l.token];
    END IF;
    -- Since before, or since just now.
    IF in_line IS NOT NULL THEN
        DELETE FROM {t}_waiter WHERE owner = who AND name = key;
    END IF;
    given := {t}_give(key, who, lease, now_us);
    RETURN ARRAY[given, lease, now_us, given];
END $$;

-- The same for an owner that shows something. Asked again, it leaves what was proclaimed meanwhile.
CREATE OR REPLACE FUNCTION {t}_acquire_showing(key text, who text, lease bigint, whose bigint, at_place bigint, shown text)
    RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    answer CONSTANT bigint[] := {t}_acquire(key, who, lease, whose, at_place);
BEGIN
    -- It has the lock, or a place in line.
    IF answer[1] IS NOT NULL OR (answer[2] IS NOT NULL AND whose IS NOT NULL) THEN
        INSERT INTO {t}_value VALUES (who, key, shown, answer[3])
            ON CONFLICT (owner, name) DO UPDATE SET at_us = EXCLUDED.at_us;
    END IF;
    RETURN answer;
END $$;

-- Takes those of these locks that are free and that nobody waits for, and answers who has one now, with its token. What another
-- is at is left out, so that two of these calls never wait for each other.
CREATE OR REPLACE FUNCTION {t}_acquire_free(keys text[], whos text[], leases bigint[])
    RETURNS TABLE (who text, given bigint) LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint := {t}_now();
    dropped text[];
BEGIN
    WITH free AS MATERIALIZED (
        SELECT name FROM {t}_lock WHERE name = ANY (keys) AND owner IS NULL AND NOT waited_for FOR NO KEY UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE {t}_lock AS l SET owner = j.owner, token = greatest(l.token + 1, now_us), lease_us = j.lease, since_us = now_us,
            expires_us = now_us + j.lease
            FROM free, unnest(keys, whos, leases) AS j(name, owner, lease)
            WHERE free.name = j.name AND l.name = j.name AND l.owner IS NULL AND NOT l.waited_for
            RETURNING l.owner, l.token
    ) SELECT array_agg(t.owner), array_agg(t.token) INTO whos, leases FROM taken AS t;
    -- Only now, as in `acquire`: whoever gives up had the row before, or finds it taken.
    SELECT array_agg(g.owner) INTO dropped FROM {t}_gone AS g WHERE g.owner = ANY (whos);
    IF dropped IS NOT NULL THEN
        UPDATE {t}_lock SET owner = NULL WHERE name = ANY (keys) AND owner = ANY (dropped);
    END IF;
    RETURN QUERY SELECT t.owner, t.token FROM unnest(whos, leases) AS t(owner, token)
        WHERE dropped IS NULL OR t.owner <> ALL (dropped);
END $$;

-- Releases the lock, or leaves the line. Answers whether its lease still ran; null: the owner did not hold it.
--
-- Whoever notifies keeps all others of the whole server from it until its transaction has ended, and so until what it wrote is on
-- the disk. So where this is a transaction of its own (`alone`), it ends before, and the notification is one that writes nothing.
-- Should we die in between, the client finds its grant when it next looks.
CREATE OR REPLACE PROCEDURE {t}_release(key text, who text, give_up boolean, alone boolean, INOUT in_time boolean)
    LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint;
    end_us bigint;
    told text;
    l {t}_lock;
BEGIN
    in_time := NULL;
    IF NOT give_up THEN
        UPDATE {t}_lock SET owner = NULL WHERE name = key AND owner = who AND NOT waited_for RETURNING expires_us INTO end_us;
        IF FOUND THEN
            in_time := end_us > {t}_now();
            RETURN;
        END IF;
    END IF;
    IF give_up THEN
        l := {t}_decide(key);
        INSERT INTO {t}_gone VALUES (who, {t}_now()) ON CONFLICT DO NOTHING;
    ELSE
        SELECT * INTO l FROM {t}_lock WHERE name = key FOR NO KEY UPDATE;
    END IF;
    now_us := {t}_now();
    IF l.owner IS DISTINCT FROM who THEN
        DELETE FROM {t}_waiter WHERE owner = who AND name = key;
        IF {t}_is_mark(l.owner) AND l.expires_us > now_us THEN
            -- Those behind it may have waited for it alone.
            PERFORM {t}_tell({t}_hand_over(key, now_us, l.owner));
        END IF;
        RETURN;
    END IF;
    in_time := l.expires_us > now_us;
    told := {t}_hand_over(key, now_us);
    IF told IS NULL THEN
        UPDATE {t}_lock SET owner = NULL, waited_for = EXISTS (SELECT FROM {t}_waiter AS w WHERE w.name = key) WHERE name = key;
        RETURN;
    END IF;
    IF alone THEN
        COMMIT;
    END IF;
    PERFORM {t}_tell(told);
END $$;

-- The same for an owner that shows something. What a kept hold shows stays with it.
CREATE OR REPLACE PROCEDURE {t}_release_showing(key text, who text, give_up boolean, alone boolean, INOUT in_time boolean)
    LANGUAGE plpgsql AS $$
DECLARE
    l {t}_lock;
BEGIN
    SELECT * INTO l FROM {t}_lock WHERE name = key FOR NO KEY UPDATE;
    IF l.owner IS DISTINCT FROM 'kept#' || who THEN
        DELETE FROM {t}_value WHERE owner = {t}_first(who) AND name = key;
    END IF;
    CALL {t}_release(key, who, give_up, alone, in_time);
END $$;

-- Shows something else with the lock, unless its owner said that earlier than what it shows: then this landed late. Answers whether
-- this owner holds it.
CREATE OR REPLACE FUNCTION {t}_proclaim(key text, who text, shown text, said bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint;
    l {t}_lock;
BEGIN
    SELECT * INTO l FROM {t}_lock WHERE name = key FOR NO KEY UPDATE;
    now_us := {t}_now();
    IF l.owner IS DISTINCT FROM who OR l.expires_us <= now_us THEN
        RETURN false;
    END IF;
    INSERT INTO {t}_value AS v VALUES (who, key, shown, now_us, said)
        ON CONFLICT (owner, name) DO UPDATE SET value = EXCLUDED.value, at_us = EXCLUDED.at_us, said_us = EXCLUDED.said_us
        WHERE v.said_us <= EXCLUDED.said_us;
    RETURN true;
END $$;

-- Has the hold go on without its owner, for so long from now. Answers whether it does, since now or before.
--
-- If a request of the owner's to acquire may still be on its way, the owner leaves a mark in `gone`, as if it had given up:
-- otherwise that request would enter the line. Waiters know when the lease is over. If the hold ends sooner, the client of the
-- first in line is told; the others look now and then. As in `release`, this is told after the commit.
CREATE OR REPLACE PROCEDURE {t}_keep(key text, who text, rest bigint, give_up boolean, alone boolean, INOUT is_kept boolean)
    LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint;
    told bigint;
    l {t}_lock;
BEGIN
    SELECT * INTO l FROM {t}_lock WHERE name = key FOR NO KEY UPDATE;
    now_us := {t}_now();
    is_kept := coalesce(l.owner IN (who, 'kept#' || who) AND l.expires_us > now_us, false);
    IF is_kept AND give_up THEN
        INSERT INTO {t}_gone VALUES (who, now_us) ON CONFLICT DO NOTHING;
    END IF;
    IF NOT is_kept OR l.owner <> who THEN
        RETURN;
    END IF;
    UPDATE {t}_lock SET owner = 'kept#' || who, lease_us = rest, expires_us = now_us + rest WHERE name = key;
    IF l.waited_for AND now_us + rest < l.expires_us THEN
        SELECT client INTO told FROM {t}_waiter WHERE name = key ORDER BY ticket LIMIT 1;
    END IF;
    IF told IS NULL THEN
        RETURN;
    END IF;
    IF alone THEN
        COMMIT;
    END IF;
    PERFORM pg_notify('oarlock_' || told, 'ends ' || rest);
END $$;

-- What a client with waiters does now and then: shows that it lives, serves locks that came free without a release, and
-- answers of each lock who holds it since when and for how long, with which token, whether this owner is in line, and the time.
CREATE OR REPLACE FUNCTION {t}_look(me bigint, hears boolean, keys text[], whos text[])
    RETURNS TABLE (holder text, given bigint, from_us bigint, left_us bigint, in_line boolean, now_us bigint) LANGUAGE plpgsql AS $$
DECLARE
    told text;
    l {t}_lock;
BEGIN
    now_us := {t}_now();
    INSERT INTO {t}_client VALUES (me, now_us, hears) ON CONFLICT (id) DO UPDATE SET seen_us = now_us;
    FOR i IN 1 .. cardinality(keys) LOOP
        SELECT * INTO l FROM {t}_lock WHERE name = keys[i];
        now_us := {t}_now();
        IF {t}_is_mark(l.owner) AND l.expires_us > now_us THEN
            PERFORM {t}_tell({t}_serve(keys[i]));
            SELECT * INTO l FROM {t}_lock WHERE name = keys[i];
        ELSIF l.owner IS NULL OR l.expires_us <= now_us OR l.expires_us - now_us > l.lease_us THEN
            l := {t}_decide(keys[i]);
            now_us := {t}_now();
            IF l.owner IS NULL OR l.expires_us <= now_us THEN
                told := {t}_hand_over(keys[i], now_us);
                IF told IS NOT NULL THEN
                    PERFORM {t}_tell(told);
                END IF;
            ELSIF l.expires_us - now_us > l.lease_us THEN
                UPDATE {t}_lock SET expires_us = now_us + lease_us WHERE name = keys[i];
            END IF;
            SELECT * INTO l FROM {t}_lock WHERE name = keys[i];
        END IF;
        holder := l.owner;
        given := l.token;
        from_us := l.since_us;
        left_us := l.expires_us - now_us;
        IF {t}_is_mark(l.owner) THEN
            left_us := coalesce((SELECT min(h.expires_us) FROM {t}_holder AS h WHERE h.name = keys[i]), l.expires_us) - now_us;
        END IF;
        in_line := EXISTS (SELECT FROM {t}_waiter WHERE owner = whos[i] AND name = keys[i]);
        RETURN NEXT;
    END LOOP;
END $$;
