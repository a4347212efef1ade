"""When a stream begins a micro-batch, and what it asks its brokers for then."""

from __future__ import annotations

import pytest
from mq_shards.pipeline import identity, stream

from tests.pipeline.serving import Gateway
from tests.pipeline.stream_driver import Checkpoint, Driver, run


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stream, "time", clock)
    return clock


def fill(gateway: Gateway, topic: str, count: int) -> None:
    for _ in range(count):
        gateway.topic(topic).add(topic.encode())


def test_a_micro_batch_waits_for_enough_messages_but_not_for_ever(gateway: Gateway, clock: Clock) -> None:
    options = {"brokers": gateway.address, "minOffsetsPerTrigger": 10, "maxTriggerDelay": "90s"}
    fill(gateway, "a", 3)
    driver = Driver(Checkpoint(), options)
    assert driver.begin(), "the first does not wait"
    assert len(driver.do_begun()) == 3
    fill(gateway, "a", 5)
    fill(gateway, "b", 4)  # it is new: its offset begins at its first message, behind the others
    assert not driver.begin()
    clock.now_s += 89
    assert not driver.begin()
    clock.now_s += 1
    assert driver.begin()
    assert len(driver.do_begun()) == 5
    assert not driver.begin()
    clock.now_s += 90
    assert driver.begin()
    assert len(driver.do_begun()) == 4
    fill(gateway, "a", 10)
    assert driver.begin(), "there are enough"
    assert len(driver.do_begun()) == 10
    assert not driver.begin()


def test_both_limits_hold(gateway: Gateway, clock: Clock) -> None:
    options = {"brokers": gateway.address, "minOffsetsPerTrigger": 10, "maxOffsetsPerTrigger": 12}
    fill(gateway, "a", 30)
    driver = Driver(Checkpoint(), options)
    sizes = []
    while driver.begin():
        sizes.append(len(driver.do_begun()))
    assert sizes == [12, 12]
    clock.now_s += 15 * 60
    assert driver.begin()
    assert len(driver.do_begun()) == 6


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": 10}, {"maxBytesPerTrigger": 5}])
def test_what_is_there_beyond_a_limit_counts_as_having_come(
    gateway: Gateway, clock: Clock, limit: dict[str, int]
) -> None:
    for topic in "abc":
        fill(gateway, topic, 10)
    driver = Driver(Checkpoint(), {"brokers": gateway.address, "minOffsetsPerTrigger": 10, **limit})
    for _ in range(3):
        assert driver.begin()
        assert 0 < len(driver.do_begun()) < 10


def test_available_now_reads_what_is_there_however_little(gateway: Gateway) -> None:
    checkpoint = Checkpoint()
    for count in (3, 1):
        fill(gateway, "a", count)
        rows = run(checkpoint, brokers=gateway.address, minOffsetsPerTrigger=10)
        assert len(rows) == count


def test_a_broker_is_asked_for_what_has_changed(gateway: Gateway) -> None:
    """A listing of 20,000 topics has megabytes: once."""
    for n in range(500):
        fill(gateway, f"t{n}", 1)
    driver = Driver(Checkpoint(), {"brokers": gateway.address, "topicPattern": "t.*"})
    assert driver.begin()
    assert len(driver.do_begun()) == 500
    fill(gateway, "t7", 2)
    gateway.topics.pop("t8")
    listed = gateway.listed_bytes
    assert driver.begin()
    assert driver.do_begun() == [("t7", 1), ("t7", 2)]
    assert gateway.listed_bytes - listed < 2000
    listings = [call for call in gateway.calls if call.startswith("GET /v1/topics")]
    assert all("prefix=t" in call for call in listings)
    assert "since=" in listings[-1]
    assert "since=" not in listings[0]


def test_a_trigger_without_anything_new_works_out_nothing(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 20,000 topics that was 0.1 s of processor for each trigger."""
    fill(gateway, "a", 3)
    driver = Driver(Checkpoint(), {"brokers": gateway.address})
    assert driver.begin()
    assert len(driver.do_begun()) == 3
    assert not driver.begin()
    ends: list[object] = []
    of_now = identity.of_now
    monkeypatch.setattr(identity, "of_now", lambda *a: (ends.append(a), of_now(*a))[1])
    for _ in range(3):
        assert not driver.begin()
    assert not ends
    fill(gateway, "a", 2)
    fill(gateway, "b", 1)
    assert driver.begin()
    assert len(driver.do_begun()) == 2
    assert driver.begin(), "a topic that is new is read from the next micro-batch on"
    assert driver.do_begun() == [("b", 0)]
    assert not driver.begin()
    assert len(ends) == 3


def test_many_small_topics_share_a_task(gateway: Gateway) -> None:
    for n in range(300):
        fill(gateway, f"t{n}", 2)
    checkpoint = Checkpoint()
    driver = Driver(checkpoint, {"brokers": gateway.address})
    assert driver.begin()
    assert driver.tasks() == 1
    assert len(driver.do_begun()) == 600
    for options, tasks in (({"minPartitions": 7}, 8), ({"maxRecordsPerPartition": 100}, 6)):
        driver = Driver(Checkpoint(), {"brokers": gateway.address, **options})
        assert driver.begin()
        assert driver.tasks() == tasks
        assert len(driver.do_begun()) == 600
