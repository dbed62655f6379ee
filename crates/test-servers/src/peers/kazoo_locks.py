# kazoo's Lock, ReadLock, WriteLock and Semaphore, told what to do by lines on standard input: see peers.rs. Its arguments
# are where the servers are, the patterns of other nodes by which writers wait and by which readers do, and for how many
# milliseconds its session lasts.

import os
import sys
import time

from kazoo.client import KazooClient
from kazoo.exceptions import SessionExpiredError

from orders import obey_all

servers, for_writers, for_readers = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
session = int(sys.argv[4]) / 1000 if len(sys.argv) > 4 else 15
# Of servers whose tick is half a second, in seconds.
HALF_A_TICK = 0.25


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


def commits(node):
    check = client.transaction()
    check.check(node, -1)
    return check.commit() == [True]


def obey(words):
    global held, asked
    if words[0] in ("unlock", "give"):
        held.release()
        return "unlocked"
    if words[0] == "check":
        # A write that changes nothing: who commits it has the session, which may be another one than that of what was taken.
        session, node = client.client_id[0], held.path + "/" + held.node
        try:
            if not commits(node):
                return "lost"
            # The leader hears of that from a follower within half a tick, or does not commit what comes after.
            time.sleep(HALF_A_TICK)
            seen = commits(node) and client.exists(node)
        except SessionExpiredError:
            seen = None
        if not seen:
            return "lost"
        return "held %d" % client._session_timeout if seen.ephemeralOwner == session else "failed"
    asked += 1
    own = "theirs-%d-%d" % (os.getpid(), asked)
    if words[0] == "lock":
        held = client.Lock(words[1], own, extra_lock_patterns=for_writers)
    elif words[0] == "read":
        held = client.ReadLock(words[1], own, extra_lock_patterns=for_readers)
    elif words[0] == "write":
        held = client.WriteLock(words[1], own, extra_lock_patterns=for_writers)
    else:
        held = client.Semaphore(words[1], own, max_leases=int(words[3]))
    return "locked " + own if held.acquire() else "failed"


client, held, asked = connect(), None, 0


def start_anew(words):
    global client
    if words[0] != "check":
        # With the session its nodes go.
        end(client)
        client = connect()


# Whoever waits for a lock then gives up: with the session its nodes go.
obey_all(obey, lambda: end(client), start_anew)
