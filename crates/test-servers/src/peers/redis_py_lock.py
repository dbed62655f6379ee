# redis-py's Lock, told what to do by lines on standard input: see peers.rs. Its arguments are where the server is, and for
# how many milliseconds the lock is taken.

import os
import queue
import sys
import threading

import redis

(host, _, port), lease = sys.argv[1].rpartition(":"), int(sys.argv[2])
# It promises nothing to who is answered later than that.
soon = lease / 1000
client = redis.Redis(host=host, port=int(port), socket_timeout=soon, socket_connect_timeout=soon)
held, orders = None, queue.Queue()


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


def work():
    while True:
        words = orders.get()
        try:
            answer = obey(words)
        except Exception as error:
            answer = "failed %r" % error
        print(answer, flush=True)


threading.Thread(target=work, daemon=True).start()
for line in sys.stdin:
    orders.put(line.split())
# What it holds runs out.
os._exit(0)
