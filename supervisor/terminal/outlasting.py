"""Consuming and following go on when a broker that went away is back."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from mq_shards.supervisor.terminal.client import UNAVAILABLE, Client, ClientError, LostError, Message, RefusedError
from mq_shards.supervisor.terminal.show import safe

FIRST_WAIT_S: Final = 0.25
LONGEST_WAIT_S: Final = 2.0

# Connects, and asks for messages. `place`: where an earlier client stood, or None.
Begin: TypeAlias = Callable[[Any], tuple[Client, Iterator[Message]]]


def followed(begin: Begin) -> Iterator[Message]:
    """Messages, of which none is finished. What `begin` raises the first time ends it. When the connection is lost
    later, stderr says so, and `begin` is tried until the broker is back."""
    return _messages(begin, finishes=False)


def consumed(begin: Begin, count: int | None) -> Iterator[Message]:
    """The same, until `count` are finished. Each is when the next one is asked for, or it comes again."""
    return _messages(begin, finishes=True, count=count)


def _messages(begin: Begin, *, finishes: bool, count: int | None = None) -> Iterator[Message]:
    client, some = begin(None)
    finished = 0
    while True:
        try:
            for message in some:
                yield message
                if finishes:
                    client.finish(message)
                    finished += 1
                    if finished == count:
                        return
            return
        except ClientError as error:
            if not _passes(error):
                raise
            lost = error
        finally:
            client.close()
        client, some = _again(begin, client.place, lost)


def _again(begin: Begin, place: object, lost: ClientError) -> tuple[Client, Iterator[Message]]:
    said, wait_s = "", FIRST_WAIT_S
    while True:
        if str(lost) != said:
            said = str(lost)
            _say(f"{said}; waiting for it")
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        try:
            client, some = begin(place)
        except ClientError as error:
            if not _passes(error):
                raise
            lost = error
        else:
            _say(f"{client.at} is back{client.missed}")
            return client, some


def _passes(error: ClientError) -> bool:
    return isinstance(error, LostError) or (isinstance(error, RefusedError) and error.status == UNAVAILABLE)


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        print(f"mq-shards: {safe(' '.join(line.split()))}", file=sys.stderr, flush=True)
