"""What clients ask about topics, schemas and namespaces, with the gateway's catalog behind it; and without."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from http.client import HTTPConnection

import pytest

from tests.pulsar.record_admin import play
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire, payload_of
from tests.servers import wait_until

TOPIC_NOT_FOUND, SERVICE_NOT_READY, INCOMPATIBLE = 11, 6, 18
AVRO = 4


def record(*fields: str) -> bytes:
    text = ",".join(f'{{"name":"{field}","type":"string"}}' for field in fields)
    return f'{{"type":"record","name":"R","fields":[{text}]}}'.encode()


def schema(data: bytes, kind: int = AVRO) -> dict[str, object]:
    return {"name": "R", "schema_data": data, "type": kind}


def test_a_namespace_that_is_not_there_is_told_as_each_command_does(wire: Wire) -> None:
    name = "persistent://public/nowhere/t"
    assert wire.ask("lookupTopic", "lookupTopicResponse", topic=name).error == TOPIC_NOT_FOUND
    assert wire.ask("partitionMetadata", "partitionMetadataResponse", topic=name).error == TOPIC_NOT_FOUND
    assert wire.ask("producer", "error", topic=name, producer_id=1).error == SERVICE_NOT_READY
    wanted = {"subscription": "s", "subType": 0, "consumer_id": 1}
    assert wire.ask("subscribe", "error", topic=name, **wanted).error == SERVICE_NOT_READY


def test_a_topic_that_is_not_there_is_not_made_for_who_does_not_want_it(wire: Wire, topic: str) -> None:
    wanted = {"topic": topic, "subscription": "s", "subType": 0, "consumer_id": 1, "force_topic_creation": False}
    assert wire.ask("subscribe", "error", **wanted).error == TOPIC_NOT_FOUND
    wire.producer(topic)
    wire.ask("subscribe", **wanted)


def test_a_topic_without_partitions_has_none(wire: Wire, topic: str) -> None:
    found = wire.ask("partitionMetadata", "partitionMetadataResponse", topic=topic)
    assert (found.response, found.partitions) == (0, 0)


def test_topics_of_a_namespace_are_listed_by_pattern_and_hash(wire: Wire, topic: str) -> None:
    for name in ("a", "b", "c"):
        wire.producer(f"listed-{topic}-{name}", producer=ord(name))
    wanted = {"namespace": "public/default", "topics_pattern": f"persistent://public/default/listed-{topic}-[ab]"}
    found = wire.ask("getTopicsOfNamespace", "getTopicsOfNamespaceResponse", **wanted)
    assert list(found.topics) == [f"persistent://public/default/listed-{topic}-{name}" for name in "ab"]
    assert found.filtered and found.changed
    again = wire.ask("getTopicsOfNamespace", "getTopicsOfNamespaceResponse", topics_hash=found.topics_hash, **wanted)
    assert not again.topics and not again.changed and again.topics_hash == found.topics_hash


def test_who_watches_a_namespace_is_told_of_topics_that_come(wire: Wire, topic: str) -> None:
    pattern = f"persistent://public/default/watched-{topic}-.*"
    wanted = {"watcher_id": 7, "namespace": "public/default", "topics_pattern": pattern}
    found = wire.ask("watchTopicList", "watchTopicListSuccess", **wanted)
    assert (found.watcher_id, list(found.topic)) == (7, [])
    wire.producer(f"watched-{topic}-x")
    update = wire.expect("watchTopicUpdate")
    assert (update.watcher_id, list(update.new_topics)) == (7, [f"persistent://public/default/watched-{topic}-x"])
    assert update.topics_hash != found.topics_hash
    wire.ask("watchTopicListClose", watcher_id=7)
    wire.producer(f"watched-{topic}-y", producer=2)
    wire.quiet()
    assert not wire.pending("watchTopicUpdate")


def test_a_schema_has_versions_and_what_does_not_fit_is_refused(wire: Wire, topic: str) -> None:
    assert wire.ask("getSchema", "getSchemaResponse", topic=topic).error_code == TOPIC_NOT_FOUND
    assert wire.producer(topic, schema=schema(record("a"))).schema_version == bytes(8)
    assert wire.producer(topic, producer=2, schema=schema(record("a"))).schema_version == bytes(8)
    found = wire.ask("getSchema", "getSchemaResponse", topic=topic)
    assert (found.schema.schema_data, found.schema.type, found.schema_version) == (record("a"), AVRO, bytes(8))
    refused = wire.ask("producer", "error", topic=topic, producer_id=3, schema=schema(record("b")))
    assert refused.error == INCOMPATIBLE
    refused = wire.ask("getOrCreateSchema", "getOrCreateSchemaResponse", topic=topic, schema=schema(record("b")))
    assert refused.error_code == INCOMPATIBLE
    wire.producer(topic, producer=4)  # who has none may come
    wire.subscribe(topic, schema=schema(record("a")))


@pytest.mark.long
def test_a_gateway_that_is_down_stops_no_traffic(topic: str) -> None:
    with running() as server, Wire(server.port) as wire:
        wire.connect().producer(topic)
        wire.subscribe(topic)
        wire.flow(10)
        os.kill(server.pid_of("mq-gateway"), signal.SIGSTOP)
        try:
            wire.send(b"m")
            assert payload_of(wire.message()) == b"m"
            with Wire(server.port) as other:
                other.connect().producer(topic)
                other.ask("subscribe", topic=topic, subscription="other", subType=0, consumer_id=1)
                refused = other.ask("producer", "error", topic=f"{topic}-new", producer_id=2)
                assert refused.error == SERVICE_NOT_READY
                assert other.ask("lookupTopic", "lookupTopicResponse", topic=topic).response == 1
            with Wire(server.port) as other:  # what waits beside the first on its connection waits no longer than it
                other.connect()
                begin = time.monotonic()
                for i in range(20):
                    fields = {"topic": topic, "subscription": f"s{i}", "subType": 0, "consumer_id": i}
                    other.say("subscribe", request_id=i, **fields)
                for _ in range(20):
                    other.expect("success")
                assert time.monotonic() - begin < 30, "one after the other it would be a minute"
        finally:
            os.kill(server.pid_of("mq-gateway"), signal.SIGCONT)


def test_for_a_gateway_that_has_been_away_for_long_nobody_waits(topic: str) -> None:
    """As after it has died again and again: who comes back when a worker was lost asks it more than once."""
    with running() as server, Wire(server.port) as wire:
        wire.connect().producer(topic)
        dead = server.pid_of("mq-gateway")
        os.kill(server.process.pid, signal.SIGSTOP)  # or there is another at once
        try:
            os.kill(dead, signal.SIGKILL)
            for _ in range(2):  # the first may have been asked of the one that was killed
                wire.ask("producer", "error", topic=f"{topic}-new", producer_id=2)
            begin = time.monotonic()
            for consumer in range(20):
                wire.ask("lookupTopic", "lookupTopicResponse", topic=topic)
                wire.subscribe(topic, f"s{consumer}", consumer=consumer)
            refused = wire.ask("producer", "error", topic=f"{topic}-new", producer_id=3)
            assert refused.error == SERVICE_NOT_READY
            assert time.monotonic() - begin < 30, "if each waited 3 s it would be a minute"
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        new = {"topic": f"{topic}-new", "producer_id": 4}
        wait_until(lambda: not hasattr(wire.ask("producer", None, **new), "error"), "the gateway is back")


@pytest.mark.parametrize("kind", ["AvroSchema", "JsonSchema"])
def test_the_client_sends_and_receives_records(server: PulsarServer, topic: str, kind: str) -> None:
    pulsar = pytest.importorskip("pulsar")
    pytest.importorskip("fastavro") if kind == "AvroSchema" else None

    class Example(pulsar.schema.Record):
        text = pulsar.schema.String()
        number = pulsar.schema.Integer()

    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        wanted = getattr(pulsar.schema, kind)(Example)
        consumer = client.subscribe(topic, "s", schema=wanted)
        client.create_producer(topic, schema=wanted).send(Example(text="a", number=5))
        value = consumer.receive(8000).value()
        assert (value.text, value.number) == ("a", 5)
    finally:
        client.close()


def test_who_came_first_on_a_connection_is_first(wire: Wire, topic: str) -> None:
    """Though it had to have the topic made, which takes longer than finding it."""
    for number in range(1, 4):
        fields = {"topic": topic, "subscription": "s", "subType": 0, "consumer_id": number}
        wire.say("subscribe", request_id=1000 + number, **fields)
    answers = {}
    while len(answers) < 3:
        frame = wire.until(lambda one: getattr(one.body, "request_id", 0) > 1000)
        answers[frame.body.request_id] = frame.name
    assert answers == {1001: "success", 1002: "error", 1003: "error"}


def test_a_namespace_that_is_not_there_has_no_topics(wire: Wire) -> None:
    nowhere = "public/nowhere"
    answer = wire.ask("getTopicsOfNamespace", "getTopicsOfNamespaceResponse", namespace=nowhere)
    assert list(answer.topics) == []
    watched = wire.ask("watchTopicList", "watchTopicListSuccess", namespace=nowhere, watcher_id=1, topics_pattern=".*")
    assert list(watched.topic) == []


def test_a_topic_whose_name_has_a_line_end_is_refused_by_that_name(server: PulsarServer, wire: Wire) -> None:
    why = "The name of a topic must not have a line end: 'persistent://public/default/a\\nb'"
    for command, answer, fields in (
        ("lookupTopic", "lookupTopicResponse", {}),
        ("partitionMetadata", "partitionMetadataResponse", {}),
        ("producer", "error", {"producer_id": 1}),
        ("subscribe", "error", {"subscription": "s", "subType": 1, "consumer_id": 1}),
    ):
        refused = wire.ask(command, answer, topic="a\nb", **fields)
        assert refused.error == 17 and refused.message.endswith(why), command
    for method, path in (("PUT", ""), ("DELETE", ""), ("GET", "/stats"), ("PUT", "/subscription/s")):
        said = play(server.http, (method, f"persistent/public/default/a%0Ab{path}"))
        assert said["status"] == 412 and "must not have a line end" in said["json"]["reason"]
    assert not any("\n" in name for name in play(server.http, ("GET", "persistent/public/default"))["json"])


def test_the_status_line_says_why_a_request_is_refused(server: PulsarServer, topic: str) -> None:
    def said(path: str) -> tuple[int, str]:
        with contextlib.closing(HTTPConnection(server.http, timeout=10)) as connection:
            connection.request("GET", f"/admin/v2/{path}")
            answer = connection.getresponse()
            return answer.status, answer.reason

    path = f"persistent/public/default/{topic}"
    assert said(f"{path}/partitions") == (404, f"Topic persistent://public/default/{topic} not found")
    assert said(f"{path}%C3%A9%01/partitions")[1] == f"Topic persistent://public/default/{topic}?? not found"
    assert said("nothing") == (404, "Not Found")
