"""Messages that nobody consumes yet: they cost little memory, and are there when somebody does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nsq.api import channel_stats, topic_stats
from tests.nsq.bulk import BulkConsumer, consume_all, publish_numbers
from tests.nsq.process_memory import own_bytes
from tests.nsq.servers import NsqServer, running
from tests.nsq.wire import consumer
from tests.servers import Shape, wait_until

MESSAGES = 200_000
BODY_BYTES = 100
BATCH = 1000
MOST_BYTES_EACH = 30  # of memory, while it waits; the requirement is 100
CONSUMERS = 2


def grown(server: NsqServer, kind: str) -> Callable[[], int]:
    """By how many bytes since this call."""
    before = own_bytes(server, kind)
    return lambda: own_bytes(server, kind) - before


def waiting(server: NsqServer, topic: str, has_channel: bool) -> int:
    found = topic_stats(server, topic)
    assert found is not None
    depth: int = found["channels"][0]["depth"] if has_channel else found["depth"]
    return depth


@pytest.mark.heavy
@pytest.mark.parametrize("has_channel", [True, False], ids=["with a channel", "without a channel"])
def test_a_backlog_costs_little_memory_and_is_consumed_once(shape: Shape, has_channel: bool, tmp_path: Path) -> None:
    with running(shape, data_dir=tmp_path) as server:
        if has_channel:
            consumer(server, "backlog").close()
        # What a process takes for its first messages belongs to none of them.
        publish_numbers(server, "first", range(BATCH), BODY_BYTES, BATCH)
        worker_grown = grown(server, "mq-worker") if shape.is_shards else None

        publish_numbers(server, "backlog", range(MESSAGES), BODY_BYTES, BATCH)
        wait_until(lambda: waiting(server, "backlog", has_channel) == MESSAGES, "all of them wait")
        if worker_grown is not None:
            assert worker_grown() < MOST_BYTES_EACH * MESSAGES

        numbers = consume_all([BulkConsumer(server, "backlog", "ch", 1000) for _ in range(CONSUMERS)], MESSAGES)
        assert sorted(numbers) == list(range(MESSAGES)), "none is missing and none came twice"
        wait_until(lambda: (channel_stats(server, "backlog", "ch") or {})["in_flight_count"] == 0, "all are finished")
        assert (channel_stats(server, "backlog", "ch") or {})["depth"] == 0
        if worker_grown is not None:
            assert worker_grown() < MOST_BYTES_EACH * MESSAGES
        with consumer(server, "backlog", rdy=1000) as wire:
            assert wire.is_quiet(0.3), "nothing comes again"
