"""Few messages and their deliveries are written together, and many are answered before they are delivered. The kernel
counts this thread's calls that write."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import PUBLISH
from tests.shards.subscriptions import Channels

IO = Path("/proc/thread-self/io")
FEW, FEW_CHANNELS, FEW_BYTES = 16, 4, 64 << 10

pytestmark = pytest.mark.skipif(not IO.exists(), reason="the kernel does not count calls")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Channels]:
    """Its segments are files: those in memory are not written by calls."""

    def file(name: str, _: int = 0) -> int:
        return os.open(tmp_path / f"{name}-{next(numbers)}", os.O_RDWR | os.O_CREAT)

    numbers = itertools.count()
    monkeypatch.setattr("tests.shards.bench.os.memfd_create", file)
    bench = Channels()
    yield bench
    bench.dispose()


def writes() -> int:
    return int(dict(line.split(": ") for line in IO.read_text().splitlines())["syscw"])


def written(bench: Channels, messages: int, body: bytes = b"x", channels: int = 1) -> int:
    """How often a turn that takes in so many messages writes, and all of them reach a consumer of each channel."""
    for i in range(channels):
        bench.sub(i + 1, "t", f"c{i}", credit=2 * messages)
    bench.turn()
    for _ in range(messages):
        bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=bench.topic("t"), id=bench.next_id, body=body)
        bench.next_id += 4
    lib.channel_publish(bench.channels[0])
    before = writes()
    lib.worker_turn(bench.worker, bench.now, bench.wall)
    calls = writes() - before
    delivered = [a for a in bench.receive() if a.kind == lib.MSG_DELIVER]
    assert len(delivered) == messages * channels
    return calls


def test_few_messages_are_answered_together_with_their_deliveries(bench: Channels) -> None:
    assert written(bench, FEW, channels=FEW_CHANNELS) == 1


def test_many_messages_are_answered_before_they_are_delivered(bench: Channels) -> None:
    assert written(bench, FEW + 1) == 2


def test_what_goes_to_many_channels_is_answered_before_it_is_delivered(bench: Channels) -> None:
    assert written(bench, 1, channels=FEW_CHANNELS + 1) == 2


def test_large_messages_are_answered_before_they_are_delivered(bench: Channels) -> None:
    assert written(bench, 2, bytes(FEW_BYTES // 2 + 1)) > 1  # and pages are prepared behind them


def test_what_comes_while_others_wait_to_be_delivered_is_answered_before(bench: Channels) -> None:
    bench.sub(1, "old", "c")
    bench.mpub("old", [b"x"] * 200)
    bench.raw(lib.MSG_CREDIT, 1, id=200)
    lib.channel_publish(bench.channels[0])
    lib.worker_turn(bench.worker, bench.now, bench.wall)
    assert 0 < len([a for a in bench.receive() if a.kind == lib.MSG_DELIVER]) < 200
    bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=bench.topic("old"), id=bench.next_id, body=b"x")
    lib.channel_publish(bench.channels[0])
    before = writes()
    lib.worker_turn(bench.worker, bench.now, bench.wall)
    assert writes() - before == 2
