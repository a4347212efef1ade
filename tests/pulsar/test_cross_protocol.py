"""One topic, whoever speaks of it: what goes in by one protocol comes out by another; and what waits for its time."""

from __future__ import annotations

import time

from tests.nsq import wire as nsq
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import Wire, batch_of, entry_of, metadata, metadata_of, payload_of, send_frame


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
