# kazoo's Lock, ReadLock, WriteLock and Semaphore, told what to do by lines on standard input: see peers.rs. Its arguments
# are where the servers are, the patterns of other nodes by which writers wait and by which readers do, and for how many
# milliseconds its session lasts.

import sys

from kazoo.client import KazooClient
from kazoo.exceptions import SessionExpiredError

from orders import obey_all

servers, for_writers, for_readers = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
session = int(sys.argv[4]) / 1000 if len(sys.argv) > 4 else 15


def connect():
    while True:
        client = KazooClient(servers, timeout=session)
        try:
            client.start(timeout=5)
            return client
        except Exception:
            end(client)


def end(client):
    client.stop()
    client.close()


def obey(words):
    global held
    if words[0] in ("unlock", "give"):
        held.release()
        return "unlocked"
    if words[0] == "check":
        # A write that changes nothing: who commits it has the session, which may be another one than that of what was taken.
        session, node, check = client.client_id[0], held.path + "/" + held.node, client.transaction()
        check.check(node, -1)
        try:
            seen = check.commit() == [True] and client.exists(node)
        except SessionExpiredError:
            seen = None
        if not seen:
            return "lost"
        return "held %d" % client._session_timeout if seen.ephemeralOwner == session else "failed"
    if words[0] == "lock":
        held = client.Lock(words[1], "theirs", extra_lock_patterns=for_writers)
    elif words[0] == "read":
        held = client.ReadLock(words[1], "theirs", extra_lock_patterns=for_readers)
    elif words[0] == "write":
        held = client.WriteLock(words[1], "theirs", extra_lock_patterns=for_writers)
    else:
        held = client.Semaphore(words[1], "theirs", max_leases=int(words[3]))
    return "locked" if held.acquire() else "failed"


client, held = connect(), None


def start_anew(words):
    global client
    if words[0] != "check":
        # With the session its nodes go.
        end(client)
        client = connect()


# Whoever waits for a lock then gives up: with the session its nodes go.
obey_all(obey, lambda: end(client), start_anew)
