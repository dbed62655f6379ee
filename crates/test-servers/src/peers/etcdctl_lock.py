# `etcdctl lock`, told what to do by lines on standard input: see peers.rs. Its arguments are where the members are, and for
# how many seconds its session lasts.

import json
import subprocess
import sys

from orders import obey_all

members, seconds = sys.argv[1], sys.argv[2]
etcdctl = ["etcdctl", "--endpoints", members, "--command-timeout", "2s"]
held = None


def ask(*words):
    asked = subprocess.run([*etcdctl, *words, "-w", "json"], stdin=subprocess.DEVNULL, capture_output=True)
    try:
        return json.loads(asked.stdout.splitlines()[0])
    except (IndexError, ValueError):
        return {}


def end():
    # It gives the lock back, or what it waits for.
    if held:
        held.terminate()
        held.wait()


def check():
    # The lease is in the key's name. It is renewed, and a read that the members agree on sees the key after that. It counts
    # only if both were done under one leader: one that is deposed and does not know it yet renews leases, too.
    lease = key.rpartition("/")[2]
    for _ in range(3):
        renewed = ask("lease", "keep-alive", lease, "--once")
        seen = ask("get", key)
        if seen and not seen.get("kvs"):
            return "lost"
        if seen and renewed.get("raft_term") == seen["header"]["raft_term"]:
            return "held %d" % (renewed["TTL"] * 1000)
    return "failed"


def obey(words):
    global held, key
    if words[0] == "check":
        return check()
    if words[0] == "unlock":
        end()
        done, held = held.returncode, None
        return "unlocked" if done == 0 else "failed"
    lock = [*etcdctl[:3], "lock", "--ttl", seconds, words[1]]
    held = subprocess.Popen(lock, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    key = held.stdout.readline().strip()
    return "locked " + key if key else "failed"


obey_all(obey, end)
