"""Records of a transaction that has been committed are lost on the disk: what the others say is believed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from mq_shards.shards.dump import Record, decode_segment

from tests.pulsar.servers import running
from tests.pulsar.test_transactions import COMMIT, begin, connected, end, join, send
from tests.pulsar.wire import MAX, Wire, payload_of

PUBLISH, STAGED, TXN_END = 3, 18, 20
COMMITTED = 4  # messages of the transaction


def spoil(data: Path, hit: Callable[[list[Record]], list[Record]]) -> None:
    (path,) = data.glob("shard-*/*.log")
    records = [one for one in decode_segment(path) if isinstance(one, Record)]
    found = hit(records)
    assert found
    with path.open("r+b") as file:
        for record in found:
            os.pwrite(file.fileno(), bytes(40 + len(record.attributes) + len(record.body)), record.offset)


def of_kind(kind: int, *which: int) -> Callable[[list[Record]], list[Record]]:
    """Those of that kind, by their places among them."""

    def hit(records: list[Record]) -> list[Record]:
        found = [one for one in records if one.kind == kind]
        return [found[n] for n in which]

    return hit


def both(records: list[Record]) -> list[Record]:
    return of_kind(TXN_END, 0)(records) + of_kind(PUBLISH, 3)(records)


def read(wire: Wire, count: int) -> list[bytes]:
    wire.subscribe("t", "reads", durable=False, start_message_id={"ledgerId": MAX, "entryId": MAX})
    wire.flow(100)
    return [payload_of(frame) for frame in wire.messages(count)]


@pytest.mark.parametrize(
    "hit",
    [
        pytest.param(of_kind(TXN_END, 0), id="decision"),
        pytest.param(of_kind(PUBLISH, 3), id="middle message"),
        pytest.param(both, id="decision and message"),
        pytest.param(of_kind(PUBLISH, 2), id="first message", marks=pytest.mark.long),
        pytest.param(of_kind(PUBLISH, 2, 4), id="two messages", marks=pytest.mark.long),
    ],
)
def test_all_of_a_committed_transaction_is_there_as_long_as_one_record_says_that_it_was_committed(
    tmp_path: Path, hit: Callable[[list[Record]], list[Record]]
) -> None:
    data = tmp_path / "data"
    with running(shards=1, data_dir=data) as server, connected(server) as wire:
        wire.producer("t")
        for number in range(2):
            send(wire, b"before %d" % number)
        wire.subscribe("t", "s", 1)
        txn = begin(wire, 60_000)
        join(wire, txn, "t")
        for number in range(COMMITTED):
            send(wire, b"in it %d" % number, txn)
        assert end(wire, txn, COMMIT) == 0
        send(wire, b"behind")
        server.kill()
    spoil(data, hit)
    expected = [b"before 0", b"before 1", *(b"in it %d" % n for n in range(COMMITTED)), b"behind"]
    for _ in range(2):  # it is the same at the next start
        with running(shards=1, data_dir=data) as server, connected(server) as wire:
            assert read(wire, len(expected)) == expected
            wire.subscribe("t", "s", 1, consumer=2)
            wire.flow(100, 2)
            assert sorted(payload_of(frame) for frame in wire.messages(COMMITTED + 1, 2)) == sorted(expected[2:])
            wire.quiet()
            assert not wire.pending("message")
            assert "was killed" not in server.stderr.read_text()
            server.kill()
