# redis-py's Lock, told what to do by lines on standard input: see peers.rs. Its arguments are where the server is, and for
# how many milliseconds the lock is taken.

import sys

import redis

from orders import obey_all

(host, _, port), lease = sys.argv[1].rpartition(":"), int(sys.argv[2])
# It promises nothing to who is answered later than that.
soon = lease / 1000
client = redis.Redis(host=host, port=int(port), socket_timeout=soon, socket_connect_timeout=soon)
held = None


def obey(words):
    global held
    if words[0] == "lock":
        held = client.lock(words[1], timeout=soon, sleep=soon / 50)
        return "locked" if held.acquire() else "failed"
    try:
        if words[0] == "check":
            held.reacquire()
            return "held %d" % lease
        held.release()
        return "unlocked"
    except redis.exceptions.LockNotOwnedError:
        return "lost"


# What it holds runs out.
obey_all(obey, lambda: None)
