"""Dispatch rates that are relative to the rate of publishing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.pulsar import policies
from mq_shards.gateway.pulsar.relative_rates import RelativeRates, is_relative

from tests.pulsar.record_admin import play
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire

RELATIVE = {
    "dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": 0, "relativeToPublishRate": True,
    "ratePeriodInSecond": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def quick() -> Iterator[PulsarServer]:
    with running(settings=["pulsar.policies-interval=200ms"]) as server:
        yield server


class Looked:
    """Topics of public/default that are looked at, at times that the test says."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._rates = RelativeRates(lambda: self._now_s)

    def round(self, after_s: float, **counts: tuple[int, int]) -> list[str]:
        """`counts`: messages and bytes by a topic's name. Returns those whose rate is another than before."""
        self._now_s += after_s
        self._rates.begin()
        for name, (messages, size) in counts.items():
            found = Figures(name, 0, 0, messages, size, 0)
            self._rates.look_at(topic_name(f"persistent://public/default/{name}"), found)
        return [name.local for name in self._rates.end()]

    def of(self, name: str) -> object:
        return self._rates.of(topic_name(f"persistent://public/default/{name}")).get("published")


def test_a_rate_is_that_between_two_looks() -> None:
    looked = Looked()
    assert looked.round(1.0, t=(100, 1000)) == [], "nobody knows how long that took"
    assert looked.of("t") == (0, 0)
    assert looked.round(2.0, t=(300, 21_000)) == ["t"]
    assert looked.of("t") == (100, 10_000)
    assert looked.round(2.0, t=(500, 41_000)) == [], "as fast as before"
    assert looked.round(1.0, t=(0, 0)) == ["t"], "its worker began anew"
    assert looked.of("t") == (0, 0)
    assert looked.round(1.0) == [] and looked.of("t") is None, "it has no such rate any more"


def test_partitions_have_the_rate_of_the_fastest() -> None:
    looked = Looked()
    looked.round(1.0, **{"t-partition-0": (0, 0), "t-partition-1": (0, 0)})
    assert looked.round(1.0, **{"t-partition-0": (10, 0), "t-partition-1": (20, 0)}) == ["t"]
    assert looked.of("t-partition-0") == looked.of("t-partition-1") == looked.of("t") == (20, 0)


def test_only_what_is_limited_becomes_more() -> None:
    of_namespace = {"topicDispatchRate": {"standalone": RELATIVE}}
    assert is_relative(of_namespace) and not is_relative({"topicDispatchRate": {"standalone": {}}})
    assert policies.told(of_namespace)["dispatch"] == [5, 0, 1]
    own = policies.told_of_topic(of_namespace, {"published": (100, 10_000)})
    assert own == {"dispatch": [105, 0, 1]}
    fixed = {"topicDispatchRate": {"standalone": {**RELATIVE, "relativeToPublishRate": False}}}
    assert policies.told_of_topic(fixed, {"published": (100, 10_000)}) == {}


def test_consumers_keep_up_with_producers_and_a_little_more(quick: PulsarServer) -> None:
    topic = "persistent://public/default/relative"
    assert play(quick.http, ("PUT", "persistent/public/default/relative"))["status"] == 204
    set_ = play(quick.http, ("POST", "persistent/public/default/relative/dispatchRate", RELATIVE))
    assert set_["status"] == 204
    assert play(quick.http, ("GET", "persistent/public/default/relative/dispatchRate"))["json"] == RELATIVE
    with Wire(quick.port).connect() as wire:
        wire.producer(topic)
        wire.subscribe(topic)
        wire.flow(1000)
        begin, sent, came = time.monotonic(), 0, 0
        while came < 100:
            wire.send(b"x", sequence=sent)
            sent += 1
            wire.expect("send_receipt")
            wire.quiet()
            came = len(wire.pending("message"))
            assert time.monotonic() - begin < 20, "100 at 5 a second"
