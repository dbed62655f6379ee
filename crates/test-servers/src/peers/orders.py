# Lines on standard input, obeyed one after the other, each with an answer: see peers.rs.

import os
import queue
import sys
import threading


def obey_all(obey, end, after_failure=lambda words: None):
    # When there are no more, whoever waits for a lock is not waited for: `end` is to end that, too.
    orders = queue.Queue()

    def work():
        while True:
            words = orders.get()
            try:
                answer = obey(words)
            except Exception as error:
                answer = "failed %r" % error
            if answer.startswith("failed"):
                after_failure(words)
            print(answer, flush=True)

    threading.Thread(target=work, daemon=True).start()
    for line in sys.stdin:
        orders.put(line.split())
    end()
    os._exit(0)
