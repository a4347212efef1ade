"""PRODUCER, SEND and CLOSE_PRODUCER on the raw wire. What must hold was seen of a real broker 4.0."""

from __future__ import annotations

import itertools
import select
from pathlib import Path
from typing import Any

import pytest
from mq_shards.acceptor.protocols.pulsar.messages import encode

from tests.pulsar.servers import PulsarServer, running, stopped
from tests.pulsar.wire import MAX, Wire, batch_of, entry_of, metadata, payload_of, send_frame

SHARED, EXCLUSIVE, WAIT, FENCING = range(4)
SHARED_TYPE = 1  # of a subscription
BUSY, FENCED, CHECKSUM, PERSISTENCE, NOT_READY = 16, 25, 9, 2, 6


def test_a_producer_is_given_a_name_or_keeps_its_own(wire: Wire, topic: str) -> None:
    made = wire.producer(topic)
    assert made.producer_name and made.producer_ready and made.last_sequence_id == -1
    assert made.HasField("schema_version") and not made.HasField("topic_epoch")
    assert wire.producer(topic, producer=2, producer_name="mine").producer_name == "mine"
    # An id that is in use: the producer that there is.
    assert wire.producer(topic, producer=2, producer_name="other").producer_name == "mine"


def test_a_name_that_is_given_leaves_room_for_a_message_of_the_limit_less_32_bytes(wire: Wire, topic: str) -> None:
    """So much is what the client in C++ calls the usual size of metadata."""
    name = wire.producer(topic).producer_name
    assert len(metadata(producer_name=name, sequence_id=127, publish_time=1 << 41)) <= 32


def test_receipts_come_in_the_order_of_each_producers_messages(wire: Wire, topic: str) -> None:
    topics = 8
    for producer in range(topics):
        wire.producer(f"{topic}-{producer}", producer=producer)
    for sequence in range(100):
        for producer in range(topics):
            wire.send(b"m", producer, sequence)
    heard: dict[int, list[tuple[int, int]]] = {producer: [] for producer in range(topics)}
    for _ in range(100 * topics):
        receipt = wire.expect("send_receipt")
        heard[receipt.producer_id].append((receipt.sequence_id, receipt.message_id.entryId))
    assert all(each == [(i, i) for i in range(100)] for each in heard.values())


def test_a_receipt_has_the_highest_sequence_id_of_a_batch_that_has_one_and_else_minus_one(
    wire: Wire, topic: str
) -> None:
    wire.producer(topic)
    for said, heard in ((None, MAX), (9, 9), (5, 5), (3, MAX)):
        more = {} if said is None else {"highest_sequence_id": said}
        wire.raw(send_frame(1, 5, entry_of(metadata(sequence_id=5), b"m"), **more))
        assert wire.expect("send_receipt").highest_sequence_id == heard


def test_a_receipt_has_no_partition_and_a_message_has_its_own(wire: Wire, topic: str) -> None:
    for name, partition in ((topic, -1), (f"{topic}-partition-7", 7)):
        wire.producer(name, producer=partition + 1)
        wire.subscribe(name, consumer=partition + 1)
        wire.flow(1, consumer=partition + 1)
        wire.send(b"m", partition + 1)
        assert not wire.expect("send_receipt").message_id.HasField("partition")
        assert wire.message(partition + 1).body.message_id.partition == partition


def test_more_than_may_be_under_way_wait_and_none_is_lost(wire: Wire, topic: str) -> None:
    wire.producer(topic)
    entry = entry_of(metadata(), b"m")
    wire.raw(b"".join(send_frame(1, sequence, entry) for sequence in range(3000)))
    assert [wire.expect("send_receipt").sequence_id for _ in range(3000)] == list(range(3000))


def fill(wire: Wire, frame: bytes, most_bytes: int) -> int:
    """Sends the frame again and again, until nobody takes any more for a while. Returns how many bytes were taken."""
    sent = 0
    wire.socket.setblocking(False)
    while sent < most_bytes and select.select([], [wire.socket], [], 0.3)[1]:
        sent += wire.socket.send(frame[sent % len(frame) :])
    wire.socket.settimeout(60)
    return sent


def own_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def test_what_more_is_asked_than_can_be_waits_and_is_not_refused() -> None:
    """256 questions of a connection may be under way; the answers of one worker wait behind those of the other."""
    count = 300
    with running(workers=2, shards=2) as server, Wire(server.port) as wire:
        wire.connect()
        for topic in range(8):
            wire.producer(f"t{topic}", topic)
        with stopped(server.pid_of("mq-worker-0")):
            for topic in range(8):
                wire.say("subscribe", request_id=100 + topic, topic=f"t{topic}", subscription="s", subType=SHARED_TYPE,
                         consumer_id=topic)  # fmt: skip
            served = wire.expect("success").request_id - 100
            for consumer in range(100, 100 + count):
                wire.say("subscribe", request_id=1000 + consumer, topic=f"t{served}", subscription="s",
                         subType=SHARED_TYPE, consumer_id=consumer)  # fmt: skip
            # With its other question each takes two.
            for consumer in range(100, 220):
                wire.until(lambda frame, n=consumer: getattr(frame.body, "request_id", 0) == 1000 + n)
        for consumer in range(220, 100 + count):
            frame = wire.until(lambda frame, n=consumer: getattr(frame.body, "request_id", 0) == 1000 + n)
            assert frame.name == "success"
        for consumer in range(100, 100 + count):
            wire.ask("close_consumer", consumer_id=consumer)
        wire.ask("unsubscribe", consumer_id=served)  # nobody of those that were closed is left


def test_what_a_full_ring_has_no_room_for_waits_where_it_came_from() -> None:
    """It takes no memory of the acceptor. But who has to do with two workers is not kept from one by the other."""
    frame = send_frame(0, 0, entry_of(metadata(), bytes(100_000)))
    with running(workers=2, shards=2) as server, Wire(server.port) as both, Wire(server.port) as alone:
        both.connect()
        for producer in range(8):
            both.producer(f"t{producer}", producer)
        worker, acceptor = server.pid_of("mq-worker-0"), server.pid_of("mq-acceptor-0")
        with stopped(worker):
            for producer in range(8):
                both.send(b"m", producer)
            served = both.expect("send_receipt").producer_id
            both.quiet()
            others = {frame.body.producer_id for frame in both.pending("send_receipt")} | {served}
        slow = min(set(range(8)) - others)
        alone.connect().producer(f"t{slow}", 0)
        with stopped(worker):
            before = own_bytes(acceptor)
            sent = fill(alone, frame, 16 << 20)
            assert sent > 4 << 20 and own_bytes(acceptor) - before < 2 << 20
            for sequence in range(20):
                both.raw(send_frame(slow, sequence, entry_of(metadata(), bytes(100_000))))
            both.send(b"m", served, sequence=1)
            both.until(lambda one: one.name == "send_receipt" and one.body.sequence_id == 1)
        alone.raw(frame[sent % len(frame) :])
        for _ in range(sent // len(frame) + 1):
            alone.expect("send_receipt")


def test_a_wrong_checksum_is_told_and_nothing_is_stored(wire: Wire, topic: str) -> None:
    wire.producer(topic)
    wire.raw(send_frame(1, 5, entry_of(metadata(), b"m", checksum=1)))
    error = wire.expect("send_error")
    assert (error.producer_id, error.sequence_id, error.error) == (1, 5, CHECKSUM)
    wire.send(b"next", sequence=5)
    assert wire.expect("send_receipt").message_id.entryId == 0


def test_an_entry_comes_back_byte_for_byte(wire: Wire, topic: str) -> None:
    head = metadata(properties=[{"key": "a", "value": "b"}], partition_key="k", event_time=5)
    entries = [
        entry_of(head, b"payload"),
        entry_of(head, b""),
        entry_of(metadata(num_messages_in_batch=3), batch_of(b"1", b"2", b"3")),
        entry_of(head, b"without magic")[6:],
        entry_of(metadata(uuid="x" * 100_000), b"metadata longer than headers may be"),
        entry_of(head, b"z" * (5 << 20)),
    ]
    wire.producer(topic)
    wire.subscribe(topic)
    wire.flow(1000)
    for sequence, entry in enumerate(entries):
        wire.raw(send_frame(1, sequence, entry))
    assert [frame.entry for frame in wire.messages(len(entries))] == entries


def test_a_frame_of_the_largest_size_is_stored_and_one_more_ends_the_connection(wire: Wire, topic: str) -> None:
    wire.producer(topic)
    room = (5 << 20) + (10 << 10)
    overhead = len(send_frame(1, 0, entry_of(metadata(), b""))) - 4
    wire.send(b"x" * (room - overhead))
    assert wire.expect("send_receipt").message_id.entryId == 0
    wire.raw(send_frame(1, 0, entry_of(metadata(), b"x" * (room - overhead + 1)))[:64])
    assert wire.is_closed()


def test_what_is_no_metadata_is_stored_and_seen_by_nobody(wire: Wire, topic: str) -> None:
    wire.producer(topic)
    wire.subscribe(topic)
    wire.flow(1)
    wire.raw(send_frame(1, 0, entry_of(b"\xff\xff\xff", b"m")))
    wire.raw(send_frame(1, 1, b"\x00\x00\xff\xff"))
    wire.send(b"seen", sequence=2)
    assert [wire.expect("send_receipt").message_id.entryId for _ in range(3)] == [0, 1, 2]
    frame = wire.message()
    assert (payload_of(frame), frame.body.message_id.entryId) == (b"seen", 2)


def test_a_producer_is_closed_behind_its_receipts(wire: Wire, topic: str) -> None:
    wire.producer(topic)
    for sequence in range(100):
        wire.send(b"m", sequence=sequence)
    wire.ask("close_producer", producer_id=1)
    assert len(wire.pending("send_receipt")) == 100
    wire.ask("close_producer", producer_id=1)
    wire.send(b"m")
    assert wire.is_closed()


def test_a_producer_that_is_closed_before_it_is_there_is_not_made(wire: Wire, topic: str) -> None:
    """As at a real broker its PRODUCER is not answered then; the name and the id are free."""
    names = {"topic": topic, "producer_name": "n"}
    wire.raw(
        encode("producer", request_id=901, producer_id=8, **names)
        + encode("close_producer", request_id=902, producer_id=8)
        + encode("producer", request_id=903, producer_id=8, **names)
    )
    answers = [wire.until(lambda frame: hasattr(frame.body, "request_id")) for _ in range(2)]
    assert [(one.name, one.body.request_id) for one in answers] == [("success", 902), ("producer_success", 903)]
    wire.ask("close_producer", producer_id=8)
    wire.producer(topic, producer=9, producer_name="n")
    assert not wire.frames


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_each_is_answered_that_does_not_make_what_is_being_made(wire: Wire, topic: str, kind: str) -> None:
    """Only the one that a CLOSE calls off is not, as at a real broker."""
    names: dict[str, Any] = {"topic": topic, f"{kind}_id": 8}
    what, made = "producer", "producer_success"
    if kind == "consumer":
        what, made = "subscribe", "success"
        names |= {"subscription": "s", "subType": SHARED_TYPE}
    wire.raw(
        b"".join(encode(what, request_id=900 + n, **names) for n in range(3))
        + encode(f"close_{kind}", request_id=903, **{f"{kind}_id": 8})
        + encode(what, request_id=904, **names)
    )
    answers = [wire.until(lambda frame: hasattr(frame.body, "request_id")) for _ in range(4)]
    expected = [("error", 901), ("error", 902), ("success", 903), (made, 904)]
    assert [(one.name, one.body.request_id) for one in answers] == expected
    assert {one.body.error for one in answers[:2]} == {NOT_READY}


def test_a_name_is_one_producers_as_long_as_its_connection_lives(server: PulsarServer, topic: str) -> None:
    with Wire(server.port) as first, Wire(server.port) as second:
        first.connect().producer(topic, producer_name="n")
        second.connect()
        second.requests = 1
        second.say("producer", request_id=1, topic=topic, producer_id=1, producer_name="n")
        first.expect("ping")
        first.say("pong")
        assert second.expect("error").error == BUSY
        first.ask("close_producer", producer_id=1)
        assert second.producer(topic, producer_name="n").producer_name == "n"


def test_a_second_producer_of_a_name_on_one_connection_is_refused(wire: Wire, topic: str) -> None:
    wire.producer(topic, producer_name="n")
    assert wire.ask("producer", "error", topic=topic, producer_id=2, producer_name="n").error == BUSY


def test_an_exclusive_producer_is_alone(wire: Wire, topic: str) -> None:
    made = wire.producer(topic, producer_access_mode=EXCLUSIVE)
    assert made.topic_epoch == 0 and made.HasField("topic_epoch")
    assert wire.ask("producer", "error", topic=topic, producer_id=2).error == BUSY
    assert wire.ask("producer", "error", topic=topic, producer_id=2, producer_access_mode=EXCLUSIVE).error == FENCED
    wire.ask("close_producer", producer_id=1)
    assert wire.producer(topic, producer=2, producer_access_mode=EXCLUSIVE).topic_epoch == 1
    wire.ask("close_producer", producer_id=2)
    wire.producer(topic, producer=3)
    assert wire.ask("producer", "error", topic=topic, producer_id=4, producer_access_mode=EXCLUSIVE).error == FENCED


def test_who_waits_to_be_exclusive_is_told_twice(wire: Wire, topic: str) -> None:
    wire.producer(topic, producer_access_mode=EXCLUSIVE)
    wire.requests += 1
    waits = wire.requests
    wire.say("producer", request_id=waits, topic=topic, producer_id=2, producer_access_mode=WAIT)
    waiting = wire.expect("producer_success")
    assert (waiting.request_id, waiting.producer_ready) == (waits, False)
    wire.ask("close_producer", producer_id=1)
    ready = wire.expect("producer_success")
    assert (ready.request_id, ready.producer_ready, ready.topic_epoch) == (waits, True, 1)


def test_who_fences_throws_the_others_out(server: PulsarServer, topic: str) -> None:
    with Wire(server.port) as first, Wire(server.port) as second:
        first.connect().producer(topic)
        second.connect().producer(topic, producer_access_mode=FENCING)
        first.send(b"m")
        assert first.is_closed()
        second.send(b"m")
        second.expect("send_receipt")


def test_a_producer_that_ends_publishes_nothing_more(topic: str) -> None:
    """By its client or fenced off, it ends only with the receipts of what it sent before."""
    with running() as server, Wire(server.port) as wire:
        wire.connect().producer(topic)
        with stopped(server.pid_of("mq-worker-0")):
            wire.send(b"before", sequence=1)
            wire.say("close_producer", request_id=77, producer_id=1)
            wire.ask("lookupTopic", "lookupTopicResponse", topic="no://name")  # Python has seen all before
            wire.send(b"behind", sequence=2)
            error = wire.expect("send_error")
        assert (error.sequence_id, error.error, error.message) == (2, PERSISTENCE, "Producer is closed")
        assert wire.expect("send_receipt").sequence_id == 1
        assert wire.expect("success").request_id == 77
        wire.subscribe(topic, initialPosition=1)
        wire.flow(10)
        assert [payload_of(frame) for frame in wire.messages(1)] == [b"before"]
        wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1)
        assert not wire.frames


def test_what_comes_behind_a_close_in_one_packet_is_not_stored(server: PulsarServer, topic: str) -> None:
    """A real broker has ended the producer by then, and closes the connection of who sends for it."""
    with Wire(server.port) as wire, Wire(server.port) as other:
        wire.connect().producer(topic)
        close = encode("close_producer", request_id=77, producer_id=1)
        wire.raw(close + send_frame(1, 1, entry_of(metadata(), b"behind")))
        assert wire.is_closed()
        other.connect().subscribe(topic, initialPosition=1)
        other.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1)
        other.producer(topic)
        other.send(b"next")
        assert other.expect("send_receipt").message_id.entryId == 0


def test_a_producer_comes_back_with_a_higher_epoch_and_takes_no_other_ones_name(wire: Wire, topic: str) -> None:
    wire.producer(topic, producer_name="n", epoch=0)
    wire.ask("producer", "error", topic=topic, producer_id=2, producer_name="n", epoch=1)
    wire.ask("close_producer", producer_id=1)
    assert wire.producer(topic, producer=1, producer_name="n", epoch=1).producer_name == "n"


def test_what_was_sent_stays_in_order_for_a_consumer(wire: Wire, topic: str) -> None:
    wire.producer(topic)
    wire.subscribe(topic)
    wire.flow(500)
    for sequence in range(500):
        wire.send(str(sequence).encode(), sequence=sequence)
    frames = wire.messages(500)
    assert [payload_of(frame) for frame in frames] == [str(i).encode() for i in range(500)]
    places = [(frame.body.message_id.ledgerId, frame.body.message_id.entryId) for frame in frames]
    assert all(a < b for a, b in itertools.pairwise(places)) and frames[0].body.message_id.partition == -1


@pytest.mark.parametrize("mode", [SHARED, EXCLUSIVE])
def test_what_had_no_receipt_when_its_connection_ended_is_let_go(server: PulsarServer, topic: str, mode: int) -> None:
    with Wire(server.port) as first:
        first.connect().producer(topic, producer_name="n", producer_access_mode=mode)
        first.send(b"m")
    with Wire(server.port) as second:
        second.connect().producer(topic, producer_name="n", producer_access_mode=mode)


def test_a_producer_brings_a_subscription_along(wire: Wire, topic: str) -> None:
    wire.producer(topic)
    wire.send(b"before")
    wire.expect("send_receipt")
    for producer in (2, 3):  # one that is there stays where it is
        wire.producer(topic, producer=producer, initial_subscription_name="kept")
        wire.send(b"behind", producer=producer)
        wire.expect("send_receipt")
    wire.subscribe(topic, "kept", kind=1)
    wire.flow(10)
    assert [payload_of(frame) for frame in wire.messages(3)] == [b"before", b"behind", b"behind"]


def test_an_id_in_use_is_answered_with_its_name_alone(wire: Wire, topic: str) -> None:
    """As a real broker answers it: the topic's epoch and the last sequence id are told once."""
    assert wire.producer(topic, producer_name="p", producer_access_mode=1).HasField("topic_epoch")
    again = wire.producer(topic, producer_name="q", producer_access_mode=1)
    assert (again.producer_name, again.last_sequence_id, again.HasField("topic_epoch")) == ("p", -1, False)
