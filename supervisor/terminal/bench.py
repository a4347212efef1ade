"""How fast this broker takes and delivers messages to one Python client: what is usual, not what is possible
(`make bench` measures that)."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from mq_shards.supervisor.terminal import at
from mq_shards.supervisor.terminal.client import CannotError, Client, ClientError
from mq_shards.supervisor.terminal.http import Http

CHANNEL: Final = "bench"
MAX_MESSAGES: Final = 200_000
TAKEN: Final = 20_000  # the most that are consumed
# Protocols whose new consumers get what was published before, and those whose topics stay until somebody deletes them.
KEEP: Final = ("nsq", "beanstalk", "http")
LEAVE: Final = ("nsq", "pulsar")


def run(client: Client, seconds: float, size: int) -> dict[str, Any]:
    """Publishes for `seconds`, but at least 100 messages, consumes what it has published, and deletes the topic if it
    can. Raises ClientError."""
    topic = f"bench.{os.getpid()}.{time.time_ns()}"
    body = os.urandom(size // 2).hex().encode().ljust(size, b"x")
    remover = _remover(client)
    keeps = at.plain(client.at.scheme) in KEEP
    most = TAKEN if keeps and remover is None else MAX_MESSAGES  # without it, all have to be consumed
    begun = time.monotonic()
    until = begun + seconds

    def bodies() -> Iterator[bytes]:
        for sent in range(most):
            if sent and sent % 100 == 0 and time.monotonic() > until:
                return
            yield body

    published = client.publish(topic, bodies())
    passed = time.monotonic() - begun
    result = {
        "at": str(client.at), "bytes": size, "published": published, "publish_rate": round(published / passed),
        "megabytes_per_s": round(published * size / passed / 1e6, 1),
    }  # fmt: skip
    try:
        if keeps:
            result |= _taken(client, topic, min(published, TAKEN))
    finally:
        if remover is not None:
            with contextlib.suppress(ClientError):
                remover.delete(topic)
        elif at.plain(client.at.scheme) in LEAVE:
            print(f"mq-shards: no http:// address answers that could delete the topic {topic}", file=sys.stderr)
    return result


def _remover(client: Client) -> Http | None:
    """The client that can delete the topic; None: every message has to be consumed instead."""
    if isinstance(client, Http):
        return client
    try:
        other = at.elsewhere(client.at, CannotError("delete"))
    except ClientError:
        return None
    return other if isinstance(other, Http) else None


def _taken(client: Client, topic: str, wanted: int) -> dict[str, Any]:
    begun = time.monotonic()
    count = 0
    for message in client.consume(topic, CHANNEL):
        client.finish(message)
        count += 1
        if count == wanted:
            break
    passed = time.monotonic() - begun
    return {"consumed": count, "consume_rate": round(count / passed)}
