//! The scripts by which a lock goes on to the next in line. See `statements.rs` for why no waiter is forgotten.

/// Hands a lock to the first in line who lives, if that wants it alone, marks its place as granted, and rings its client's
/// bell. It answers whether somebody may have it beside others: to answer as `state` then would have all others wait longer
/// for the bell. Columns are set in the order in which they stand here, and those below see what was set above: so it is
/// where a statement changes one table, as one with a LIMIT does in any case.
///
/// What is committed can be read before it is on the disk, where a crash of the server would undo it. So once it is there,
/// and not before, this session shows that by a lock of the server's, until it hands over the next: see [`safe`]. (MariaDB
/// may be done with a COMMIT before that is on the disk, but not with its answer, which goes out before the next statement
/// begins. Inside a stored routine, none would.)
///
/// It is done when there is an answer. The last fails if there is no bell. Sent again, it does not ring for what it did
/// before: the waiter finds that when its bell has slept.
pub(super) const HAND_OVER: &str = "START TRANSACTION;{first}
    UPDATE {t}_lock SET since_us = LAST_INSERT_ID(expires_us > {now}),
        owner = (SELECT IF(w.mode = '', w.owner, NULL) FROM {t}_waiter AS w WHERE w.name = {key} AND {waits} ORDER BY w.ticket LIMIT 1),
        line_us = IF(owner IS NULL AND NOT EXISTS (SELECT 1 FROM {t}_waiter AS w WHERE w.name = {key} AND w.token = 0), 0, line_us),
        token = IF(owner IS NULL, token, GREATEST(token + 1, {now})),
        since_us = IF(owner IS NULL, since_us, {now}),
        lease_us = IF(owner IS NULL, lease_us, (SELECT w.lease_us FROM {t}_waiter AS w WHERE w.owner = {t}_lock.owner)),
        expires_us = IF(owner IS NULL, expires_us, since_us + lease_us)
        WHERE name = {key} AND {whose} LIMIT 1;
    SELECT RELEASE_ALL_LOCKS(), MAX(w.owner), MAX(l.token), MAX(l.since_us), MAX({given}),
        MAX((SELECT IF(IS_USED_LOCK(CONCAT('oarlock_', c.id)) IS NULL, NULL, c.rings) FROM {t}_client AS c WHERE c.id = w.client))
        INTO @oarlock, @oarlock_owner, @oarlock_token, @oarlock_at, @oarlock_safe, @oarlock_bell
        FROM {t}_lock AS l JOIN {t}_waiter AS w ON w.owner = l.owner AND w.token = 0 WHERE l.name = {key};
    UPDATE {t}_waiter SET token = @oarlock_token, at_us = @oarlock_at WHERE owner = @oarlock_owner AND token = 0;
    COMMIT;
    SELECT IF(@oarlock_bell IS NULL, IFNULL((SELECT IF(l.owner IS NULL, EXISTS (
        SELECT 1 FROM {t}_waiter AS w WHERE w.name = {key} AND w.token = 0 AND w.mode <> ''), {together})
        FROM {t}_lock AS l WHERE l.name = {key}), 0), 0) AS beside, IF(@oarlock_bell IS NULL, 0, GET_LOCK(@oarlock_safe, 0));
    KILL QUERY @oarlock_bell";

/// The name of the lock of the server's that shows that a grant is on the disk, which a waiter was told. It is not
/// longer than 64 bytes. Who does not find it writes something, and knows then.
pub(super) fn safe(client: &str, token: &str, owner: &str) -> String {
    format!("CONCAT('oarlock_', {client}, '_', {token}, '_', CRC32({owner}))")
}

/// Lets a hold go on without its owner. The first in line, who may sleep until the lease would be over, is told: its client
/// gets a row among the waiters that looks like a grant, to the owner as the hold has it now, and its bell is rung. So this
/// news is not lost either, and costs nobody else anything. Sent again, it tells again.
///
/// It is done after the first two statements. The last fails if there is no bell.
pub(super) const KEEP: &str = "UPDATE {t}_lock SET owner = CONCAT('kept#', owner), lease_us = {rest}, expires_us = {now} + {rest}
        WHERE name = {key} AND owner = {owner} AND expires_us > {now};
    INSERT IGNORE INTO {t}_waiter (owner, name, ticket, lease_us, client, token, at_us)
        SELECT l.owner, l.name, 0, 0, w.client, l.token, {now} FROM {t}_lock AS l JOIN {t}_waiter AS w ON w.name = l.name
            WHERE l.name = {key} AND l.owner = CONCAT('kept#', {owner}) AND {waits} ORDER BY w.ticket LIMIT 1;
    SELECT (SELECT c.rings FROM {t}_waiter AS w JOIN {t}_client AS c ON c.id = w.client
        WHERE w.owner = CONCAT('kept#', {owner}) AND IS_USED_LOCK(CONCAT('oarlock_', c.id)) IS NOT NULL) INTO @oarlock;
    KILL QUERY @oarlock";

/// After so many statements of [`KEEP`] it is done, and which of them tells of the lock.
pub(super) const KEPT: (usize, usize) = (2, 0);

/// After so many statements of [`HAND_OVER`] it is done, and which of them tells of the lock.
pub(super) const HANDED_OVER: (usize, usize) = (6, 1);

/// What a reader does before it hands the lock over that nobody else reads any more, where others do beside it.
pub(super) const READ: &str = "{row_first}
    UPDATE {t}_lock SET rev = rev + 1 WHERE name = {key} AND expires_us > {now} AND (owner = {only}
        OR owner = 'shared#' AND EXISTS (SELECT 1 FROM {t}_holder AS h WHERE h.owner = {owner} AND h.expires_us > {now}));
    SET @oarlock = ROW_COUNT();
    DELETE FROM {t}_holder WHERE owner = {owner} AND @oarlock = 1;
    UPDATE {t}_lock SET expires_us = IFNULL((SELECT MAX(h.expires_us) FROM {t}_holder AS h WHERE h.name = {key}), expires_us)
        WHERE name = {key} AND owner = 'shared#' AND @oarlock = 1;";

/// As of [`HANDED_OVER`], behind [`READ`].
pub(super) const READ_AND_HANDED_OVER: (usize, usize) = (HANDED_OVER.0 + 5, 2);
