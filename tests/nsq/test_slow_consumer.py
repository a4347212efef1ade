"""A consumer that asks for much and reads nothing: it slows no other, and what it holds comes to others."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.nsq.api import channel_stats
from tests.nsq.bulk import BulkConsumer, consume_all, publish_numbers
from tests.nsq.frames import HEARTBEAT
from tests.nsq.process_memory import own_bytes
from tests.nsq.servers import SHARDS, NsqServer, running
from tests.nsq.wire import Wire, consumer, unique_topic
from tests.servers import wait_until

BODY_BYTES = 10_000
BATCH = 20
GREEDY_RDY = 2500
FAST_RDY = 100
FLOW = 3000
HELD_AT_LEAST = 50
SHARE = 0.9  # of a flow, that a rate is measured by: what the slow one takes does not come to the others
ROUNDS = 2
TRIES = 3
MOST_MEMORY = 30_000_000


def greedy(server: NsqServer, topic: str, channel: str, **fields: object) -> Wire:
    """Subscribed and ready; nobody reads what comes."""
    return consumer(server, topic, channel, GREEDY_RDY, **fields)


def the_channel(server: NsqServer, topic: str, channel: str = "ch") -> dict[str, Any]:
    return channel_stats(server, topic, channel) or {"clients": [], "depth": -1, "in_flight_count": -1}


def in_flight(server: NsqServer, topic: str, channel: str) -> int:
    count: int = the_channel(server, topic, channel)["in_flight_count"]
    return count


def settled_in_flight(server: NsqServer, topic: str, channel: str) -> int:
    """What the slow one holds, when its socket takes no more."""
    seen = [0]

    def is_settled() -> bool:
        time.sleep(0.01)
        seen.append(in_flight(server, topic, channel))
        return len(seen) > 8 and seen[-8] >= HELD_AT_LEAST and len(set(seen[-8:])) == 1

    wait_until(is_settled, "the slow one holds what it can")
    assert seen[-1] < GREEDY_RDY, "its socket is full before its RDY"
    return seen[-1]


def rates(server: NsqServer, topic: str, channels: Sequence[str]) -> list[float]:
    """Messages a second of one consumer of each channel, all at once, while messages are published."""
    flows = [Flow(server, topic, channel) for channel in channels]
    with ThreadPoolExecutor(len(channels)) as pool:
        done = [pool.submit(flow.consume) for flow in flows]
        for flow in flows:
            wait_until(flow.is_ready, "it is ready")
        since = time.monotonic()
        publish_numbers(server, topic, range(FLOW), BODY_BYTES, BATCH)
        for each in done:
            each.result()
    return [flow.wanted / (flow.reached - since) for flow in flows]


class Flow:
    """One consumer that takes all there is, and knows when it had most of it."""

    def __init__(self, server: NsqServer, topic: str, channel: str) -> None:
        self.bulk = BulkConsumer(server, topic, channel, FAST_RDY)
        self.wanted = int(SHARE * FLOW)
        self.reached = 0.0

    def stats(self) -> dict[str, Any]:
        return the_channel(self.bulk.server, self.bulk.topic, self.bulk.channel)

    def is_ready(self) -> bool:
        return any(client["ready_count"] == FAST_RDY for client in self.stats()["clients"])

    def consume(self) -> None:
        self.bulk.consume(self.has_all, 30)

    def has_all(self) -> bool:
        if len(self.bulk.numbers) < self.wanted:
            return False
        self.reached = self.reached or time.monotonic()
        return bool(self.stats()["depth"] == 0)


def best_rates(server: NsqServer, topic: str, channels: Sequence[str]) -> list[float]:
    """Of some rounds, each channel's; the first, in which all grows warm, does not count."""
    rounds = [rates(server, topic, channels) for _ in range(ROUNDS + 1)]
    return [max(of_channel) for of_channel in zip(*rounds[1:], strict=True)]


@pytest.mark.heavy
def test_others_go_on_at_their_rate(server: NsqServer) -> None:
    """Those of the same channel, of another channel, and of another topic. What else the machine does may slow down one
    of the two measurements, but not time and again."""
    for _ in range(TRIES):
        before, beside_it = rates_before_and_beside_a_slow_one(server)
        if all(rate >= rate_before / 2 for rate, rate_before in zip(beside_it, before, strict=True)):
            return
    raise AssertionError(f"messages a second: {beside_it} where there were {before}")


def rates_before_and_beside_a_slow_one(server: NsqServer) -> tuple[list[float], list[float]]:
    topic, another = unique_topic("slow"), unique_topic("slow-not")
    before = [*best_rates(server, topic, ["shared", "other"]), *best_rates(server, another, ["ch"])]
    with greedy(server, topic, "shared"):
        publish_numbers(server, topic, range(FLOW), BODY_BYTES, BATCH)
        settled_in_flight(server, topic, "shared")
        beside_it = [*best_rates(server, topic, ["shared", "other"]), *best_rates(server, another, ["ch"])]
        assert in_flight(server, topic, "shared") >= HELD_AT_LEAST, "it is still there"
    return before, beside_it


@pytest.fixture(scope="module")
def ours() -> Iterator[NsqServer]:
    with running(SHARDS) as server:
        yield server


@pytest.fixture(scope="module")
def timing_topic(server: NsqServer) -> str:
    """Made early, so that the real nsqd has begun to look for its time-outs."""
    topic = unique_topic("slow-timing")
    consumer(server, topic, "ch").close()
    return topic


class TestWhatItHolds:
    def test_comes_to_others_after_its_timeout(self, timing_topic: str, server: NsqServer) -> None:
        with greedy(server, timing_topic, "ch", msg_timeout=1000):
            publish_numbers(server, timing_topic, range(FLOW // 3), BODY_BYTES, BATCH)
            settled_in_flight(server, timing_topic, "ch")
            fast = BulkConsumer(server, timing_topic, "ch", FAST_RDY)
            consume_all([fast], FLOW // 3)
            assert sorted(fast.numbers) == list(range(FLOW // 3))
            assert sum(attempts > 1 for attempts in fast.attempts) >= HELD_AT_LEAST
            assert in_flight(server, timing_topic, "ch") == 0

    def test_comes_to_others_when_it_disconnects(self, ours: NsqServer, topic: str) -> None:
        """mq-shards only: the real nsqd has them wait for the time-out nevertheless."""
        slow = greedy(ours, topic, "ch")
        publish_numbers(ours, topic, range(FLOW // 3), BODY_BYTES, BATCH)
        settled_in_flight(ours, topic, "ch")
        fast = BulkConsumer(ours, topic, "ch", FAST_RDY)
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(consume_all, [fast], FLOW // 3)

            def all_but_the_held() -> bool:
                held = in_flight(ours, topic, "ch")
                return held >= HELD_AT_LEAST and len(fast.numbers) + held == FLOW // 3

            wait_until(all_but_the_held, "the others have come and are finished")
            held = settled_in_flight(ours, topic, "ch")  # before, the fast one may have had some on their way to it
            assert len(fast.numbers) == FLOW // 3 - held
            assert set(fast.attempts) == {1}
            slow.close()
            done.result()
        assert sorted(fast.numbers) == list(range(FLOW // 3))
        assert fast.attempts[-held:] == [2] * held


class TestBeingCut:
    """Who takes nothing for a heartbeat interval is no consumer any more; then others get what it held.

    The real nsqd has them wait for the time-out nevertheless.
    """

    def test_when_it_never_read(self, server: NsqServer, topic: str) -> None:
        with greedy(server, topic, "ch", heartbeat_interval=1000) as slow:
            since = time.monotonic()
            publish_numbers(server, topic, range(FLOW // 3), BODY_BYTES, BATCH)
            self.is_cut(slow, server, topic, since)

    def test_when_it_stopped_reading_after_a_heartbeat(self, server: NsqServer, topic: str) -> None:
        """Its socket is full when its silence has lasted two intervals."""
        with greedy(server, topic, "ch", heartbeat_interval=1000) as slow:
            since = time.monotonic()
            assert slow.frame(3).data == HEARTBEAT
            publish_numbers(server, topic, range(FLOW // 3), BODY_BYTES, BATCH)
            self.is_cut(slow, server, topic, since)

    @staticmethod
    def is_cut(slow: Wire, server: NsqServer, topic: str, since: float) -> None:
        wait_until(lambda: the_channel(server, topic)["clients"] == [], "it is no consumer any more")
        assert 0.9 <= time.monotonic() - since <= 10
        if server.shape.is_shards:
            wait_until(lambda: in_flight(server, topic, "ch") == 0, "it holds nothing any more")
            fast = BulkConsumer(server, topic, "ch", FAST_RDY)
            consume_all([fast], FLOW // 3)
            assert sorted(fast.numbers) == list(range(FLOW // 3))
            assert sum(attempts == 2 for attempts in fast.attempts) >= HELD_AT_LEAST
        while slow.receive(time.monotonic() + 10):  # what had been sent, and the end
            pass


def test_an_acceptor_keeps_little_for_them() -> None:
    """mq-shards only: what the real nsqd's memory holds is not only of consumers."""
    channels = [f"ch{number}" for number in range(10)]
    with running(SHARDS) as server, contextlib.ExitStack() as stack:
        rates(server, "flow", ["fast"])
        before = own_bytes(server, "mq-acceptor")
        for channel in channels:
            stack.enter_context(greedy(server, "flow", channel))
        publish_numbers(server, "flow", range(FLOW), BODY_BYTES, BATCH)
        for channel in channels:
            settled_in_flight(server, "flow", channel)
        rates(server, "flow", ["fast"])
        assert own_bytes(server, "mq-acceptor") - before < MOST_MEMORY


def test_time_outs_of_one_that_reads_nothing_add_nothing() -> None:
    """Each would make room for more messages that nobody reads. mq-shards only."""
    with running(SHARDS, {"msg-timeout": "150ms"}) as server, greedy(server, "timeouts", "ch"):
        before = own_bytes(server, "mq-acceptor")
        publish_numbers(server, "timeouts", range(FLOW), BODY_BYTES, BATCH)

        def timeouts() -> int:
            found: int = the_channel(server, "timeouts")["timeout_count"]
            return found

        wait_until(lambda: timeouts() >= HELD_AT_LEAST and in_flight(server, "timeouts", "ch") == 0, "it has lost them")
        lost = timeouts()
        time.sleep(5 * 0.15)  # in which more would come and go
        assert timeouts() == lost
        assert own_bytes(server, "mq-acceptor") - before < MOST_MEMORY / 10
