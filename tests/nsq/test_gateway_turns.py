"""What is told of very many topics is worked out in short turns of the gateway's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from mq_shards.gateway import turns
from mq_shards.gateway.catalog import Channel, Topic
from mq_shards.gateway.nsq.elsewhere import ChannelsElsewhere, Timeouts
from mq_shards.gateway.nsq.lookupd import missing, registrations
from mq_shards.gateway.nsq.statsd import Statsd, StatsdOptions
from mq_shards.gateway.nsq.topics import visible_topics

TOPICS = [
    Topic(f"t{n}", 0, 2, 10, 100, 0, [Channel("ch", 0, 0, 4, 0, 0, 7, 0, 0)]) for n in range(8 * turns.PIECE)
]  # fmt: skip


EPHEMERAL = [replace(topic, name=f"{topic.name}#ephemeral") for topic in TOPICS]


class FakeBroker:
    def __init__(self, topics: list[Topic]) -> None:
        self._topics = topics

    async def topics(self, topic: str, consumers: bool) -> list[Topic]:
        return self._topics


async def turns_of(work: Awaitable[object]) -> int:
    """How often others have their turn meanwhile."""
    task = asyncio.ensure_future(work)
    count = 0
    while not task.done():
        count += 1
        await asyncio.sleep(0)
    await task
    return count


async def statsd(topics: list[Topic] = TOPICS) -> int:
    broker: Any = FakeBroker(topics)
    statsd = Statsd(StatsdOptions("", "", 1.0, 508, exclude_ephemeral=True, on_disk=True), broker, None)
    return await turns_of(statsd.report()) - await turns_of(visible_topics(broker))


async def statsd_without_figures() -> int:
    return await statsd(EPHEMERAL)


async def lookupd() -> int:
    return await turns_of(registrations(TOPICS))


async def told() -> int:
    return await turns_of(missing(await registrations(TOPICS), {("t0", "")}))


async def elsewhere() -> int:
    broker: Any = FakeBroker(TOPICS)
    return await turns_of(ChannelsElsewhere(broker, list, Timeouts(1, 1)).update([topic.name for topic in TOPICS]))


@pytest.mark.parametrize("play", [statsd, statsd_without_figures, lookupd, told, elsewhere])
def test_others_have_their_turns_meanwhile(play: Callable[[], Awaitable[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0)

    async def count() -> int:
        return await play()

    assert asyncio.run(count()) >= 8
