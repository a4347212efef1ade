"""Compacted reads: what a real 4.0.7 kept of the same messages, REST calls about it, and processes that are killed."""

from __future__ import annotations

import itertools
import os
import random
import signal
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.nsq import api
from tests.nsq.servers import HOST
from tests.nsq.wire import Wire as NsqWire
from tests.pipeline.broker import broker_in
from tests.pulsar.record_roles import request
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import MAX, Wire, entry_of, message_class, metadata, payload_of, send_frame
from tests.servers import free_port, wait_until

pulsar = pytest.importorskip("pulsar")

TIMEOUT_S: Final = 60
Part = tuple[str | None, bytes]
Entry = tuple[bytes, dict[str, object]]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarServer]:
    with running(
        workers=2, data_dir=tmp_path_factory.mktemp("data"), settings=["pulsar.policies-interval=100ms"]
    ) as server:
        yield server


def one(key: str | None, value: bytes, **fields: object) -> Entry:
    """An entry that is no batch; as Java's clients send it."""
    return value, {"uncompressed_size": len(value), **({"partition_key": key} if key else {}), **fields}


def batch(*parts: Part, **fields: object) -> Entry:
    single = message_class("SingleMessageMetadata")
    payload = b""
    for key, value in parts:
        head = single(payload_size=len(value), **({"partition_key": key} if key else {})).SerializeToString()
        payload += struct.pack(">I", len(head)) + head + value
    return payload, {"num_messages_in_batch": len(parts), **fields}


def compressed(entry: Entry) -> Entry:
    payload, fields = entry
    return zlib.compress(payload), {**fields, "compression": 2, "uncompressed_size": len(payload)}


def publish(server: PulsarServer, topic: str, entries: Sequence[Entry]) -> None:
    with Wire(server.port) as wire:
        wire.connect().producer(topic)
        for i, (payload, fields) in enumerate(entries):
            count = fields.get("num_messages_in_batch")
            more = {"num_messages": count} if count else {}
            wire.raw(send_frame(1, i, entry_of(metadata(sequence_id=i, **fields), payload), **more))
            wire.expect("send_receipt")


def rest(server: PulsarServer, method: str, path: str, body: object = None) -> dict[str, object]:
    return request(server.http, "", "", method, path, body)


def status_of(server: PulsarServer, topic: str) -> str:
    return str(rest(server, "GET", f"persistent/public/default/{topic}/compaction")["json"]["status"])


def compact(server: PulsarServer, topic: str) -> None:
    assert rest(server, "PUT", f"persistent/public/default/{topic}/compaction")["status"] == 204
    wait_until(lambda: status_of(server, topic) != "RUNNING", "the compaction ends", TIMEOUT_S)
    assert status_of(server, topic) == "SUCCESS"


Place = tuple[str, bytes, int, int]


def read(server: PulsarServer, topic: str, *, plain: bool = False) -> list[Place]:
    """By an official client: key, payload, entry, place in the batch, until it says that there is no more."""
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=not plain)
    found = []
    while reader.has_message_available():
        message = reader.read_next(TIMEOUT_S * 1000)
        at = message.message_id()
        found.append((message.partition_key(), message.data(), at.entry_id(), at.batch_index()))
    client.close()
    return found


def last_id(server: PulsarServer, topic: str, *, compacted: bool) -> tuple[int, int]:
    with Wire(server.port) as wire:
        start = {"ledgerId": MAX, "entryId": MAX}
        wire.connect().subscribe(topic, "last", durable=False, read_compacted=compacted, start_message_id=start)
        found = wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1).last_message_id
        return int(found.entryId), int(found.batch_index)


# What was published; what a real broker kept of it; the last id it names to who reads that. Of a batch it also gives
# what it has taken out, as empty messages that are marked so: ours are not given at all.
SCENES: Final[dict[str, tuple[list[Entry], list[Place], tuple[int, int]]]] = {
    "the last of each key": (
        [one(f"k{i % 3}", b"v%d" % i) for i in range(10)],
        [("k1", b"v7", 7, -1), ("k2", b"v8", 8, -1), ("k0", b"v9", 9, -1)],
        (9, -1),
    ),
    "without a key": (
        [one("a", b"1"), one(None, b"2"), batch(("b", b"b"), (None, b"x"))],
        [("a", b"1", 0, -1), ("b", b"b", 2, 0)],
        (2, 0),
    ),
    "an empty one deletes": (
        [one("a", b"1"), one("b", b"2"), one("a", b""), one("c", b"3")],
        [("b", b"2", 1, -1), ("c", b"3", 3, -1)],
        (3, -1),
    ),
    "an empty one that says no size deletes nothing": (
        [one("a", b"1"), (b"", {"partition_key": "a"})],
        [("a", b"", 1, -1)],
        (1, -1),
    ),
    "an empty one of a batch deletes": (
        [one("a", b"1"), one("b", b"2"), batch(("c", b"c"), ("b", b""))],
        [("a", b"1", 0, -1), ("c", b"c", 2, 0)],
        (2, 0),
    ),
    "all is deleted": ([one("a", b"1"), batch(("b", b"b"), ("a", b"")), batch(("b", b""))], [], (MAX, -1)),
    "keys of a batch": (
        [batch(("a", b"1"), ("b", b"b"), partition_key="q"), batch(("a", b"2"), ("b", b"c"), partition_key="q")],
        [("a", b"2", 1, 0), ("b", b"c", 1, 1)],
        (1, 1),
    ),
    "a compressed batch": (
        [one("a", b"1"), compressed(batch(("a", b"3"), ("z", b"z")))],
        [("a", b"3", 1, 0), ("z", b"z", 1, 1)],
        (1, 1),
    ),
    "an ordering key is none": (
        [one("a", b"1", ordering_key=b"o"), one(None, b"2", ordering_key=b"o")],
        [("a", b"1", 0, -1)],
        (0, -1),
    ),
}


@pytest.mark.parametrize("scene", SCENES)
def test_what_a_real_broker_keeps_is_kept(kept: PulsarServer, topic: str, scene: str) -> None:
    entries, expected, last = SCENES[scene]
    publish(kept, topic, entries)
    before = read(kept, topic, plain=True)
    compact(kept, topic)
    assert read(kept, topic) == expected
    assert read(kept, topic, plain=True) == before
    assert last_id(kept, topic, compacted=True) == last
    assert last_id(kept, topic, compacted=False)[0] == len(entries) - 1


def test_what_comes_behind_the_horizon_is_all_delivered_and_compacted_next_time(kept: PulsarServer, topic: str) -> None:
    publish(kept, topic, [one("a", b"1"), one("a", b"2"), one("b", b"3")])
    compact(kept, topic)
    publish(kept, topic, [one("a", b"4"), one("a", b"5")])
    assert [place[1] for place in read(kept, topic)] == [b"2", b"3", b"4", b"5"]
    compact(kept, topic)
    assert [place[1] for place in read(kept, topic)] == [b"3", b"5"]


def test_a_durable_consumer_reads_the_view_and_a_restart_keeps_it(tmp_path: Path) -> None:
    def consume(server: PulsarServer, topic: str, kind: int, count: int) -> list[int]:
        with Wire(server.port) as wire:
            wire.connect().subscribe(topic, "s", kind, read_compacted=True, initialPosition=1)
            wire.flow(100)
            places = [wire.expect("message").message_id for _ in range(count)]
            for place in places:
                wire.ack({"ledgerId": place.ledgerId, "entryId": place.entryId})
            return [place.entryId for place in places]

    kinds = {"exclusive": 0, "failover": 2}
    with running(data_dir=tmp_path) as server:
        for topic in kinds:
            publish(server, topic, [one(f"k{i % 2}", b"v") for i in range(6)])
            with Wire(server.port) as wire:  # everybody has had them
                wire.connect().subscribe(topic, "all", initialPosition=1)
                wire.flow(100)
                for _ in range(6):
                    place = wire.expect("message").message_id
                wire.ack({"ledgerId": place.ledgerId, "entryId": place.entryId}, cumulative=True)
            compact(server, topic)
    with running(data_dir=tmp_path) as server:
        for topic, kind in kinds.items():
            assert consume(server, topic, kind, 2) == [4, 5]
            publish(server, topic, [one("k0", b"v")])
            assert consume(server, topic, kind, 1) == [6]
            found = rest(server, "GET", f"persistent/public/default/{topic}/stats")["json"]["subscriptions"]
            assert found["s"]["msgBacklog"] == 0, "what it was not shown is no backlog"
            assert found["__compaction"]["msgBacklog"] == 1


def test_requests_about_compaction_are_answered_as_by_a_real_broker(kept: PulsarServer, topic: str) -> None:
    path = f"persistent/public/default/{topic}"
    missing = {"status": 404, "json": {"reason": f"Topic persistent://public/default/{topic} not found"}}
    assert rest(kept, "GET", f"{path}/compaction") == missing == rest(kept, "PUT", f"{path}/compaction")
    assert rest(kept, "PUT", f"non-persistent/public/default/{topic}/compaction")["status"] == 404
    publish(kept, topic, [one("a", b"1"), one("a", b"2")])
    assert rest(kept, "GET", f"{path}/compaction")["json"] == {"status": "NOT_RUN", "lastError": ""}
    compact(kept, topic)
    assert rest(kept, "GET", f"{path}/compaction")["json"] == {"status": "SUCCESS", "lastError": ""}
    stats = rest(kept, "GET", f"{path}/stats")["json"]
    assert stats["compaction"]["lastCompactionRemovedEventCount"] == 1
    assert stats["compaction"]["lastCompactionSucceedTimestamp"] > 0
    assert stats["subscriptions"]["__compaction"]["msgBacklog"] == 0
    assert rest(kept, "GET", f"{path}/internalStats")["json"]["compactedLedger"]["entries"] == 1
    assert rest(kept, "PUT", f"{path}-p/partitions", 2)["status"] == 204
    assert rest(kept, "PUT", f"{path}-p/compaction")["status"] == 204
    assert rest(kept, "GET", f"{path}-p/compaction")["status"] == 404
    wait_until(lambda: status_of(kept, f"{topic}-p-partition-1") == "SUCCESS", "a partition is done", TIMEOUT_S)


def test_what_cannot_read_the_view_is_refused(kept: PulsarServer, topic: str) -> None:
    with Wire(kept.port) as wire:
        wire.connect()
        for kind in (1, 3):
            wish = {"subscription": "s", "subType": kind, "consumer_id": kind, "read_compacted": True}
            assert wire.ask("subscribe", "error", topic=topic, **wish).error == 22
        wish = {"subscription": "__compaction", "subType": 0, "consumer_id": 9}
        assert wire.ask("subscribe", "error", topic=topic, **wish).error == 22, "nobody takes the view apart"


def test_nsqs_clients_and_its_http_api_leave_the_view_alone(tmp_path: Path) -> None:
    port, http_port = free_port(), free_port()
    listen = f"--listen=pulsar://{HOST}:{port}", f"--listen=pulsar-http://{HOST}:{http_port}"
    with broker_in(tmp_path / "data", *listen) as broker:
        server = PulsarServer(port, broker.running.process, tmp_path, broker.nsq_port, http_port, 0)
        publish(server, "t", [one("k", b"1"), one("k", b"2")])
        with NsqWire(broker.nsq_port) as nsq:
            nsq.fails("SUB t __compaction\n", 'E_BAD_CHANNEL SUB channel name "__compaction" is not valid')
        compact(server, "t")
        for action in ("create", "empty", "pause", "unpause", "delete"):
            target = f"/channel/{action}?topic=t&channel=__compaction"
            reply = api.call(broker.nsq_http_port, "POST", target)
            assert (reply.status, reply.json["message"]) == (400, "INVALID_ARG_CHANNEL"), action
        stats = api.call(broker.nsq_http_port, "GET", "/stats?format=json").json
        assert [(topic["topic_name"], topic["channels"]) for topic in stats["topics"]] == [("t", [])]
        with Wire(port) as wire:
            wire.connect().subscribe("t", "reader", initialPosition=1, read_compacted=True)
            wire.flow(10)
            assert payload_of(wire.message()) == b"2", "it is whole"


@pytest.mark.parametrize("of", ["namespace", "topic"])
def test_a_topic_beyond_its_threshold_is_compacted_by_itself(kept: PulsarServer, topic: str, of: str) -> None:
    space, threshold = f"public/c{topic}", {"namespace": 1000, "topic": None}[of]
    assert rest(kept, "PUT", f"namespaces/{space}")["status"] == 204
    name = f"persistent://{space}/t"
    path = f"persistent/{space}/t"
    publish(kept, name, [one("a", b"x" * 100) for _ in range(30)])
    if threshold:
        assert rest(kept, "PUT", f"namespaces/{space}/compactionThreshold", threshold)["status"] == 204
    else:
        assert rest(kept, "POST", f"{path}/compactionThreshold", 1000)["status"] == 204
    wait_until(
        lambda: rest(kept, "GET", f"{path}/compaction")["json"]["status"] == "SUCCESS", "it is compacted", TIMEOUT_S
    )
    assert [place[2] for place in read(kept, name)] == [29]


# --- processes that are killed --------------------------------------------------------------------------------------


def test_the_last_message_of_a_key_is_there_whoever_is_killed_meanwhile(tmp_path: Path) -> None:
    """Round after round: messages, a compaction, and somebody dies; then the view is complete and in order."""
    dice = random.Random(13)
    numbers = itertools.count()
    last: dict[str, int] = {}

    def some(count: int) -> Iterator[Entry]:
        for _ in range(count):
            key, number = f"k{dice.randrange(300)}", next(numbers)
            deletes = dice.random() < 0.2
            last[key] = -1 if deletes else number
            yield one(key, b"" if deletes else str(number).encode())

    with running(data_dir=tmp_path) as server:
        for victim in ("mq-worker-0", "mq-gateway"):
            publish(server, "t", list(some(600)))
            rest(server, "PUT", "persistent/public/default/t/compaction")
            pid = server.pid_of(victim)
            os.kill(pid, signal.SIGKILL)

            def is_back(victim: str = victim, pid: int = pid) -> bool:
                try:
                    return server.pid_of(victim) != pid and status_of(server, "t") != "RUNNING"
                except (StopIteration, OSError, KeyError, TypeError):
                    return False

            wait_until(is_back, "it is back", TIMEOUT_S)
            found = [(key, int(value)) for key, value, _, _ in read(server, "t") if value]
            assert [number for _, number in found] == sorted(number for _, number in found)
            shown = dict(found)
            assert {key: number for key, number in last.items() if number >= 0}.items() <= shown.items()
        compact(server, "t")
        assert {key: int(value) for key, value, _, _ in read(server, "t")} == {
            key: number for key, number in last.items() if number >= 0
        }
