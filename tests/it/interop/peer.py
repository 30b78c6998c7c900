"""A lock of another library, for tests/it/interop.rs. Each line on stdin is an order; each is answered by one line.

    peer.py redis-py|pottery NAME TTL-SECONDS WITNESS-URL NODE-URL...

The answer to an order that raised is the name of the exception, and its message.
"""

import os
import queue
import signal
import sys
import threading
import time

import pottery
import redis

# However the test ended: this process does not outlive it for longer.
LIFE_SECONDS = 120
# How long to wait for the other side, which holds the lock for milliseconds, on the slowest machine.
PATIENCE_SECONDS = 20
RETRY_SECONDS = 0.002
TENURE_SECONDS = 0.001
REST_SECONDS = 0.002


class RedisPy:
    def __init__(self, name, ttl, nodes):
        (node,) = nodes
        self.lock = node.lock(name, timeout=ttl, sleep=RETRY_SECONDS)

    def acquire(self, patience):
        return self.lock.acquire(blocking=patience > 0, blocking_timeout=patience)

    def owns(self):
        return self.lock.owned()

    def extend(self, seconds):
        return self.lock.extend(seconds)

    def release(self):
        return self.lock.release()


class Pottery:
    def __init__(self, name, ttl, nodes):
        # There is no setting for it, and with its own (up to 0.2 s) it would seldom have a turn.
        pottery.Redlock._RETRY_DELAY = 2 * RETRY_SECONDS
        self.lock = pottery.Redlock(key=name, masters=nodes, auto_release_time=ttl)

    def acquire(self, patience):
        return self.lock.acquire(blocking=patience > 0, timeout=patience or -1)

    def owns(self):
        return self.lock.locked() > 0

    def extend(self, _seconds):
        # Always by the ttl that it was made with.
        return self.lock.extend()

    def release(self):
        return self.lock.release()


def compete(lock, witness, rounds):
    for _ in range(rounds):
        assert lock.acquire(PATIENCE_SECONDS), "no turn in time"
        tenure(witness)
        lock.release()
        time.sleep(REST_SECONDS)


def tenure(witness):
    """Exclusion, exactly: nobody else is inside, and no letter of the history gets lost."""
    inside = witness.incr("inside")
    assert inside == 1, f"{inside} holders at once"
    history = witness.get("history") or b""
    time.sleep(TENURE_SECONDS)
    witness.set("history", history + b"p")
    witness.decr("inside")


def orders():
    """The lines of stdin. Where they end there is no test any more: nor is this process, whatever it is doing."""
    lines = queue.Queue()

    def read():
        for line in sys.stdin:
            lines.put(line)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield lines.get().split()


def main():
    signal.alarm(LIFE_SECONDS)
    library, name, ttl, witness, *nodes = sys.argv[1:]
    nodes = [redis.Redis.from_url(node) for node in nodes]
    witness = redis.Redis.from_url(witness)
    lock = {"redis-py": RedisPy, "pottery": Pottery}[library](name, float(ttl), nodes)
    for order, *arguments in orders():
        numbers = [float(each) for each in arguments]
        try:
            if order == "compete":
                answer = compete(lock, witness, int(*numbers))
            else:
                answer = getattr(lock, order)(*numbers)
        except Exception as error:
            message = " ".join(str(error).split())
            answer = f"{type(error).__name__}: {message}"
        print(answer, flush=True)


main()
