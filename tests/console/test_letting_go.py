"""What the console holds of many topics is let go when nobody looks any more."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import cast

from mq_shards.acceptor.engine import Engine
from mq_shards.gateway.broker import Broker
from mq_shards.gateway.catalog import Topic
from mq_shards.gateway.console.figures import AT_ONCE, LOOKED_S, Figures, Row
from mq_shards.gateway.console.listing import Listing, Wanted
from mq_shards.gateway.console.waits import Waits
from mq_shards.gateway.survey import Survey

SLOW_S = 0.1  # what a sample takes, so that none is taken unless somebody looks


class Topics:
    """A broker with so many topics, in each of which a message waits."""

    def __init__(self, count: int) -> None:
        self.count = count

    async def survey(self) -> Survey:
        topics = [Topic(f"t{n}", 0, depth=1, messages=1, message_bytes=1, jobs=0) for n in range(self.count)]
        return Survey(topics, frozenset(), SLOW_S)

    def worker_of(self, topic: str) -> int:
        return 0

    async def oldest_ns(self, topic: str, channel: str | None = None) -> int:
        return 1


def rows_left() -> int:
    gc.collect()
    return sum(isinstance(one, Row) for one in gc.get_objects())


def rows_after(count: int, unseen_s: float) -> int:
    """How many rows are held of so many topics, so long after a client has looked for one."""

    async def look() -> int:
        now = 1000.0
        before = rows_left()
        topics = Topics(count)
        broker = cast(Broker, topics)
        engine = SimpleNamespace(workers=1, shard_of_name=lambda name: 0, totals=lambda: SimpleNamespace(connections=1))
        waits = Waits(broker)
        figures = Figures(cast(Engine, engine), broker, waits, lambda: now)
        listing = Listing(figures, waits)
        found = await listing.page(await figures.sample(), Wanted.of({"search": "t77"}))
        assert found["topics"] == count and found["rows"][0]["oldest_s"]
        del found
        now += unseen_s
        running = asyncio.create_task(figures.run())
        await asyncio.sleep(0)
        rows = rows_left() - before
        running.cancel()
        return rows

    return asyncio.run(look())


def test_what_was_made_of_many_topics_is_let_go_when_nobody_looks() -> None:
    many = AT_ONCE + 1
    assert rows_after(many, SLOW_S) == many
    assert rows_after(many, LOOKED_S + SLOW_S) == 0


def test_what_was_made_of_few_topics_stays_so_that_rates_are_there_at_once() -> None:
    assert rows_after(100, LOOKED_S + SLOW_S) == 100
