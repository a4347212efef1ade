"""A batch is one entry to Pulsar's consumers and so many messages to NSQ's, each finished by itself."""

from __future__ import annotations

import os
import signal
import struct
import zlib
from pathlib import Path

import cramjam
import pytest
from mq_shards.csrc import decompression
from mq_shards.csrc._core import lib

from tests.nsq import wire as nsq
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire, batch_of, entry_of, metadata, payload_of, send_frame


def flushed(data: bytes) -> bytes:
    """As Java's clients compress: the stream has no end."""
    stream = zlib.compressobj()
    return stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)


MOST = 64 * lib.PARTS_MAX_WORDS
COMPRESSIONS = {
    "none": (0, lambda data: data),
    "lz4": (decompression.LZ4, lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False))),
    "zlib": (decompression.ZLIB, lambda data: bytes(cramjam.zlib.compress(data))),
    "zlib of Java": (decompression.ZLIB, flushed),
    "zstd": (decompression.ZSTD, lambda data: bytes(cramjam.zstd.compress(data))),
    "snappy": (decompression.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
}


def send_batch(wire: Wire, *payloads: bytes, how: str = "none", sequence: int = 0, **fields: object) -> None:
    kind, compress = COMPRESSIONS[how]
    batch = batch_of(*payloads)
    if kind:
        fields = {"compression": kind, "uncompressed_size": len(batch), **fields}
    head = metadata(num_messages_in_batch=len(payloads), sequence_id=sequence, **fields)
    wire.raw(send_frame(1, sequence, entry_of(head, compress(batch))))
    wire.expect("send_receipt")


def bodies(messages: list[nsq.Message]) -> list[bytes]:
    return [message.body for message in messages]


@pytest.mark.parametrize("how", COMPRESSIONS)
def test_a_batch_is_as_many_messages_to_nsqs_consumers(server: PulsarServer, wire: Wire, topic: str, how: str) -> None:
    wire.producer(topic)
    wire.subscribe(topic)
    with nsq.Wire(server.other_port) as consumer:
        consumer.subscribe(topic, "channel", rdy=100)
        payloads = [b"%d" % i * 20 for i in range(50)]
        send_batch(wire, *payloads, how=how)
        got = consumer.messages(50)
        assert bodies(got) == payloads and {message.attempts for message in got} == {1}
        assert len({message.id for message in got}) == 50
        consumer.fin(*got)
        assert all(consumer.is_not_in_flight(message) for message in got)
        # Behind it, one that is alone in its batch, and one that is in none.
        send_batch(wire, b"alone", how=how, sequence=1)
        kind, compress = COMPRESSIONS[how]
        fields = {"compression": kind, "uncompressed_size": 6} if kind else {}
        wire.raw(send_frame(1, 2, entry_of(metadata(sequence_id=2, **fields), compress(b"single"))))
        assert bodies(consumer.messages(2)) == [b"alone", b"single"]
    # A Pulsar consumer has them as they were sent.
    wire.flow(100)
    frames = wire.messages(3)
    assert [frame.body.message_id.entryId for frame in frames] == [0, 1, 2]
    assert payload_of(frames[0]) == COMPRESSIONS[how][1](batch_of(*payloads))


@pytest.mark.parametrize("how", [how for how, (kind, _) in COMPRESSIONS.items() if kind])
def test_an_empty_message_that_is_compressed_is_an_empty_message_to_nsqs_consumers(
    server: PulsarServer, wire: Wire, topic: str, how: str
) -> None:
    kind, compress = COMPRESSIONS[how]
    wire.producer(topic)
    with nsq.Wire(server.other_port) as consumer:
        consumer.subscribe(topic, "channel", rdy=10)
        for sequence, fields in enumerate(({"uncompressed_size": 0}, {})):
            packed = entry_of(metadata(sequence_id=sequence, compression=kind, **fields), compress(b""))
            wire.raw(send_frame(1, sequence, packed))
        got = consumer.messages(2)
        assert bodies(got) == [b"", b""]
        consumer.fin(*got)
        assert all(consumer.is_not_in_flight(message) for message in got)


@pytest.mark.parametrize("how", ["none", "zstd"])
def test_who_wants_one_message_gets_one_of_a_batch(server: PulsarServer, wire: Wire, topic: str, how: str) -> None:
    wire.producer(topic)
    with nsq.Wire(server.other_port) as consumer:
        consumer.subscribe(topic, "channel", rdy=1)
        send_batch(wire, b"a", b"b", b"c", how=how)
        for body in (b"a", b"b", b"c"):
            message = consumer.message()
            assert message.body == body and consumer.is_quiet()
            consumer.fin(message)
        assert consumer.is_quiet()


def test_each_message_of_a_batch_is_requeued_and_finished_by_itself(
    server: PulsarServer, wire: Wire, topic: str
) -> None:
    wire.producer(topic)
    with nsq.Wire(server.other_port) as consumer:
        consumer.subscribe(topic, "channel", rdy=10)
        send_batch(wire, b"a", b"b", b"c")
        a, b, c = consumer.messages(3)
        consumer.fin(a)
        consumer.req(b)
        again = consumer.message()
        assert (again.id, again.body, again.attempts) == (b.id, b"b", 2)
        consumer.req(again, 200)
        consumer.fin(c)
        assert consumer.is_not_in_flight(c)
        third = consumer.message()
        assert (third.id, third.body, third.attempts) == (b.id, b"b", 3)
        consumer.fin(third)
        assert consumer.is_quiet()


def test_what_a_consumer_leaves_of_a_batch_the_next_one_gets(server: PulsarServer, wire: Wire, topic: str) -> None:
    wire.producer(topic)
    with nsq.Wire(server.other_port) as consumer:
        consumer.subscribe(topic, "channel", rdy=3)
        send_batch(wire, b"a", b"b", b"c", b"d")
        first = consumer.messages(3)
        consumer.fin(first[1])
        assert consumer.message().body == b"d"
    with nsq.Wire(server.other_port) as consumer:
        consumer.subscribe(topic, "channel", rdy=10)
        assert sorted(bodies(consumer.messages(3))) == [b"a", b"c", b"d"]


def test_many_large_batches_pass_through_a_window(server: PulsarServer, wire: Wire, topic: str) -> None:
    """More than a consumer may have on its way at once, of which each is counted once."""
    wire.producer(topic)
    with nsq.Wire(server.other_port) as consumer:
        consumer.subscribe(topic, "channel", rdy=7)
        for i in range(8):
            send_batch(wire, *(b"%d-%d" % (i, n) + b"x" * 40_000 for n in range(20)), sequence=i)
        for i in range(8 * 20):
            message = consumer.message()
            assert message.body.rstrip(b"x") == b"%d-%d" % divmod(i, 20)
            consumer.fin(message)
        assert consumer.is_quiet()


def test_a_pulsar_consumer_of_the_same_subscription_gets_what_is_left_of_a_batch(
    server: PulsarServer, wire: Wire, topic: str
) -> None:
    wire.producer(topic)
    with nsq.Wire(server.other_port) as consumer:
        consumer.subscribe(topic, "both", rdy=2)
        send_batch(wire, b"a", b"b", b"c")
        a, b = consumer.messages(2)
        consumer.rdy(0)
        consumer.fin(b)
        assert consumer.is_not_in_flight(b)
        wire.subscribe(topic, "both", kind=1)
        wire.flow(10)
        frame = wire.message()
        assert payload_of(frame) == batch_of(b"a", b"b", b"c") and list(frame.body.ack_set) == [0b100]
        consumer.req(a)
        second = wire.message()
        assert list(second.body.ack_set) == [0b001] and second.body.redelivery_count == 1
    id = frame.body.message_id
    wire.ack({"ledgerId": id.ledgerId, "entryId": id.entryId, "ack_set": [0b011]})
    wire.ack({"ledgerId": id.ledgerId, "entryId": id.entryId})
    with nsq.Wire(server.other_port) as consumer:
        wire.ask("close_consumer", consumer_id=1)
        consumer.subscribe(topic, "both", rdy=10)
        assert consumer.is_quiet()


@pytest.mark.parametrize(
    ("fields", "payload"),
    [
        ({"num_messages_in_batch": 3}, batch_of(b"a", b"b")),
        ({"num_messages_in_batch": 2}, batch_of(b"a", b"b") + b"x"),
        ({"num_messages_in_batch": 2}, struct.pack(">I", 1 << 31) + b"x" * 20),
        ({"num_messages_in_batch": MOST + 1}, batch_of(*[b"a"] * (MOST + 1))),
        ({"num_messages_in_batch": 2, "uuid": "u", "num_chunks_from_msg": 2, "chunk_id": 0}, batch_of(b"a", b"b")),
        ({"compression": 3, "uncompressed_size": 100 << 20}, bytes(cramjam.zstd.compress(b"\0" * (100 << 20)))),
        ({"compression": 3, "uncompressed_size": 1000}, bytes(cramjam.zstd.compress(b"\0" * (100 << 20)))),
        ({"compression": 1, "uncompressed_size": 1000}, b"no lz4"),
        ({"compression": 1}, b"no lz4"),
        ({"compression": 2}, zlib.compress(b"not empty")),
        ({"compression": 3}, bytes(cramjam.zstd.compress(b"not empty"))),
        ({"compression": 4}, bytes(cramjam.snappy.compress_raw(b"not empty"))),
        ({"num_messages_in_batch": 1, "compression": 2}, zlib.compress(b"")),
        ({"compression": 77, "uncompressed_size": 1000}, b"unknown"),
    ],
)
def test_what_is_not_what_it_says_is_given_as_it_is(
    server: PulsarServer, wire: Wire, topic: str, fields: dict[str, object], payload: bytes
) -> None:
    wire.producer(topic)
    with nsq.Wire(server.other_port) as consumer:
        consumer.subscribe(topic, "channel", rdy=10)
        wire.raw(send_frame(1, 0, entry_of(metadata(**fields), payload)))
        message = consumer.message()
        assert message.body == payload
        consumer.fin(message)
        wire.send(b"next", sequence=1)
        assert consumer.message().body == b"next"


def test_what_is_left_of_a_batch_outlives_a_crash(tmp_path: Path) -> None:
    with running(data_dir=tmp_path) as server, Wire(server.port) as wire, nsq.Wire(server.other_port) as consumer:
        wire.connect().producer("t")
        consumer.subscribe("t", "channel", rdy=100)
        send_batch(wire, *(b"%d" % i for i in range(70)))
        for message in consumer.messages(70):
            if int(message.body) % 7:
                consumer.fin(message)
        consumer.is_not_in_flight(message)  # all of that is done
        os.kill(server.pid_of("mq-worker-0"), signal.SIGKILL)
        got = consumer.messages(10)
        assert [int(message.body) for message in got] == list(range(0, 70, 7))
        assert consumer.is_quiet()
        with Wire(server.port) as again:  # its ids are nobody else's
            again.connect().producer("t")
            send_batch(again, b"x", b"y", sequence=1)
        more = consumer.messages(2)
        assert len({message.id for message in [*got, *more]}) == 12


def signed(left: int) -> list[int]:
    """An ack set, as clients send it: words that are signed."""
    words = (left.bit_length() + 63) // 64
    return list(struct.unpack(f"<{words}q", left.to_bytes(8 * words, "little")))


def test_what_is_left_of_a_very_large_batch_outlives_a_crash(tmp_path: Path) -> None:
    """Of each of two of Pulsar's subscriptions, one of which acknowledges cumulatively, and of an NSQ channel."""
    count, done = 5000, (0, 63, 64, 1023, 1024, 4000, 4999)
    left = (1 << count) - 1
    for part in done:
        left &= ~(1 << part)
    with running(data_dir=tmp_path) as server, nsq.Wire(server.other_port) as consumer:
        consumer.subscribe("t", "channel", rdy=2500)
        with Wire(server.port) as wire:
            wire.connect().producer("t")
            wire.subscribe("t", "one by one", kind=1)
            wire.subscribe("t", "upto", consumer=2)
            send_batch(wire, *(b"%d" % i for i in range(count)))
            for one in (1, 2):
                wire.flow(count, consumer=one)
                place = wire.message(consumer=one).body.message_id
            ids = {"ledgerId": place.ledgerId, "entryId": place.entryId}
            for part in done:
                wire.ack({**ids, "ack_set": signed((1 << count) - 1 & ~(1 << part))})
            wire.ack({**ids, "ack_set": signed(left >> 3000 << 3000)}, consumer=2, cumulative=True)
        got = consumer.messages(2500)
        consumer.send(b"RDY 0\n")
        for message in got:
            if int(message.body) % 8:
                consumer.fin(message)
        assert consumer.is_not_in_flight(message)  # all of that is done
        os.kill(server.pid_of("mq-worker-0"), signal.SIGKILL)
        with Wire(server.port) as wire:
            wire.connect().subscribe("t", "one by one", kind=1)
            wire.subscribe("t", "upto", consumer=2)
            for one, bits in ((1, left), (2, left >> 3000 << 3000)):
                wire.flow(1, consumer=one)
                frame = wire.message(consumer=one)
                assert list(frame.body.ack_set) == signed(bits)
                assert payload_of(frame) == batch_of(*(b"%d" % i for i in range(count)))
            wire.ack({**ids, "ack_set": signed(1 << 4998)})
            wire.ack({**ids, "ack_set": signed(((1 << count) - 1) & ~(1 << 4998))})
            wire.ack(ids, consumer=2)
            wire.producer("t")
            wire.send(b"behind it", sequence=1)
            for one in (1, 2):
                wire.flow(5000, consumer=one)
                assert payload_of(wire.message(consumer=one)) == b"behind it"
        consumer.send(b"RDY 2500\n")
        came = [message.body for message in consumer.messages(315)]
        came.remove(b"behind it")  # takes turns with what comes again
        assert came == [b"%d" % part for part in (*range(0, 2500, 8), 2500)]
