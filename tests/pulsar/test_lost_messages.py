"""The last messages of a topic are lost on the disk, with messages of another behind them: clients that have their ids
never get other messages for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from mq_shards.shards.dump import Record, decode_segment

from tests.pulsar.record_roles import request
from tests.pulsar.servers import PulsarServer, running

pulsar = pytest.importorskip("pulsar")

LOST: Final = 3
NOW_MS: Final = 1000
PUBLISH, TOPIC = 3, 1
QUIET: Final = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@dataclass
class Spoilt:
    """A broker after that: the ids of what is whole, of what was lost, and of what was sent since."""

    server: PulsarServer
    client: Any
    whole: list[Any]
    lost: list[Any]
    new: list[Any]

    def ask(self, path: str) -> dict[str, Any]:
        return request(self.server.http, "", "", "GET", f"persistent/public/default/t{path}")

    def read(self, reader: Any) -> list[int]:  # noqa: ANN401
        found = []
        while reader.has_message_available():
            found.append(int(reader.read_next(10 * NOW_MS).message_id().entry_id()))
        return found


def entries(ids: list[Any]) -> list[int]:
    return [one.entry_id() for one in ids]


def spoil(data: Path, topic: str, seqs: set[int]) -> None:
    """Zeros in the place of these messages."""
    (path,) = data.glob("shard-*/*.log")
    records = [r for r in decode_segment(path) if isinstance(r, Record)]
    numbers = {bytes(r.body): r.topic for r in records if r.kind == TOPIC}
    hit = [r for r in records if (r.kind, r.topic) == (PUBLISH, numbers[topic.encode()]) and r.seq in seqs]
    assert len(hit) == len(seqs) and records[-1].offset > hit[-1].offset
    with path.open("r+b") as file:
        for record in hit:
            os.pwrite(file.fileno(), bytes(40 + len(record.attributes) + len(record.body)), record.offset)


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoilt]:
    data = tmp_path_factory.mktemp("lost")
    with running(shards=1, data_dir=data) as server:
        client = pulsar.Client(server.url, logger=QUIET)
        for name in ("cumulative", "shared"):
            kind = pulsar.ConsumerType.Exclusive if name == "cumulative" else pulsar.ConsumerType.Shared
            client.subscribe("t", name, kind)
        producer, other = client.create_producer("t"), client.create_producer("other")
        ids = [producer.send(b"%d" % n) for n in range(5 + LOST)]
        other.send(b"behind")
        client.close()
        server.kill()
    spoil(data, "t", set(entries(ids[-LOST:])))
    with running(shards=1, data_dir=data) as server:
        client = pulsar.Client(server.url, logger=QUIET)
        new = [client.create_producer("t").send(b"new %d" % n) for n in range(2)]
        yield Spoilt(server, client, ids[:-LOST], ids[-LOST:], new)
        client.close()


def test_no_new_message_has_an_id_of_a_lost_one(spoilt: Spoilt) -> None:
    assert {one.ledger_id() for one in [*spoilt.whole, *spoilt.lost, *spoilt.new]} == {spoilt.whole[0].ledger_id()}
    assert max(entries(spoilt.lost)) < min(entries(spoilt.new)) < max(entries(spoilt.lost)) + 100


def test_readers_get_what_is_whole_and_what_is_new_wherever_they_begin(spoilt: Spoilt) -> None:
    def read(start: Any) -> list[int]:  # noqa: ANN401
        reader = spoilt.client.create_reader("t", start)
        try:
            return spoilt.read(reader)
        finally:
            reader.close()

    whole, new = entries(spoilt.whole), entries(spoilt.new)
    assert read(pulsar.MessageId.earliest) == whole + new
    assert [read(lost) for lost in spoilt.lost] == [new] * LOST
    assert read(spoilt.whole[-1]) == new
    assert read(spoilt.new[0]) == new[1:]
    reader = spoilt.client.create_reader("t", pulsar.MessageId.latest)
    reader.seek(spoilt.lost[1])
    assert spoilt.read(reader) == new
    reader.close()


def test_acknowledgements_of_lost_messages_touch_no_new_one(spoilt: Spoilt) -> None:
    whole, new = entries(spoilt.whole), entries(spoilt.new)
    shared = spoilt.client.subscribe("t", "shared", pulsar.ConsumerType.Shared)
    for lost in spoilt.lost:
        shared.acknowledge(lost)
    shared.close()
    cumulative = spoilt.client.subscribe("t", "cumulative")
    came = [cumulative.receive(10 * NOW_MS).message_id() for _ in range(len(whole + new))]
    assert entries(came) == whole + new
    cumulative.acknowledge_cumulative(spoilt.lost[-1])
    cumulative.close()
    left = {"cumulative": new, "shared": whole + new}
    for name, expected in left.items():
        kind = pulsar.ConsumerType.Exclusive if name == "cumulative" else pulsar.ConsumerType.Shared
        consumer = spoilt.client.subscribe("t", name, kind)
        assert sorted(entries([consumer.receive(10 * NOW_MS).message_id() for _ in expected])) == expected
        with pytest.raises(pulsar.Timeout):
            consumer.receive(NOW_MS // 2)
        consumer.close()
        backlog = spoilt.ask("/stats")["json"]["subscriptions"][name]["msgBacklog"]
        assert backlog == len(expected)


def test_rest_counts_messages_and_names_the_last_one(spoilt: Spoilt) -> None:
    found = spoilt.ask("/internalStats")["json"]
    ledger, last = spoilt.new[-1].ledger_id(), spoilt.new[-1].entry_id()
    assert found["numberOfEntries"] == len(spoilt.whole + spoilt.new)
    assert found["lastConfirmedEntry"] == f"{ledger}:{last}"
    assert spoilt.ask("/lastMessageId")["json"]["entryId"] == last
    statuses = [spoilt.ask(f"/ledger/{ledger}/entry/{lost.entry_id()}")["status"] for lost in spoilt.lost]
    assert statuses == [404] * LOST
    places = [f"/examinemessage?initialPosition={where}&messagePosition=1" for where in ("earliest", "latest")]
    assert [spoilt.ask(place)["status"] for place in places] == [200, 200]
