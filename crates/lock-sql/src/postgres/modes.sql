
-- Locks that several hold at a time. Then the lock's owner is a mark, `shared#` or `permits#N`, for as long as the longest of
-- their leases, and each has a row here. Without the mark these rows mean nothing. Whoever changes them has the lock's row.
--
-- A reader that finds the lock free has none: it has the lock as its owner would alone, under the name `shared#` and its own, by
-- one update like that one's. `decide` gives it a row, and so does whoever is about to share the lock or to wait for it.
CREATE TABLE IF NOT EXISTS {t}_holder (
    name text COLLATE "C" NOT NULL, owner text NOT NULL, token bigint NOT NULL, slots bigint[] NOT NULL, lease_us bigint NOT NULL,
    since_us bigint NOT NULL, expires_us bigint NOT NULL, PRIMARY KEY (name, owner)
);

CREATE OR REPLACE FUNCTION {t}_is_mark(who text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(who = 'shared#' OR who LIKE 'permits#%', false)
$$;

-- How many permits a mark is of; 0 of a lock.
CREATE OR REPLACE FUNCTION {t}_permits(who text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN who LIKE 'permits#%' THEN substr(who, 9)::bigint ELSE 0 END
$$;

-- How this lock, whose row one has, is held at this time: null if it is free, after those are taken out whose leases are over.
CREATE OR REPLACE FUNCTION {t}_held_as(l {t}_lock, at_us bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF l.owner IS NULL OR l.expires_us <= at_us THEN
        DELETE FROM {t}_holder WHERE name = l.name;
        RETURN NULL;
    END IF;
    IF {t}_is_mark(l.owner) THEN
        DELETE FROM {t}_holder WHERE name = l.name AND expires_us <= at_us;
    ELSE
        DELETE FROM {t}_holder WHERE name = l.name;
    END IF;
    RETURN l.owner;
END $$;

-- Has the lock end with the last lease; it is free if there is none.
CREATE OR REPLACE FUNCTION {t}_end_with_the_last(key text, at_us bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    last bigint := (SELECT max(expires_us) FROM {t}_holder WHERE name = key);
    waits CONSTANT boolean := EXISTS (SELECT FROM {t}_waiter WHERE name = key);
BEGIN
    UPDATE {t}_lock SET owner = CASE WHEN last IS NOT NULL THEN owner END, waited_for = waits,
        lease_us = coalesce(last - at_us, lease_us), expires_us = coalesce(last, expires_us) WHERE name = key;
END $$;

-- Grants a lock beside others, if it is free or of this kind, and there are enough permits. Answers the token, or null.
CREATE OR REPLACE FUNCTION {t}_join(key text, who text, lease bigint, how text, mark text, at_us bigint)
    RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    wanted CONSTANT text[] := string_to_array(substr(how, 2), '/');
    free bigint[] := '{}';
    given bigint;
BEGIN
    IF mark IS NULL THEN
        DELETE FROM {t}_holder WHERE name = key;
        mark := CASE left(how, 1) WHEN 's' THEN 'shared#' ELSE 'permits#' || wanted[2] END;
    ELSIF (left(how, 1) = 's') <> (mark = 'shared#') THEN
        RETURN NULL;
    END IF;
    IF mark <> 'shared#' THEN
        free := ARRAY(SELECT s FROM generate_series(0, {t}_permits(mark) - 1) AS s WHERE NOT EXISTS (
            SELECT FROM {t}_holder AS h WHERE h.name = key AND s = ANY (h.slots)) ORDER BY s);
        -- Those that a semaphore had which was made smaller count as well.
        IF {t}_permits(mark) - (SELECT coalesce(sum(cardinality(slots)), 0) FROM {t}_holder WHERE name = key)
            < wanted[1]::bigint THEN
            RETURN NULL;
        END IF;
        free := free[1:wanted[1]::int];
    END IF;
    DELETE FROM {t}_waiter WHERE owner = who AND name = key;
    UPDATE {t}_lock SET owner = mark, token = greatest(token + 1, at_us),
        since_us = CASE WHEN owner = mark THEN since_us ELSE at_us END WHERE name = key RETURNING token INTO given;
    INSERT INTO {t}_holder VALUES (key, who, given, free, lease, at_us, at_us + lease);
    PERFORM {t}_end_with_the_last(key, at_us);
    RETURN given;
END $$;

-- Serves the line of a lock whose holders' leases may be over. Answers what to tell.
CREATE OR REPLACE FUNCTION {t}_serve(key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    l CONSTANT {t}_lock := {t}_decide(key);
    now_us CONSTANT bigint := {t}_now();
    mark CONSTANT text := {t}_held_as(l, now_us);
    told text;
BEGIN
    IF mark IS NULL OR {t}_is_mark(mark) THEN
        told := {t}_hand_over(key, now_us, mark);
        IF {t}_is_mark((SELECT owner FROM {t}_lock WHERE name = key)) THEN
            PERFORM {t}_end_with_the_last(key, now_us);
        END IF;
    END IF;
    RETURN told;
END $$;

-- Takes the lock beside others, or with a client enters the line. Answers as `acquire` does, and behind it the slots.
CREATE OR REPLACE FUNCTION {t}_acquire_beside(key text, who text, lease bigint, whose bigint, at_place bigint, how text)
    RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    l {t}_lock;
    now_us bigint := {t}_now();
    mark text;
    h {t}_holder;
    -- Null: nobody is in line; else, whether this owner is.
    in_line boolean;
    permits CONSTANT bigint := CASE left(how, 1) WHEN 's' THEN 0 ELSE split_part(how, '/', 2)::bigint END;
    told text;
    given bigint;
BEGIN
    IF how = 's' THEN
        UPDATE {t}_lock SET owner = 'shared#' || who, token = greatest(token + 1, now_us), lease_us = lease, since_us = now_us,
            expires_us = now_us + lease WHERE name = key AND owner IS NULL AND NOT waited_for RETURNING token INTO given;
        IF FOUND THEN
            IF EXISTS (SELECT FROM {t}_gone WHERE owner = who) THEN
                UPDATE {t}_lock SET owner = NULL WHERE name = key;
                RETURN ARRAY[NULL, NULL, now_us, NULL];
            END IF;
            RETURN ARRAY[given, lease, now_us, given];
        END IF;
    END IF;
    l := {t}_decide(key);
    now_us := {t}_now();
    mark := {t}_held_as(l, now_us);
    IF EXISTS (SELECT FROM {t}_gone WHERE owner = who) THEN
        RETURN ARRAY[NULL, NULL, now_us, NULL];
    END IF;
    -- Before the line is served: the client may be dead by which the owner entered it.
    IF whose IS NOT NULL THEN
        UPDATE {t}_waiter SET client = whose, place = at_place, lease_us = lease WHERE owner = who AND name = key;
    END IF;
    IF EXISTS (SELECT FROM {t}_waiter WHERE name = key) AND (mark IS NULL OR {t}_is_mark(mark)) THEN
        told := {t}_hand_over(key, now_us, mark);
        PERFORM {t}_tell(told);
        SELECT * INTO l FROM {t}_lock WHERE name = key;
        mark := CASE WHEN l.owner IS NOT NULL AND l.expires_us > now_us THEN l.owner END;
        IF told <> '' AND {t}_is_mark(mark) THEN
            -- Null, if none of those who are left lives: who came may join those who were served.
            told := {t}_hand_over(key, now_us, mark);
        END IF;
    END IF;
    SELECT * INTO h FROM {t}_holder WHERE name = key AND owner = who;
    IF FOUND AND {t}_is_mark(mark) THEN
        RETURN ARRAY[h.token, h.expires_us - now_us, now_us, h.token] || h.slots;
    END IF;
    SELECT CASE WHEN EXISTS (SELECT FROM {t}_waiter WHERE name = key)
        THEN EXISTS (SELECT FROM {t}_waiter WHERE owner = who AND name = key) END INTO in_line;
    IF mark IS NOT NULL AND in_line IS NOT TRUE AND {t}_permits(mark) <> permits THEN
        RETURN ARRAY[NULL, NULL, now_us, {t}_permits(mark)];
    END IF;
    -- Null after others were looked for: nobody in line lives.
    IF in_line IS NULL OR (told IS NULL AND (mark IS NULL OR {t}_is_mark(mark))) THEN
        given := {t}_join(key, who, lease, how, mark, now_us);
        IF given IS NOT NULL THEN
            RETURN ARRAY[given, lease, now_us, given] || (SELECT slots FROM {t}_holder WHERE name = key AND owner = who);
        END IF;
    END IF;
    IF whose IS NOT NULL THEN
        IF in_line IS NOT TRUE THEN
            INSERT INTO {t}_waiter (name, owner, lease_us, client, place, mode) VALUES (key, who, lease, whose, at_place, how);
        END IF;
        IF NOT l.waited_for THEN
            UPDATE {t}_lock SET waited_for = true WHERE name = key;
        END IF;
    END IF;
    RETURN ARRAY[NULL, greatest(0, least(l.expires_us - now_us, l.lease_us,
        (SELECT min(expires_us) FROM {t}_holder WHERE name = key AND {t}_is_mark(mark)) - now_us)), now_us, l.token];
END $$;

-- Ends one of several holds and serves the line, or leaves it: see `release`.
CREATE OR REPLACE PROCEDURE {t}_release_beside(key text, who text, give_up boolean, alone boolean, INOUT in_time boolean)
    LANGUAGE plpgsql AS $$
DECLARE
    l {t}_lock;
    now_us bigint;
    end_us bigint;
    told text;
BEGIN
    in_time := NULL;
    IF NOT give_up THEN
        UPDATE {t}_lock SET owner = NULL WHERE name = key AND owner = 'shared#' || who AND NOT waited_for
            RETURNING expires_us INTO end_us;
        IF FOUND THEN
            in_time := end_us > {t}_now();
            RETURN;
        END IF;
    END IF;
    l := {t}_decide(key);
    now_us := {t}_now();
    IF give_up THEN
        INSERT INTO {t}_gone VALUES (who, now_us) ON CONFLICT DO NOTHING;
    END IF;
    IF {t}_is_mark(l.owner) THEN
        DELETE FROM {t}_holder WHERE name = key AND owner = who
            RETURNING expires_us > now_us AND l.expires_us > now_us INTO in_time;
    END IF;
    DELETE FROM {t}_waiter WHERE owner = who AND name = key;
    IF {t}_held_as(l, now_us) IS NULL OR {t}_is_mark(l.owner) THEN
        told := {t}_hand_over(key, now_us, CASE WHEN {t}_is_mark(l.owner) THEN l.owner END);
        IF {t}_is_mark((SELECT owner FROM {t}_lock WHERE name = key)) THEN
            PERFORM {t}_end_with_the_last(key, now_us);
        END IF;
    END IF;
    IF told <> '' THEN
        IF alone THEN
            COMMIT;
        END IF;
        PERFORM {t}_tell(told);
    END IF;
END $$;

-- Prolongs leases of those who hold locks beside others. Answers the owners who still do.
CREATE OR REPLACE FUNCTION {t}_renew_beside(keys text[], whos text[], leases bigint[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    one record;
    l {t}_lock;
    now_us bigint;
BEGIN
    FOR one IN SELECT * FROM unnest(keys, whos, leases) AS j(key, who, lease) ORDER BY j.key COLLATE "C" LOOP
        SELECT * INTO l FROM {t}_lock WHERE name = one.key FOR NO KEY UPDATE;
        now_us := {t}_now();
        IF l.owner = 'shared#' || one.who AND l.expires_us > now_us THEN
            UPDATE {t}_lock SET lease_us = one.lease, expires_us = now_us + one.lease WHERE name = one.key;
            RETURN NEXT one.who;
            CONTINUE;
        END IF;
        CONTINUE WHEN NOT {t}_is_mark(l.owner) OR l.expires_us <= now_us;
        UPDATE {t}_holder SET lease_us = one.lease, expires_us = now_us + one.lease
            WHERE name = one.key AND owner = one.who AND expires_us > now_us;
        IF FOUND THEN
            PERFORM {t}_end_with_the_last(one.key, now_us);
            RETURN NEXT one.who;
        END IF;
    END LOOP;
END $$;

-- Changes how many permits a semaphore has, if that was asked so often before. Answers {1} it has so many, {0} it is not in use,
-- {2} it is a lock, {3, so many} somebody waits for, {4, so often} it was asked before. Whatever it is answered, a copy that lands
-- later finds that it was asked more often.
CREATE OR REPLACE FUNCTION {t}_resize(key text, permits bigint, asked bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    l {t}_lock;
    mark text;
    most bigint;
BEGIN
    PERFORM {t}_tell({t}_serve(key));
    SELECT * INTO l FROM {t}_lock WHERE name = key;
    IF l.resizes IS DISTINCT FROM asked THEN
        RETURN ARRAY[4, l.resizes];
    END IF;
    UPDATE {t}_lock SET resizes = resizes + 1 WHERE name = key;
    mark := {t}_held_as(l, {t}_now());
    IF mark IS NULL OR NOT {t}_is_mark(mark) OR mark = 'shared#' THEN
        RETURN ARRAY[CASE WHEN mark IS NULL THEN 0 ELSE 2 END];
    END IF;
    SELECT max(split_part(substr(mode, 2), '/', 1)::bigint) INTO most FROM {t}_waiter WHERE name = key AND mode LIKE 'p%';
    IF most > permits THEN
        RETURN ARRAY[3, most];
    END IF;
    UPDATE {t}_lock SET owner = 'permits#' || permits WHERE name = key;
    PERFORM {t}_tell({t}_serve(key));
    RETURN ARRAY[1];
END $$;
COMMIT;
