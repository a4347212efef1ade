"""Topics that are not persistent: their messages are for who is there."""

from __future__ import annotations

import http.client
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.pulsar.record_admin import play
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire, payload_of
from tests.servers import wait_until


def path(topic: str) -> str:
    return f"non-persistent/public/default/{topic}"


def _topics(server: PulsarServer) -> list[str]:
    """Those of public/default; none if the gateway does not answer."""
    try:
        found = play(server.http, ("GET", "non-persistent/public/default"))["json"]
    except (OSError, http.client.HTTPException):
        return []
    return [name.removeprefix("non-persistent://public/default/") for name in found]


def test_a_message_is_for_those_who_are_there(wire: Wire, server: PulsarServer, topic: str) -> None:
    name = f"non-persistent://public/default/{topic}"
    wire.producer(name)
    wire.send(b"too early")
    wire.until(lambda frame: frame.name == "send_receipt")
    wire.subscribe(name, initialPosition=1)
    wire.flow(10)
    wire.send(b"a", sequence=1)
    assert payload_of(wire.message()) == b"a"
    stats = play(server.http, ("GET", f"{path(topic)}/stats"))["json"]
    assert stats["msgInCounter"] == 2 and stats["publishers"]
    assert stats["subscriptions"]["s"]["msgOutCounter"] == 1 and stats["subscriptions"]["s"]["consumers"]
    assert play(server.http, ("GET", f"{path(topic)}/subscriptions"))["json"] == ["s"]
    wire.ask("close_consumer", consumer_id=1)
    wire.send(b"nobody is there", sequence=2)
    wire.until(lambda frame: frame.name == "send_receipt" and frame.body.sequence_id == 2)
    wire.subscribe(name, consumer=2, initialPosition=1)
    wire.flow(10, consumer=2)
    wire.send(b"b", sequence=3)
    assert payload_of(wire.message(2)) == b"b"


def test_its_schema_is_shown_where_no_other_topic_of_that_name_has_one(
    wire: Wire, server: PulsarServer, topic: str
) -> None:
    asked = ("GET", f"schemas/public/default/{topic}/schema")
    schema = {"name": "s", "schema_data": b"", "type": 1}
    wire.producer(f"non-persistent://public/default/{topic}", schema=schema)
    assert play(server.http, asked)["json"]["type"] == "STRING"
    assert play(server.http, ("POST", asked[1], {"type": "INT32", "schema": "", "properties": {}}))["status"] == 409
    wire.producer(topic, producer=2, schema={"name": "s", "schema_data": b"", "type": 8})
    assert play(server.http, asked)["json"]["type"] == "INT32"
    assert play(server.http, ("DELETE", asked[1]))["status"] == 200
    assert play(server.http, asked)["json"]["type"] == "STRING"


def test_there_is_nothing_to_go_back_to(wire: Wire, server: PulsarServer, topic: str) -> None:
    name = f"non-persistent://public/default/{topic}"
    wire.producer(name)
    wire.subscribe(name, start_message_id={"ledgerId": (1 << 64) - 1, "entryId": (1 << 64) - 1})
    wire.flow(10)
    wire.send(b"a")
    assert payload_of(wire.message()) == b"a"
    wire.ask("seek", consumer_id=1, message_publish_time=1)
    refused = wire.ask("getLastMessageId", "error", consumer_id=1)
    assert refused.message == "GetLastMessageId on a non-persistent topic is not allowed"
    assert play(server.http, ("POST", f"{path(topic)}/subscription/s/resetcursor/1"))["status"] == 204
    wire.send(b"b", sequence=1)
    assert payload_of(wire.message()) == b"b"


@pytest.mark.parametrize(
    ("method", "what", "status", "reason"),
    [
        ("POST", "terminate", 406, "Need to provide a persistent topic name"),
        ("GET", "lastMessageId", 405, "GetLastMessageId on a non-persistent topic is not allowed"),
        ("GET", "subscription/s/position/1", 405, "Peek messages on a non-persistent topic is not allowed"),
        ("POST", "subscription/s/expireMessages/1", 405, "Expire messages on a non-persistent topic is not allowed"),
        ("DELETE", "truncate", 412, "unsupport truncate"),
        (
            "PUT", "subscription/q", 400,
            "Create subscription on non-persistent topic can only be done through client",
        ),
    ],
)  # fmt: skip
def test_what_a_real_broker_refuses(
    wire: Wire, server: PulsarServer, topic: str, method: str, what: str, status: int, reason: str
) -> None:
    wire.subscribe(f"non-persistent://public/default/{topic}")
    answer = play(server.http, (method, f"{path(topic)}/{what}"))
    assert (answer["status"], answer["json"]) == (status, {"reason": reason})


def test_what_nobody_has_permits_for_is_dropped_and_counted(wire: Wire, server: PulsarServer, topic: str) -> None:
    name = f"non-persistent://public/default/{topic}"
    wire.producer(name)
    wire.subscribe(name, kind=1)
    wire.flow(2)
    for sequence in range(6):
        wire.send(b"%d" % sequence, sequence=sequence)
    got = [wire.message() for _ in range(2)]
    assert [payload_of(frame) for frame in got] == [b"0", b"1"]
    assert {(frame.body.message_id.ledgerId, frame.body.message_id.entryId) for frame in got} == {(0, 0)}
    receipt = wire.until(lambda frame: frame.name == "send_receipt" and frame.body.sequence_id == 5)
    assert (receipt.body.message_id.ledgerId, receipt.body.message_id.entryId) == (0, 0)
    wire.flow(10)
    wire.send(b"6", sequence=6)
    assert payload_of(wire.message()) == b"6", "not what was dropped"

    def stats() -> Any:  # noqa: ANN401
        return play(server.http, ("GET", f"{path(topic)}/stats"))["json"]

    before = stats()
    assert (before["storageSize"], before["subscriptions"]["s"]["msgOutCounter"]) == (0, 3)
    wire.ask("close_consumer", consumer_id=1)
    wire.subscribe(name, consumer=2)

    def drops() -> bool:
        wire.send(b"x", sequence=7)
        found = stats()
        assert found["msgDropRate"] == 0, "no publisher's are dropped, whoever the consumers are"
        return bool(found["subscriptions"]["s"]["msgDropRate"] > 0)

    wait_until(drops, "a rate of drops", 10)
    inside = play(server.http, ("GET", f"{path(topic)}/internalStats"))["json"]
    assert inside.pop("cursors").keys() == {"s"}
    assert inside.keys() == {  # of a real broker's answer
        "entriesAddedCounter", "numberOfEntries", "totalSize", "currentLedgerEntries", "currentLedgerSize",
        "waitingCursorsCount", "pendingAddEntriesCount",
    }  # fmt: skip
    assert inside.pop("entriesAddedCounter") > 7 and not any(inside.values())


def test_of_the_topic_nothing_is_stored(tmp_path: Path) -> None:
    name = "non-persistent://public/default/t"
    body = b"not to be found on the disk"
    with running(data_dir=tmp_path, shards=1) as server, Wire(server.port) as wire:
        wire.connect()
        wire.producer(name)
        wire.subscribe(name)
        wire.flow(10)
        wire.send(body)
        assert payload_of(wire.message()) == body
        server.stop()
    assert not any(body in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_after_a_restart_there_is_only_the_metadata_of_partitioned_ones(tmp_path: Path) -> None:
    names = ["made", "p-partition-0", "p-partition-1"]
    with running(data_dir=tmp_path, shards=1) as server, Wire(server.port) as wire:
        assert play(server.http, ("PUT", f"{path('p')}/partitions", 2))["status"] == 204
        wire.connect().producer("non-persistent://public/default/made")
        assert _topics(server) == names
        os.kill(server.pid_of("mq-gateway"), signal.SIGKILL)
        wait_until(lambda: _topics(server) == names, "a gateway after the one that was killed", 10)
        server.stop()
    with running(data_dir=tmp_path, shards=1) as server, Wire(server.port) as wire:
        assert _topics(server) == names[1:]
        assert play(server.http, ("GET", f"{path('p')}/partitions"))["json"]["partitions"] == 2
        assert play(server.http, ("GET", f"{path('made')}/stats"))["status"] == 404
        wire.connect().producer("non-persistent://public/default/made")
        assert _topics(server) == names
