"""A lock of another library, for tests/it/interop.rs. Each line on stdin is a command, and has one line as its reply.

    peer.py redis-py|pottery NAME TTL-SECONDS WITNESS-URL NODE-URL...

If a command raises an exception, the reply is its name and message.
"""

import os
import queue
import signal
import sys
import threading
import time

import pottery
import redis

# Upper bound for the life of this process, in case it is not killed.
LIFE_SECONDS = 120
# Maximum wait for the lock, on the slowest machine. quorlock holds it for milliseconds.
WAIT_SECONDS = 20
RETRY_SECONDS = 0.002
HOLD_SECONDS = 0.001
PAUSE_SECONDS = 0.002


class RedisPy:
    def __init__(self, name, ttl, nodes):
        (node,) = nodes
        self.lock = node.lock(name, timeout=ttl, sleep=RETRY_SECONDS)

    def acquire(self, wait):
        return self.lock.acquire(blocking=wait > 0, blocking_timeout=wait)

    def owns(self):
        return self.lock.owned()

    def extend(self, seconds):
        return self.lock.extend(seconds)

    def release(self):
        return self.lock.release()


class Pottery:
    def __init__(self, name, ttl, nodes):
        # There is no public setting. With the default (up to 0.2 s), this side would rarely acquire the lock.
        pottery.Redlock._RETRY_DELAY = 2 * RETRY_SECONDS
        self.lock = pottery.Redlock(key=name, masters=nodes, auto_release_time=ttl)

    def acquire(self, wait):
        return self.lock.acquire(blocking=wait > 0, timeout=wait or -1)

    def owns(self):
        return self.lock.locked() > 0

    def extend(self, _seconds):
        # pottery always extends by auto_release_time.
        return self.lock.extend()

    def release(self):
        return self.lock.release()


def compete(lock, witness, rounds):
    for _ in range(rounds):
        assert lock.acquire(WAIT_SECONDS), "timed out while waiting for the lock"
        hold(witness)
        lock.release()
        time.sleep(PAUSE_SECONDS)


def hold(witness):
    """Checks exclusion: the counter shows no second holder, and no update of the history is lost."""
    inside = witness.incr("inside")
    assert inside == 1, f"{inside} concurrent holders"
    history = witness.get("history") or b""
    time.sleep(HOLD_SECONDS)
    witness.set("history", history + b"p")
    witness.decr("inside")


def commands():
    """The lines of stdin. When stdin ends, the test has ended: this process exits at once."""
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
    for command, *arguments in commands():
        numbers = [float(each) for each in arguments]
        try:
            if command == "compete":
                reply = compete(lock, witness, int(*numbers))
            else:
                reply = getattr(lock, command)(*numbers)
        except Exception as error:
            message = " ".join(str(error).split())
            reply = f"{type(error).__name__}: {message}"
        print(reply, flush=True)


main()
