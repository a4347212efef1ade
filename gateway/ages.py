"""How long the oldest message of topics and channels has waited, for /metrics and the console. Workers look it up on
request.

Each worker is asked for one name after another, so that its turns stay short, and only for a limited time; the next
call begins where the last one ended. A name is that of a topic, or of a topic and a channel, in the form of a catalog.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from mq_shards.gateway.broker import Broker
from mq_shards.gateway.catalog import Channel, Topic
from mq_shards.gateway.workers import WorkersError

Name = tuple[str, ...]
ONE_S: Final = 0.2  # an answer that takes longer, because of a handover in its topic, does not hold up the next


def waits_in_topic(topic: Topic) -> bool:
    return bool(topic.jobs or topic.depth)


def waits_in_channel(channel: Channel) -> bool:
    return bool(channel.depth or channel.in_flight)


async def look_up(broker: Broker, names: Iterable[Name], begin: dict[int, Name], within_s: float) -> dict[Name, float]:
    """Returns seconds by name; 0: nothing waits. `begin`: the name to begin with, by worker; set for the next call."""
    found: dict[Name, float] = {}
    by_worker: dict[int, list[Name]] = {}
    for name in names:
        by_worker.setdefault(broker.worker_of(name[0]), []).append(name)
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            each = by_worker.items()
            await asyncio.gather(*(_ask(broker, of, found, worker, begin) for worker, of in each))
    return found


async def _ask(
    broker: Broker, names: list[Name], found: dict[Name, float], worker: int, begin: dict[int, Name]
) -> None:
    names.sort(key=_order)
    first = bisect_left(names, _order(begin.get(worker, ())), key=_order)
    names = names[first:] + names[:first]
    asked: list[asyncio.Task[bool]] = []
    try:
        for name, following in zip(names, [*names[1:], names[0]], strict=True):
            begin[worker] = name
            asked.append(asyncio.create_task(_ask_one(broker, name, found)))
            answered, _ = await asyncio.wait(asked[-1:], timeout=ONE_S)
            begin[worker] = following
            if any(not one.result() for one in answered):
                break
        await asyncio.wait(asked)
    finally:
        for one in asked:
            one.cancel()


def _order(name: Name) -> tuple[int, Name]:
    return len(name), name


async def _ask_one(broker: Broker, name: Name, found: dict[Name, float]) -> bool:
    """Looks up one name. False: the worker does not answer."""
    try:
        since_ns = await broker.oldest_ns(*name)
    except WorkersError:
        return False
    found[name] = 0.0 if since_ns is None else max(0.0, (time.time_ns() - since_ns) / 1e9)
    return True
