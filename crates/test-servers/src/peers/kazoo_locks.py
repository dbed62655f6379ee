# kazoo's ReadLock, WriteLock and Semaphore, told what to do by lines on standard input: see peers.rs. Its arguments are where
# the servers are, and the patterns of other nodes by which writers wait and by which readers do.

import sys

from kazoo.client import KazooClient

servers, for_writers, for_readers = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
client = KazooClient(servers, timeout=15)
client.start()
held = None
for line in sys.stdin:
    words = line.split()
    if words[0] == "read":
        held = client.ReadLock(words[1], "theirs", extra_lock_patterns=for_readers)
    elif words[0] == "write":
        held = client.WriteLock(words[1], "theirs", extra_lock_patterns=for_writers)
    elif words[0] == "permits":
        held = client.Semaphore(words[1], "theirs", max_leases=int(words[3]))
    if words[0] in ("unlock", "give"):
        held.release()
        print("unlocked", flush=True)
    else:
        print("locked" if held.acquire() else "failed", flush=True)
