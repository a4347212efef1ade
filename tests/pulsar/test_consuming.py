"""What consumers are sent: FLOW, ACK, REDELIVER on the raw wire. What must hold was seen of a real broker 4.0."""

from __future__ import annotations

import pytest
from mq_shards.acceptor.protocols.pulsar.keys import murmur3

from tests.pulsar.consuming import (
    EARLIEST,
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    entries,
    place,
    publish,
    publish_batches,
)
from tests.pulsar.wire import MAX, Wire, entry_of, metadata, payload_of, send_frame

# --- permits ----------------------------------------------------------------------------------------------------------


def test_as_many_come_as_there_are_permits(wire: Wire, topic: str) -> None:
    publish(wire, topic, 10)
    wire.subscribe(topic, initialPosition=EARLIEST)
    wire.flow(3)
    assert entries(wire.messages(3)) == [0, 1, 2]
    wire.quiet()
    assert not wire.pending("message")
    wire.flow(2)
    wire.flow(1)
    assert entries(wire.messages(3)) == [3, 4, 5]
    # Acknowledging gives none back.
    wire.ack({"ledgerId": 1, "entryId": 0})
    wire.quiet()
    assert not wire.pending("message")


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, FAILOVER])
def test_permits_count_messages_of_batches(wire: Wire, topic: str, kind: int) -> None:
    publish_batches(wire, topic, 5, 10)
    wire.subscribe(topic, kind=kind, initialPosition=EARLIEST)
    wire.flow(1)
    wire.message()  # 10 of 1: 9 less than none
    wire.flow(9)
    wire.quiet()
    assert not wire.pending("message")
    wire.flow(1)
    wire.message()


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, KEY_SHARED])
def test_where_the_order_counts_permits_read_as_many_batches(wire: Wire, topic: str, kind: int) -> None:
    publish_batches(wire, topic, 6, 3)
    wire.subscribe(topic, kind=kind, initialPosition=EARLIEST)
    wire.flow(3)
    assert entries(wire.messages(3)) == [0, 1, 2]  # 9 of 3: 6 less than none
    wire.flow(6)
    wire.quiet()
    assert not wire.pending("message")
    wire.flow(7)
    assert entries(wire.messages(3)) == [3, 4, 5]  # 9 of 7
    # Nothing more was there, so that read is over.
    publish_batches(wire, topic, 1, 3, producer=101)
    wire.quiet()
    assert not wire.pending("message")
    wire.flow(3)
    assert entries(wire.messages(1)) == [6]


def test_where_consumers_take_turns_permits_are_counted_before_each_batch(wire: Wire, topic: str) -> None:
    publish_batches(wire, topic, 3, 3)
    wire.subscribe(topic, kind=SHARED, initialPosition=EARLIEST)
    for entry in range(3):
        wire.flow(3)
        assert entries(wire.messages(1)) == [entry]
        wire.quiet()
        assert not wire.pending("message")


def test_no_permit_takes_a_message_of_what_is_finished_in_part(wire: Wire, topic: str) -> None:
    publish_batches(wire, topic, 1, 10)
    wire.subscribe(topic, kind=SHARED, initialPosition=EARLIEST)
    wire.flow(10)
    frame = wire.message()
    wire.ack(place(frame, ack_set=[0b1111100000]))
    wire.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[place(frame)])
    wire.flow(6)
    again = wire.message()
    assert list(again.body.ack_set) == [0b1111100000] and again.body.redelivery_count == 1
    publish(wire, topic, 1, producer=101)
    assert wire.message().body.message_id.entryId == 1  # 6 - 5 was left


# --- ACK --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
def test_what_is_acknowledged_does_not_come_again(wire: Wire, topic: str, kind: int) -> None:
    publish(wire, topic, 6)
    wire.subscribe(topic, kind=kind, initialPosition=EARLIEST)
    wire.flow(100)
    frames = wire.messages(6)
    wire.ack(place(frames[1]), place(frames[4]))
    wire.ask("close_consumer", consumer_id=1)
    wire.subscribe(topic, kind=kind)
    wire.flow(100)
    assert entries(wire.messages(4)) == [0, 2, 3, 5]


def test_a_cumulative_acknowledgement_is_of_all_before_it(wire: Wire, topic: str) -> None:
    publish(wire, topic, 6)
    wire.subscribe(topic, initialPosition=EARLIEST)
    wire.flow(100)
    frames = wire.messages(6)
    wire.ack(place(frames[3]), cumulative=True)
    wire.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[])
    wire.flow(100)
    assert entries(wire.messages(2)) == [4, 5]


def test_a_cumulative_acknowledgement_within_a_batch_leaves_its_rest(wire: Wire, topic: str) -> None:
    publish_batches(wire, topic, 3, 4)
    wire.subscribe(topic, initialPosition=EARLIEST)
    wire.flow(100)
    frames = wire.messages(3)
    wire.ack(place(frames[1], ack_set=[0b1100]), cumulative=True)
    wire.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[])
    wire.flow(100)
    again = wire.messages(2)
    assert entries(again) == [1, 2] and list(again[0].body.ack_set) == [0b1100]


def test_what_is_before_the_first_entry_acknowledges_nothing(wire: Wire, topic: str) -> None:
    """So do clients that acknowledge no parts, such as Python's by default, name what is before a batch."""
    publish(wire, topic, 2)
    wire.subscribe(topic, initialPosition=EARLIEST)
    wire.flow(100)
    ledger = wire.messages(2)[0].body.message_id.ledgerId
    for cumulative in (True, False):
        wire.ack({"ledgerId": ledger, "entryId": MAX}, cumulative=cumulative)
    wire.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[])
    wire.flow(100)
    assert entries(wire.messages(2)) == [0, 1]


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
def test_a_cumulative_acknowledgement_of_an_entry_that_was_not_delivered_is_of_all_before_it(
    wire: Wire, topic: str, kind: int
) -> None:
    publish(wire, topic, 6)
    wire.subscribe(topic, kind=kind, initialPosition=EARLIEST)
    wire.flow(2)
    ledger = wire.messages(2)[0].body.message_id.ledgerId
    assert not wire.ack({"ledgerId": ledger, "entryId": 3}, cumulative=True).HasField("error")
    wire.flow(1)
    assert entries(wire.messages(1)) == [4]
    wire.ask("close_consumer", consumer_id=1)
    wire.subscribe(topic, kind=kind)
    wire.ack({"ledgerId": ledger, "entryId": 4}, cumulative=True)
    wire.flow(100)
    assert entries(wire.messages(1)) == [5]
    wire.send(b"later", 100, 6)
    assert entries(wire.messages(1)) == [6]


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
def test_a_cumulative_acknowledgement_of_an_entry_that_is_not_there_yet_is_ignored(
    wire: Wire, topic: str, kind: int
) -> None:
    publish(wire, topic, 2)
    wire.subscribe(topic, kind=kind, initialPosition=EARLIEST)
    wire.flow(100)
    ledger = wire.messages(2)[0].body.message_id.ledgerId
    for beyond in ({"ledgerId": ledger, "entryId": 2}, {"ledgerId": ledger + 1, "entryId": 0}):
        assert not wire.ack(beyond, cumulative=True).HasField("error")
    wire.send(b"later", 100, 2)
    wire.message()
    wire.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[])
    wire.flow(100)
    assert entries(wire.messages(3)) == [0, 1, 2], "also when there is such an entry"


def test_a_cumulative_acknowledgement_of_a_shared_subscription_is_answered_and_ignored(wire: Wire, topic: str) -> None:
    publish(wire, topic, 3)
    wire.subscribe(topic, kind=SHARED, initialPosition=EARLIEST)
    wire.flow(100)
    frames = wire.messages(3)
    wire.ack(place(frames[2]), cumulative=True)
    wire.ask("close_consumer", consumer_id=1)
    wire.subscribe(topic, kind=SHARED)
    wire.flow(100)
    assert entries(wire.messages(3)) == [0, 1, 2]


def test_sets_of_a_batch_are_put_together_until_nothing_is_left(wire: Wire, topic: str) -> None:
    publish_batches(wire, topic, 1, 4)
    wire.subscribe(topic, kind=SHARED, initialPosition=EARLIEST)
    wire.flow(100)
    frame = wire.message()
    wire.ack(place(frame, ack_set=[0b0111]))
    wire.ack(place(frame, ack_set=[0b1101]))
    wire.ask("close_consumer", consumer_id=1)
    wire.subscribe(topic, kind=SHARED)
    wire.flow(100)
    frame = wire.message()
    assert list(frame.body.ack_set) == [0b0101] and frame.body.redelivery_count == 0
    wire.ack(place(frame, ack_set=[0b1010]))
    wire.ask("close_consumer", consumer_id=1)
    wire.subscribe(topic, kind=SHARED)
    wire.flow(100)
    wire.quiet()
    assert not wire.pending("message")


def test_any_consumer_of_the_subscription_may_acknowledge_and_any_number_of_times(wire: Wire, topic: str) -> None:
    wire.subscribe(topic, kind=SHARED, consumer=1)
    wire.subscribe(topic, kind=SHARED, consumer=2)
    wire.flow(100, consumer=1)
    publish(wire, topic, 2)
    frames = wire.messages(2)
    for _ in range(2):
        wire.ack(*map(place, frames), {"ledgerId": 1, "entryId": 5}, {"ledgerId": MAX, "entryId": MAX}, consumer=2)
    wire.ask("close_consumer", consumer_id=1)
    wire.flow(100, consumer=2)
    wire.quiet()
    assert not wire.pending("message")


# --- REDELIVER --------------------------------------------------------------------------------------------------------


def test_what_a_shared_consumer_asks_for_comes_again_and_is_counted(wire: Wire, topic: str) -> None:
    publish(wire, topic, 3)
    wire.subscribe(topic, kind=SHARED, initialPosition=EARLIEST)
    wire.flow(100)
    frames = wire.messages(3)
    assert not any(frame.body.HasField("redelivery_count") for frame in frames)
    wire.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[place(frames[1])])
    again = wire.message()
    assert (again.body.message_id.entryId, again.body.redelivery_count) == (1, 1)
    wire.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[])
    counts = {frame.body.message_id.entryId: frame.body.redelivery_count for frame in wire.messages(3)}
    assert counts == {0: 1, 1: 2, 2: 1}


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_messages_come_again_in_the_order_in_which_they_were_published(wire: Wire, topic: str, kind: int) -> None:
    """The client in Go names those that it refuses in any order."""
    publish(wire, topic, 3000)
    wire.subscribe(topic, kind=kind, initialPosition=EARLIEST)
    wire.flow(3000)
    frames = wire.messages(3000)
    some = [frames[at] for at in (7, 2, 9, 0, 4)]
    for refused in (some, frames[3000:1000:-1]):
        places = [place(frame) for frame in refused]
        wire.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=places)
        wire.flow(len(refused))
        assert entries(wire.messages(len(refused))) == sorted(entries(refused))


def test_an_exclusive_consumer_is_set_back_with_its_new_epoch_and_without_counts(wire: Wire, topic: str) -> None:
    publish(wire, topic, 3)
    wire.subscribe(topic, initialPosition=EARLIEST, consumer_epoch=0)
    wire.flow(100)
    frames = wire.messages(3)
    assert [frame.body.consumer_epoch for frame in frames] == [0, 0, 0]
    wire.ack(place(frames[1]))
    wire.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[place(frames[2])], consumer_epoch=4)
    again = wire.messages(2)
    assert [(f.body.message_id.entryId, f.body.consumer_epoch, f.body.redelivery_count) for f in again] == [
        (0, 4, 0), (2, 4, 0),
    ]  # fmt: skip


def test_messages_of_a_shared_consumer_are_of_no_epoch(wire: Wire, topic: str) -> None:
    publish(wire, topic, 1)
    wire.subscribe(topic, kind=1, initialPosition=EARLIEST)
    wire.flow(100)
    wire.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[place(wire.message())], consumer_epoch=4)
    again = wire.message().body
    assert again.redelivery_count == 1 and not again.HasField("consumer_epoch")


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_the_last_message_id_is_that_of_the_end(wire: Wire, topic: str) -> None:
    wire.subscribe(topic)
    last = wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1)
    assert (last.last_message_id.ledgerId, last.last_message_id.entryId) == (MAX, MAX)
    publish(wire, topic, 2)
    last = wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1)
    assert (last.last_message_id.entryId, last.last_message_id.batch_index) == (1, -1)
    assert last.consumer_mark_delete_position.entryId == MAX
    publish_batches(wire, topic, 1, 5, producer=101)
    wire.flow(10)
    wire.ack(place(wire.message()))
    last = wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1)
    assert (last.last_message_id.entryId, last.last_message_id.batch_index) == (2, 4)
    assert last.consumer_mark_delete_position.entryId == 0


def test_one_consumer_that_has_no_permits_holds_up_no_other(wire: Wire, topic: str) -> None:
    wire.subscribe(f"{topic}-a", consumer=1)
    wire.subscribe(f"{topic}-b", consumer=2)
    wire.flow(1000, consumer=2)
    publish(wire, f"{topic}-a", 100, producer=100)
    publish(wire, f"{topic}-b", 100, producer=101)
    assert entries(wire.messages(100, consumer=2)) == list(range(100))
    wire.flow(100, consumer=1)
    assert entries(wire.messages(100, consumer=1)) == list(range(100))


def test_a_long_backlog_passes_the_window(wire: Wire, topic: str) -> None:
    wire.producer(topic, producer=100)
    wire.subscribe(topic)
    wire.flow(1000)
    for sequence in range(200):
        wire.send(b"x" * 65536, 100, sequence)
        wire.message()
    wire.send(b"last", 100, 200)
    assert payload_of(wire.message()) == b"last"


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_a_shared_consumer_is_told_what_it_has_not_acknowledged(wire: Wire, topic: str, kind: int) -> None:
    wire.subscribe(topic, kind=kind, initialPosition=EARLIEST)
    publish(wire, topic, 5)
    wire.flow(5)
    first = wire.messages(5)[0]
    wire.subscribe(topic, kind=kind, consumer=2)
    wire.ack(place(first))
    stats = [wire.ask("consumerStats", "consumerStatsResponse", consumer_id=consumer) for consumer in (1, 2)]
    assert [one.unackedMessages for one in stats] == [4, 0]
    assert [one.msgBacklog for one in stats] == [4, 4]


def chunk(wire: Wire, message: str, number: int, of: int) -> None:
    """As a client sends each: all have one sequence id."""
    head = metadata(
        producer_name=message, sequence_id=7, uuid=message, num_chunks_from_msg=of, chunk_id=number,
        total_chunk_msg_size=of,
    )  # fmt: skip
    wire.raw(send_frame(1, 7, entry_of(head, b"%s-%d" % (message.encode(), number)), is_chunk=True))


def test_chunks_that_follow_the_first_take_nobodys_turn(wire: Wire, topic: str) -> None:
    """So messages of an even number of chunks are not all one consumer's."""
    wire.producer(topic)
    for consumer in (1, 2):
        wire.subscribe(topic, kind=SHARED, consumer=consumer)
        wire.flow(100, consumer)
    for number in range(20):
        of_chunk = {
            "uuid": f"u{number // 2}",
            "chunk_id": number % 2,
            "num_chunks_from_msg": 2,
            "total_chunk_msg_size": 2,
        }
        head = metadata(sequence_id=number // 2, **of_chunk)
        wire.raw(send_frame(1, number // 2, entry_of(head, b"x"), is_chunk=True))
        wire.expect("send_receipt")
    assert [len(wire.messages(10, consumer)) for consumer in (1, 2)] == [10, 10]


def test_all_chunks_of_a_message_are_one_shared_consumers_and_one_without_permits_holds_up_no_other(
    wire: Wire, topic: str
) -> None:
    for consumer in (1, 2):
        wire.subscribe(topic, kind=SHARED, consumer=consumer)
    wire.producer(topic)
    wire.flow(1, consumer=1)
    chunk(wire, "a", 0, 4)
    assert payload_of(wire.message(1)) == b"a-0", "no other has a permit"
    wire.flow(100, consumer=2)
    for number in range(4):  # two messages, one between the other, and some that are whole
        if number:
            chunk(wire, "a", number, 4)
        chunk(wire, "b", number, 4)
        wire.send(b"whole", sequence=number)
    found = [payload_of(frame) for frame in wire.messages(8, 2)]
    assert [one for one in found if one != b"whole"] == [b"b-%d" % i for i in range(4)]
    wire.quiet()
    assert not wire.pending("message"), "the rest of a waits for who has its first"
    wire.flow(2, consumer=1)
    assert [payload_of(frame) for frame in wire.messages(2, 1)] == [b"a-1", b"a-2"]
    wire.say("close_consumer", consumer_id=1, request_id=99)
    found = [payload_of(frame) for frame in wire.messages(4, 2)]
    assert found == [b"a-%d" % i for i in range(4)], "all are another's, in their order"


def test_what_left_at_once_with_more_than_a_window_is_reported_and_the_rest_comes(wire: Wire, topic: str) -> None:
    """It came when there was something else to send: the broker's PING, up to 30 s later."""
    sizes = [40_000, *[131_100] * 8, *[10] * 5]
    wire.producer(topic)
    for sequence, size in enumerate(sizes):
        wire.send(b"x" * size, sequence=sequence)
        wire.expect("send_receipt")
    first = {"ledgerId": MAX, "entryId": MAX}
    wire.socket.settimeout(10)
    for consumer in range(1, 11):  # what is sent at once is for the kernel to say
        wire.subscribe(topic, f"r{consumer}", consumer=consumer, durable=False, start_message_id=first)
        wire.flow(100, consumer)
        assert [len(payload_of(frame)) for frame in wire.messages(len(sizes), consumer)] == sizes


def test_a_reader_of_some_keys_passes_over_windows_full_of_others(wire: Wire, topic: str) -> None:
    """Of these nothing is sent that would tell that there is room again."""
    slots = {key: (murmur3(key) & 0x7FFFFFFF) % 65536 for key in ("no", "yes")}
    wire.producer(topic)
    for sequence, key in enumerate(["no"] * 20 + ["yes"]):
        wire.send(b"x" * 131_000, sequence=sequence, partition_key=key)
        wire.expect("send_receipt")
    wanted = {"keySharedMode": 1, "hashRanges": [{"start": slots["yes"], "end": slots["yes"]}]}
    first = {"ledgerId": MAX, "entryId": MAX}
    wire.socket.settimeout(10)
    wire.subscribe(topic, "r", durable=False, start_message_id=first, keySharedMeta=wanted)
    wire.flow(1)
    assert wire.message().body.message_id.entryId == 20


def test_a_marker_gets_a_receipt_and_comes_to_nobody(wire: Wire, topic: str) -> None:
    """Brokers write them for each other; what a client sends so is acknowledged at once."""
    wire.producer(topic)
    wire.subscribe(topic)
    wire.flow(10)
    for sequence, fields in enumerate([{}, {"marker_type": 10}, {"marker_type": 21}, {}]):
        wire.send(b"x", sequence=sequence, **fields)
        wire.expect("send_receipt")
    assert [frame.body.message_id.entryId for frame in wire.messages(2)] == [0, 3]
