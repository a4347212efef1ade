"""Resource groups: the topics of all their namespaces together."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.pulsar.record_admin import play
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire


@pytest.fixture(scope="module")
def two() -> Iterator[PulsarServer]:
    with running(acceptors=2) as server:
        yield server


def done(server: PulsarServer, method: str, path: str, *body: Any) -> None:  # noqa: ANN401
    found = play(server.http, (method, path, *body))
    assert found["status"] in (200, 204), found


def in_group(server: PulsarServer, group: str) -> list[str]:
    """Topics of two new namespaces of the group."""
    topics = []
    for _ in range(2):
        namespace = f"public/{uuid.uuid4().hex[:8]}"
        done(server, "PUT", f"namespaces/{namespace}")
        done(server, "PUT", f"persistent/{namespace}/t")
        done(server, "POST", f"namespaces/{namespace}/resourcegroup/{group}")
        topics.append(f"persistent://{namespace}/t")
    return topics


@pytest.mark.parametrize("rates", [{"publishRateInMsgs": 50}, {"publishRateInBytes": 50 * 1100}])
def test_nobody_publishes_faster_than_a_resource_group_may(two: PulsarServer, rates: dict[str, int]) -> None:
    """All producers of all topics of all its namespaces together, on both acceptors; no others, and no longer than
    it is so."""
    group = uuid.uuid4().hex[:8]
    done(two, "PUT", f"resourcegroups/{group}", rates)
    topics, free = in_group(two, group), "persistent://public/default/free"
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(two.port).connect()) for _ in range(6)]
        other = stack.enter_context(Wire(two.port).connect())
        for i, wire in enumerate(wires):
            wire.producer(topics[i % 2])
        other.producer(free)
        begin = time.monotonic()
        for i in range(20):
            for wire in (*wires, other):
                wire.send(b"x" * 1000, sequence=i)
        for _ in range(20):
            other.expect("send_receipt")
        for wire in wires:
            assert [wire.expect("send_receipt").sequence_id for _ in range(20)] == list(range(20))
        assert time.monotonic() - begin >= 1.2, "120 at 50 a second, 50 of them at once, and of each acceptor one more"
        done(two, "PUT", f"resourcegroups/{group}", dict.fromkeys(rates, 1_000_000_000))
        begin = time.monotonic()
        for i in range(20, 1020):
            wires[0].send(b"x", sequence=i)
        for _ in range(1000):
            wires[0].expect("send_receipt")
        assert time.monotonic() - begin < 15, "and not 20 s"


def test_a_topic_keeps_its_own_rate_beside_that_of_its_group(two: PulsarServer) -> None:
    group = uuid.uuid4().hex[:8]
    done(two, "PUT", f"resourcegroups/{group}", {"publishRateInMsgs": 1_000_000})
    [topic, _] = in_group(two, group)
    path = topic.replace("://", "/")
    done(two, "POST", f"{path}/publishRate", {"publishThrottlingRateInMsg": 50, "publishThrottlingRateInByte": -1})
    with Wire(two.port).connect() as wire:
        wire.producer(topic)
        begin = time.monotonic()
        for i in range(120):
            wire.send(b"x", sequence=i)
        for _ in range(120):
            wire.expect("send_receipt")
        assert time.monotonic() - begin >= 1.2, "120 at 50 a second, 50 of them at once"
