"""One topic, whoever speaks of it: what goes in by one protocol comes out by another; and what waits for its time."""

from __future__ import annotations

import socket
import time
import zlib

import pytest

from tests.nsq import wire as nsq
from tests.nsq.api import call
from tests.pulsar.consuming import EXCLUSIVE, FAILOVER, SHARED
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire, batch_of, batch_with, entry_of, metadata, metadata_of, payload_of, send_frame
from tests.servers import free_port, wait_until


def test_nsqs_consumers_see_the_payloads_of_pulsars_messages(server: PulsarServer, wire: Wire, topic: str) -> None:
    wire.producer(topic)
    with nsq.Wire(server.other_port) as consumer:
        consumer.subscribe(topic, "channel")
        consumer.send(b"RDY 10\n")
        wire.send(b"alone", properties=[{"key": "a", "value": "b"}], partition_key="k")
        assert consumer.message().body == b"alone"
        wire.raw(send_frame(1, 1, entry_of(metadata(num_messages_in_batch=2), batch_of(b"1", b"2"))))
        assert [message.body for message in consumer.messages(2)] == [b"1", b"2"]


def test_what_nsq_publishes_is_a_message_of_mq_shards(server: PulsarServer, wire: Wire, topic: str) -> None:
    wire.subscribe(topic)
    wire.flow(10)
    before_ms = int(time.time() * 1000)
    with nsq.Wire(server.other_port) as producer:
        producer.publish(topic, b"from nsq")
        frame = wire.message()
    assert payload_of(frame) == b"from nsq"
    found = metadata_of(frame)
    assert (found.producer_name, found.sequence_id) == ("mq-shards", frame.body.message_id.entryId)
    assert abs(found.publish_time - before_ms) < 10_000


CONSUMER_BUSY = 5


@pytest.mark.parametrize("acceptors", [1, 3])
def test_consumers_of_nsq_are_in_the_way_of_who_wants_a_channel_alone(acceptors: int) -> None:
    """It is refused until they have gone."""
    channel = {"subscription": "channel", "consumer_id": 1}
    with running(acceptors=acceptors) as server, Wire(server.port).connect() as wire:
        for topic in ("t0", "t1", "t2"):
            with nsq.Wire(server.other_port) as consumer:
                consumer.subscribe(topic, "channel")
                for kind, name in ((EXCLUSIVE, "Exclusive"), (FAILOVER, "Failover")):
                    refused = wire.ask("subscribe", "error", topic=topic, subType=kind, **channel)
                    assert (refused.error, f"consumer's type '{name}'" in refused.message) == (CONSUMER_BUSY, True)
                wire.subscribe(topic, "channel", SHARED)
            wire.ask("close_consumer", consumer_id=1)

            def is_free(topic: str = topic) -> bool:
                return not hasattr(wire.ask("subscribe", None, topic=topic, subType=EXCLUSIVE, **channel), "error")

            wait_until(is_free, "NSQ's consumer has gone")
            wire.ask("close_consumer", consumer_id=1)


def test_what_consumers_of_nsq_use_is_deleted_by_force_only() -> None:
    with running() as server, nsq.Wire(server.other_port) as consumer:

        def asked(method: str, path: str) -> int:
            return call(server.http_port, method, f"/admin/v2/{path}").status

        consumer.subscribe("t", "channel")
        topic = "persistent/public/default/t"
        for path in (f"{topic}/subscription/channel", topic):
            assert asked("DELETE", path) == 412
        assert asked("POST", "namespaces/public/default/unsubscribe/channel") == 412
        assert asked("DELETE", f"{topic}/subscription/channel?force=true") == 204
        assert consumer.is_closed()
        assert asked("DELETE", topic) == 204


HEADERS = b"""NATS/1.0\r
trace: abc\r
key: k\r
ordering_key: o\r
event_time_ms: 1700000000001\r
property.key: of the client\r
property.other: as it is\r
key_encoding: none\r
pri: 5\r
long: %s\r
\r
""" % (b"x" * 300)


def test_what_others_say_in_headers_pulsars_consumers_get_as_properties() -> None:
    """A key and a time as what they are; with the hash and checksum of what is delivered."""
    port = free_port()
    with (
        running(listen=[f"nats://127.0.0.1:{port}"], settings=["nats.topics=bound.>"]) as server,
        socket.create_connection(("127.0.0.1", port), timeout=60) as publisher,
        Wire(server.port).connect() as wire,
    ):
        wire.subscribe("bound.t")
        wire.flow(10)
        for headers, body in ((HEADERS, b"body"), (b"NATS/1.0\r\nnull_value: true\r\n\r\n", b""), (b"", b"none")):
            head = b"HPUB bound.t %d %d\r\n" % (len(headers), len(headers) + len(body))
            publisher.sendall(b'CONNECT {"headers":true}\r\n')
            publisher.sendall((head if headers else b"PUB bound.t 4\r\n") + headers + body + b"\r\n")
        first, second, third = wire.messages(3)
    assert [payload_of(frame) for frame in (first, second, third)] == [b"body", b"", b"none"]
    found = metadata_of(first)
    assert (found.producer_name, found.partition_key, found.ordering_key) == ("mq-shards", "k", b"o")
    assert (found.event_time, found.partition_key_b64_encoded) == (1_700_000_000_001, False)
    assert {one.key: one.value for one in found.properties} == {
        "trace": "abc", "key": "of the client", "property.other": "as it is", "key_encoding": "none", "long": "x" * 300,
    }  # fmt: skip
    assert metadata_of(second).null_value and not metadata_of(second).properties
    assert not metadata_of(third).properties


def test_a_message_is_delivered_when_its_time_has_come(wire: Wire, topic: str) -> None:
    wire.producer(topic)
    wire.subscribe(topic, kind=1)
    wire.flow(10)
    due = time.time() + 0.7
    wire.send(b"later", sequence=0, deliver_at_time=int(due * 1000))
    wire.send(b"now", sequence=1)
    wire.send(b"long ago", sequence=2, deliver_at_time=5)
    assert [payload_of(frame) for frame in wire.messages(2)] == [b"now", b"long ago"]
    assert payload_of(wire.message()) == b"later" and time.time() > due - 0.1


def test_who_listens_on_nats_hears_each_message_of_a_batch_in_order() -> None:
    """Whether it is compressed or not, and what comes behind one that has to be opened first comes behind it."""
    port = free_port()
    with (
        running(listen=[f"nats://127.0.0.1:{port}"], settings=["nats.topics=bound.>"]) as server,
        socket.create_connection(("127.0.0.1", port), timeout=60) as listener,
        Wire(server.port).connect() as wire,
    ):
        listener.sendall(b"CONNECT {}\r\nSUB bound.t 1\r\nPING\r\n")
        said = b""
        while not said.endswith(b"PONG\r\n"):
            said += listener.recv(1 << 16)
        wire.producer("bound.t")
        packed = zlib.compress(batch_of(*(b"z%d" % i for i in range(300))))
        opened = len(batch_of(*(b"z%d" % i for i in range(300))))
        alone = zlib.compress(b"alone and compressed")
        for sequence, (head, payload) in enumerate((
            ({"num_messages_in_batch": 3}, batch_of(b"1", b"", b"3")),
            ({"num_messages_in_batch": 300, "compression": 2, "uncompressed_size": opened}, packed),
            ({}, b"behind it"),
            ({"compression": 2, "uncompressed_size": 20}, alone),
            ({"compression": 2}, zlib.compress(b"")),
            ({"num_messages_in_batch": 2, "compression": 2, "uncompressed_size": 9}, b"broken"),
            ({"num_messages_in_batch": 2}, batch_of(b"x", b"y")),
        )):  # fmt: skip
            wire.raw(send_frame(1, sequence, entry_of(metadata(sequence_id=sequence, **head), payload)))
        expected = [b"1", b"", b"3", *(b"z%d" % i for i in range(300)), b"behind it", b"alone and compressed", b""]
        said, heard = b"", []
        while not heard or heard[-1] != b"y":
            said += listener.recv(1 << 16)
            while b"\r\n" in said:
                line, _, rest = said.partition(b"\r\n")
                words = line.split()
                if words[0] not in (b"MSG", b"HMSG"):
                    said = rest
                    continue
                size = int(words[-1])
                if len(rest) < size + 2:
                    break
                heard.append(rest[:size])
                said = rest[size + 2 :]
        assert heard[: len(expected)] == expected
        assert heard[-2:] == [b"x", b"y"]
        assert len(heard) == len(expected) + 3 and heard[-3].endswith(b"broken"), "what cannot be opened is as it is"


def heard_on_nats(listener: socket.socket, count: int) -> list[tuple[list[bytes], bytes]]:
    """Lines of headers, and payload."""
    said, heard = b"", []
    while len(heard) < count:
        said += listener.recv(1 << 16)
        while b"\r\n" in said and len(heard) < count:
            line, _, rest = said.partition(b"\r\n")
            words = line.split()
            if words[0] not in (b"MSG", b"HMSG"):
                said = rest
                continue
            size, head = int(words[-1]), int(words[-2]) if words[0] == b"HMSG" else 0
            if len(rest) < size + 2:
                break
            heard.append((rest[:head].split(b"\r\n")[:-2], rest[head:size]))
            said = rest[size + 2 :]
    return heard


def test_who_listens_on_nats_hears_properties_keys_and_times_as_headers() -> None:
    """Each message of a batch its own; who knows no headers, the payload alone."""
    port = free_port()
    with (
        running(listen=[f"nats://127.0.0.1:{port}"], settings=["nats.topics=bound.>"]) as server,
        socket.create_connection(("127.0.0.1", port), timeout=60) as listener,
        socket.create_connection(("127.0.0.1", port), timeout=60) as old,
        Wire(server.port).connect() as wire,
    ):
        for one, options in ((listener, b'{"headers":true}'), (old, b"{}")):
            one.sendall(b"CONNECT " + options + b"\r\nSUB bound.t 1\r\nPING\r\n")
            said = b""
            while not said.endswith(b"PONG\r\n"):
                said += one.recv(1 << 16)
        wire.producer("bound.t")
        said_of = {"properties": [{"key": "trace", "value": "a b"}, {"key": "key", "value": "of the client"}]}
        wire.send(b"alone", sequence=0, partition_key="k", event_time=5, ordering_key=b"o", **said_of)
        odd = [{"key": "two\r\nlines", "value": "x"}, {"key": "x", "value": "a\r\nb"}, {"key": "", "value": "nameless"}]
        wire.send(b"odd", sequence=1, properties=[*odd, {"key": "good", "value": ""}])
        wire.send(b"none of them", sequence=2, properties=odd)
        batch = batch_with((b"1", said_of), (b"2", {}), (b"3", {"partition_key": "z", "event_time": 7}))
        packed = zlib.compress(batch)
        for sequence, (more, payload) in enumerate((({}, batch), ({"compression": 2}, packed)), 3):
            head = metadata(
                sequence_id=sequence, num_messages_in_batch=3, uncompressed_size=len(batch),
                properties=[{"key": "of", "value": "the batch"}], **more,
            )  # fmt: skip
            wire.raw(send_frame(1, sequence, entry_of(head, payload)))
        version, ours = b"NATS/1.0", [b"trace: a b", b"property.key: of the client"]
        of_batch = [
            ([version, b"trace: a b", b"key: of the client"], b"1"), ([], b"2"),
            ([version, b"key: z", b"event_time_ms: 7"], b"3"),
        ]  # fmt: skip
        expected = [
            ([version, b"key: k", b"event_time_ms: 5", b"ordering_key: o", *ours], b"alone"),
            ([version, b"good: "], b"odd"), ([], b"none of them"), *of_batch, *of_batch,
        ]  # fmt: skip
        assert [(sorted(head), body) for head, body in heard_on_nats(listener, 9)] == [
            (sorted(head), body) for head, body in expected
        ]
        assert heard_on_nats(old, 9) == [([], body) for _, body in expected]
