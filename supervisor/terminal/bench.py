"""How fast this broker takes and delivers messages to one Python client: what is usual, not what is possible
(`make bench` measures that).

The topic's name is like no other, so a broker at an http:// address that knows it is the one that was measured.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from mq_shards.supervisor.terminal import at, show
from mq_shards.supervisor.terminal.beanstalk import Beanstalk
from mq_shards.supervisor.terminal.client import At, CannotError, Client, ClientError, RefusedError
from mq_shards.supervisor.terminal.http import Http

CHANNEL: Final = "bench"
MAX_MESSAGES: Final = 200_000
TAKEN: Final = 20_000  # the most that are consumed
KEEP: Final = ("nsq", "beanstalk", "http")  # protocols whose new consumers get what was published before
DELETE: Final = ("nsq-http", "http")  # protocols that delete topics themselves
TERMINATED: Final = 128 + signal.SIGTERM
# After a signal a broker that hangs has this long for the answers that are due, and for deleting the topic.
FINISHING_S: Final = 1.0
REMOVING_S: Final = 3.0


def run(client: Client, seconds: float, size: int) -> dict[str, Any]:
    """Publishes for `seconds`, consumes for as long what it has published, at least 100 messages of each, and deletes
    the topic if it can, after a signal too. Raises ClientError."""
    scheme = at.plain(client.at.scheme)
    topic = f"bench.{os.getpid()}.{time.time_ns()}"
    body = os.urandom(size // 2).hex().encode().ljust(size, b"x")
    most = TAKEN if scheme == "beanstalk" else MAX_MESSAGES  # a tube goes when all has been consumed
    with _Stop() as stop:
        try:
            begun = time.monotonic()
            until = begun + seconds

            def bodies() -> Iterator[bytes]:
                for sent in range(most):
                    if stop.signal or (sent and sent % 100 == 0 and time.monotonic() > until):
                        return
                    yield body

            published = client.publish(topic, bodies())
            passed = time.monotonic() - begun
            result = {
                "at": str(client.at), "bytes": size, "published": published, "publish_rate": round(published / passed),
                "megabytes_per_s": round(published * size / passed / 1e6, 1),
            }  # fmt: skip
            if scheme in KEEP and not stop.signal:
                result |= _taken(client, topic, min(published, TAKEN), seconds, stop)
        finally:
            stop.limit(REMOVING_S)
            client.close()
            _remove(client.at, topic)
    return result


class _Stop:
    """The first SIGINT or SIGTERM only says which it was, so that no message is on its way when the topic is deleted;
    the end of the block then ends the command. A second one does what it does elsewhere. After the first one whatever
    takes longer than its limit raises ClientError."""

    def __init__(self) -> None:
        self.signal = 0
        self._limit_s = FINISHING_S
        self._before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

    def __enter__(self) -> _Stop:
        signal.signal(signal.SIGALRM, self._is_late)
        for one, before in self._before.items():
            if before is not signal.SIG_IGN:
                signal.signal(one, self._take)
        return self

    def limit(self, seconds: float) -> None:
        """How long what is done from now on may take: from now on if the signal has come, otherwise from the signal."""
        self._limit_s = seconds
        if self.signal:
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self._restore()
        self.limit(self._limit_s)

    def _is_late(self, number: int, frame: FrameType | None) -> None:
        raise ClientError(f"no answer within {self._limit_s:g} s")

    def _restore(self) -> None:
        for one, before in self._before.items():
            signal.signal(one, before)

    def __exit__(self, *raised: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._restore()
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal == signal.SIGTERM:
            raise SystemExit(TERMINATED)


def _remove(where: At, topic: str) -> None:
    """Deletes the topic; says so if it stays. By a new connection: one that was interrupted may be in the middle of an
    answer."""
    scheme = at.plain(where.scheme)
    try:
        if scheme == "beanstalk":
            with contextlib.closing(Beanstalk(where)) as tubes:
                tubes.empty(topic)
            return
        cannot = CannotError(f"{where.scheme}:// cannot delete it")
        with at.connect(where) if scheme in DELETE else at.elsewhere(where, cannot) as client:
            assert isinstance(client, Http)
            client.delete(topic)
    except ClientError as error:
        is_unknown = isinstance(error, RefusedError) and error.status == 404
        # Of a subject nothing stays, unless the broker is told to keep it.
        if scheme != "nats" and not (is_unknown and scheme in DELETE):
            why = f"what answers on port {at.HTTP_PORT} is another broker" if is_unknown else str(error)
            print(f"mq-shards: the topic {topic} stays: {show.safe(why)}", file=sys.stderr)


def _taken(client: Client, topic: str, wanted: int, seconds: float, stop: _Stop) -> dict[str, Any]:
    begun = time.monotonic()
    count = 0
    for message in client.consume(topic, CHANNEL):
        client.finish(message)
        count += 1
        if count == wanted or stop.signal or (count % 100 == 0 and time.monotonic() > begun + seconds):
            break
    passed = time.monotonic() - begun
    return {"consumed": count, "consume_rate": round(count / passed)}
