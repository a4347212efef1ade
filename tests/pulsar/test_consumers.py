"""Consumers that come and go: SUBSCRIBE, SEEK, CLOSE on the raw wire. What must hold was seen of a real broker 4.0."""

from __future__ import annotations

import pytest
from mq_shards.acceptor.protocols.pulsar.keys import murmur3
from mq_shards.acceptor.protocols.pulsar.messages import encode

from tests.pulsar.consuming import EARLIEST, EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, entries, place, publish
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import MAX, Wire, payload_of


def test_what_a_consumer_that_goes_had_is_not_counted(server: PulsarServer, wire: Wire, topic: str) -> None:
    publish(wire, topic, 2)
    wire.subscribe(topic, kind=SHARED, initialPosition=EARLIEST)
    with Wire(server.port) as other:
        other.connect().subscribe(topic, kind=SHARED)
        other.flow(100)
        other.messages(2)
    wire.flow(100)
    assert [frame.body.redelivery_count for frame in wire.messages(2)] == [0, 0]


# --- types ------------------------------------------------------------------------------------------------------------


def test_shared_consumers_have_their_shares(wire: Wire, topic: str) -> None:
    for consumer in (1, 2, 3):
        wire.subscribe(topic, kind=SHARED, consumer=consumer)
        wire.flow(100, consumer=consumer)
    publish(wire, topic, 120)
    wire.until(lambda _frame: len(wire.pending("message")) >= 119)
    wire.quiet()
    shares = [frame.body.consumer_id for frame in wire.pending("message")]
    assert all(shares.count(consumer) >= 20 for consumer in (1, 2, 3))


def test_an_exclusive_subscription_has_one_consumer(server: PulsarServer, wire: Wire, topic: str) -> None:
    wire.subscribe(topic)
    wanted = {"topic": topic, "subscription": "s", "consumer_id": 2}
    assert wire.ask("subscribe", "error", subType=EXCLUSIVE, **wanted).error == 5
    assert wire.ask("subscribe", "error", subType=SHARED, **wanted).error == 5
    wire.ask("close_consumer", consumer_id=1)
    wire.ask("subscribe", subType=SHARED, **wanted)


def test_an_exclusive_place_is_given_away_only_if_its_connection_is_dead(server: PulsarServer, topic: str) -> None:
    with Wire(server.port) as first, Wire(server.port) as second:
        first.connect().subscribe(topic)
        second.connect()
        second.say("subscribe", request_id=1, topic=topic, subscription="s", subType=0, consumer_id=1)
        first.expect("ping")
        first.say("pong")
        assert second.expect("error").error == 5


def test_of_a_topic_without_partitions_a_ring_of_hashes_says_who_is_active(wire: Wire, topic: str) -> None:
    """A hundred points of each name, and the first at or behind the topic's."""
    ring = {murmur3(f"{name}{point}"): name for name in ("x", "y", "z") for point in range(100)}
    names = [f"{topic}-{n}" for n in range(12)]
    for consumer, name in enumerate(names):
        for who in ("x", "y", "z"):
            number = 3 * consumer + "xyz".index(who)
            wire.subscribe(name, kind=FAILOVER, consumer=number, consumer_name=who)
            wire.flow(10, consumer=number)
        publish(wire, name, 1, producer=consumer)
    came = [wire.until(lambda frame: frame.name == "message").body.consumer_id for _ in names]
    expected = []
    for consumer, name in enumerate(names):
        begin = murmur3(f"persistent://public/default/{name}")
        first = min((point for point in ring if point >= begin), default=min(ring))
        expected.append(3 * consumer + "xyz".index(ring[first]))
    assert sorted(came) == expected


def test_failover_consumers_are_told_who_is_active(wire: Wire, topic: str) -> None:
    name = f"persistent://public/default/{topic}-partition-1"
    wire.subscribe(name, kind=FAILOVER, consumer=1, consumer_name="a")
    change = wire.expect("active_consumer_change")
    assert (change.consumer_id, change.is_active) == (1, True)
    wire.subscribe(name, kind=FAILOVER, consumer=2, consumer_name="b")
    changes = [wire.expect("active_consumer_change") for _ in range(2)]
    told = {change.consumer_id: change.is_active for change in changes}
    assert told == {1: False, 2: True}  # partition 1 of two consumers
    wire.flow(10, consumer=1)
    wire.flow(10, consumer=2)
    publish(wire, name, 1)
    frame = wire.message(consumer=2)
    assert frame.body.message_id.partition == 1
    wire.ask("close_consumer", consumer_id=2)
    assert wire.expect("active_consumer_change").consumer_id == 1
    assert wire.message(consumer=1).body.message_id.entryId == 0


def test_a_key_is_one_consumers(wire: Wire, topic: str) -> None:
    wire.producer(topic, producer=100)
    for consumer in (1, 2, 3):
        wire.subscribe(topic, kind=KEY_SHARED, consumer=consumer)
        wire.flow(1000, consumer=consumer)
    for sequence in range(200):
        wire.send(str(sequence).encode(), 100, sequence, partition_key=f"k{sequence % 20}")
    frames = [wire.until(lambda frame: frame.name == "message") for _ in range(200)]
    owners: dict[int, set[int]] = {}
    for frame in frames:
        owners.setdefault(int(payload_of(frame)) % 20, set()).add(frame.body.consumer_id)
    assert all(len(who) == 1 for who in owners.values()) and len(set.union(*owners.values())) == 3


def test_consumers_of_several_topics_have_the_same_keys_of_each(wire: Wire, topic: str) -> None:
    """As those have that the clients in C++ and Java make for one consumer: their names are the same."""
    owners: list[dict[bytes, int]] = []
    for nth, name in enumerate(("one", "other")):
        wire.producer(f"{topic}-{name}", producer=100 + nth)
        of_topic = [10 * nth + one for one in range(3)]
        for consumer in of_topic:
            wire.subscribe(f"{topic}-{name}", kind=KEY_SHARED, consumer=consumer, consumer_name="c")
            wire.flow(100, consumer)
        for key in range(30):
            wire.send(str(key).encode(), 100 + nth, key, partition_key=str(key))
        came = [wire.until(lambda frame: frame.name == "message") for _ in range(30)]
        owners.append({payload_of(frame): frame.body.consumer_id % 10 for frame in came})
    assert owners[0] == owners[1]
    assert set(owners[0].values()) == {0, 1, 2}


def sticky(*ranges: tuple[int, int]) -> dict[str, object]:
    return {"keySharedMode": 1, "hashRanges": [{"start": a, "end": b} for a, b in ranges]}


def test_ranges_of_keys_are_taken_as_they_are_asked_for(wire: Wire, topic: str) -> None:
    wire.subscribe(topic, kind=KEY_SHARED, consumer=1, keySharedMeta=sticky((0, 32767)))
    wire.subscribe(topic, kind=KEY_SHARED, consumer=2, keySharedMeta=sticky((32768, 65535)))
    wanted = {"topic": topic, "subscription": "s", "subType": KEY_SHARED, "consumer_id": 3}
    assert wire.ask("subscribe", "error", keySharedMeta=sticky((5, 6)), **wanted).error == 19
    assert wire.ask("subscribe", "error", keySharedMeta=sticky(), **wanted).error == 19


def test_readers_of_some_keys_get_no_others_and_what_they_are_not_given_costs_no_permits(
    wire: Wire, topic: str
) -> None:
    wire.producer(topic, 100)
    for sequence in range(60):
        wire.send(str(sequence).encode(), 100, sequence, partition_key=f"k{sequence % 20}")
        wire.expect("send_receipt")
    got: dict[int, list[int]] = {}
    for consumer, ranges in ((1, (0, 32767)), (2, (32768, 65535))):
        wire.subscribe(topic, f"r{consumer}", kind=EXCLUSIVE, consumer=consumer, durable=False,
                       keySharedMeta=sticky(ranges), start_message_id={"ledgerId": MAX, "entryId": MAX})  # fmt: skip
        wire.flow(12, consumer=consumer)
        got[consumer] = [int(payload_of(frame)) for frame in wire.messages(12, consumer)]
        wire.flow(100, consumer=consumer)
    for _ in range(60 - 24):
        frame = wire.until(lambda frame: frame.name == "message")
        got[frame.body.consumer_id].append(int(payload_of(frame)))
    assert all(values == sorted(values) for values in got.values())
    assert sorted(got[1] + got[2]) == list(range(60))
    assert not {value % 20 for value in got[1]} & {value % 20 for value in got[2]}


def test_what_cannot_be_subscribed_is_refused(wire: Wire, topic: str) -> None:
    wanted = {"topic": topic, "subType": SHARED, "consumer_id": 1}
    assert wire.ask("subscribe", "error", subscription="", **wanted).error == 16
    assert wire.ask("subscribe", "error", subscription="s", read_compacted=True, **wanted).error == 22
    for name in ("x" * 256, "a\nb", "__compaction"):
        assert wire.ask("subscribe", "error", subscription=name, **wanted).error == 22, "not one that is tried again"
    wire.ask("subscribe", subscription="ü" + "x" * 253, **wanted | {"consumer_id": 2})
    wire.ask("subscribe", subscription="s", **wanted)
    wire.ask("subscribe", subscription="s", **wanted)  # an id that is in use: the consumer that there is


def test_a_durable_name_and_one_that_is_not_do_not_mix(wire: Wire, topic: str) -> None:
    wire.subscribe(topic, durable=False, kind=EXCLUSIVE)
    refused = wire.ask("subscribe", "error", topic=topic, subscription="s", subType=0, consumer_id=2, durable=True)
    assert refused.error == 22


def test_a_subscription_begins_at_the_end_or_at_the_beginning(wire: Wire, topic: str) -> None:
    publish(wire, topic, 3)
    wire.subscribe(topic, "latest", consumer=1)
    wire.subscribe(topic, "earliest", consumer=2, initialPosition=EARLIEST)
    wire.flow(10, consumer=1)
    wire.flow(10, consumer=2)
    assert entries(wire.messages(3, consumer=2)) == [0, 1, 2]
    publish(wire, topic, 1, producer=101)
    assert entries(wire.messages(1, consumer=1)) == [3]


def test_a_reader_begins_with_the_message_it_names(wire: Wire, topic: str) -> None:
    publish(wire, topic, 5)
    wire.subscribe(topic, "probe", initialPosition=EARLIEST)
    wire.flow(1)
    first = place(wire.message())
    for consumer, start, expected in (
        (2, {**first, "entryId": 3}, [3, 4]),
        (3, {"ledgerId": MAX, "entryId": MAX}, [0, 1, 2, 3, 4]),
        (4, {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}, []),
    ):
        wire.subscribe(topic, f"reader-{consumer}", consumer=consumer, durable=False, start_message_id=start)
        wire.flow(10, consumer=consumer)
        assert entries(wire.messages(len(expected), consumer)) == expected
    wire.quiet()
    assert not wire.pending("message")


def test_what_was_acknowledged_comes_back_after_a_seek(wire: Wire, topic: str) -> None:
    publish(wire, topic, 5)
    wire.subscribe(topic, initialPosition=EARLIEST)
    wire.flow(5)
    frames = wire.messages(5)
    wire.ack(place(frames[-1]), cumulative=True)
    wire.ask("seek", consumer_id=1, message_id=place(frames[1]))
    wire.subscribe(topic)
    wire.flow(5)
    assert entries(wire.messages(4)) == [1, 2, 3, 4]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("comes", ["before SUBSCRIBE", "behind SUBSCRIBE"])
def test_a_second_seek_may_come_before_the_consumer_is_back_from_the_first(
    wire: Wire, topic: str, durable: bool, comes: str
) -> None:
    """As when an application seeks a reader that the client in Go has moved itself when it made it."""
    publish(wire, topic, 4)
    wire.subscribe(topic, "other", consumer=2, initialPosition=EARLIEST)
    wire.flow(1, 2)
    ledger = wire.message(2).body.message_id.ledgerId
    again = {"topic": topic, "subscription": "s", "subType": EXCLUSIVE, "consumer_id": 1, "durable": durable}
    second = {"consumer_id": 1, "message_id": {"ledgerId": ledger, "entryId": 2}}
    wire.ask("subscribe", **again)
    wire.ask("seek", consumer_id=1, message_id={"ledgerId": ledger, "entryId": 1})
    if comes == "before SUBSCRIBE":
        wire.ask("seek", **second)
    else:
        wire.say("subscribe", request_id=77, **again)
        wire.ask("seek", **second)
        assert wire.expect("success").request_id == 77
    wire.ask("subscribe", **again)
    wire.flow(2)
    assert entries(wire.messages(2)) == [2, 3]


def test_a_seek_closes_the_consumers_and_is_answered(wire: Wire, topic: str) -> None:
    publish(wire, topic, 5)
    wire.subscribe(topic, initialPosition=EARLIEST)
    wire.flow(100)
    frames = wire.messages(5)
    wire.ack(place(frames[4]), cumulative=True)
    wire.ask("seek", consumer_id=1, message_id=place(frames[2]))
    closed = wire.expect("close_consumer")
    assert (closed.consumer_id, closed.request_id) == (1, MAX)
    wire.subscribe(topic)
    wire.flow(100)
    assert entries(wire.messages(3)) == [2, 3, 4]
    assert wire.ask("seek", "error", consumer_id=1).error == 1
    assert wire.ask("seek", "error", consumer_id=2, message_publish_time=0).message == "Consumer not found"
    wire.ask("seek", consumer_id=1, message_id={"ledgerId": (1 << 62), "entryId": 0})
    wire.subscribe(topic)
    wire.flow(100)
    wire.quiet()
    assert not wire.pending("message")


def test_unsubscribe_deletes_a_subscription_that_nobody_else_uses(wire: Wire, topic: str) -> None:
    publish(wire, topic, 1)
    wire.subscribe(topic, kind=SHARED, consumer=1, initialPosition=EARLIEST)
    wire.subscribe(topic, kind=SHARED, consumer=2)
    assert wire.ask("unsubscribe", "error", consumer_id=1).error == 1
    wire.ask("unsubscribe", consumer_id=1, force=True)
    assert wire.expect("close_consumer").consumer_id == 2
    assert wire.ask("unsubscribe", "error", consumer_id=1).error == 1
    wire.subscribe(topic, kind=SHARED)
    wire.flow(10)
    wire.quiet()
    assert not wire.pending("message")


def test_a_consumer_that_is_closed_hears_no_more(wire: Wire, topic: str) -> None:
    wire.subscribe(topic)
    wire.flow(10)
    wire.ask("close_consumer", consumer_id=1)
    wire.ask("close_consumer", consumer_id=1)
    publish(wire, topic, 1)
    wire.quiet()
    assert not wire.pending("message")


def test_a_consumer_that_is_closed_before_it_is_there_is_not_made(wire: Wire, server: PulsarServer, topic: str) -> None:
    names = {"topic": topic, "subscription": "s", "subType": EXCLUSIVE}
    wire.producer(topic, producer=2)
    wire.raw(
        encode("subscribe", request_id=901, consumer_id=8, **names)
        + encode("close_consumer", request_id=902, consumer_id=8)
    )
    assert wire.until(lambda frame: hasattr(frame.body, "request_id")).body.request_id == 902
    wire.producer(topic)  # what the gateway and the worker were asked before has been answered
    assert not wire.frames
    with Wire(server.port) as other:
        other.connect().subscribe(topic, kind=EXCLUSIVE)
    wire.quiet()  # nobody was in the way, and cut off since it did not answer a PING
    assert not wire.frames


def test_a_consumer_is_told_how_it_stands_and_who_asks_about_none_is_cut_off(wire: Wire, topic: str) -> None:
    publish(wire, topic, 5)
    wire.subscribe(topic, initialPosition=EARLIEST, consumer_name="c")
    wire.flow(3)
    wire.ack(place(wire.messages(3)[0]))
    found = wire.ask("consumerStats", "consumerStatsResponse", consumer_id=1)
    assert (found.consumerName, found.type, found.availablePermits) == ("c", "Exclusive", 0)
    assert (found.unackedMessages, found.msgBacklog) == (0, 4), "who acknowledges all up to one has none of its own"
    wire.say("consumerStats", request_id=99, consumer_id=5)
    assert wire.is_closed()


def test_a_reader_that_was_moved_goes_on_there_though_it_names_its_first_place_again(wire: Wire, topic: str) -> None:
    """As the Java client does after a seek by time."""
    wire.producer(topic)
    for i in range(3):
        wire.send(b"old", sequence=i)

    def read() -> None:
        start = {"ledgerId": MAX, "entryId": MAX}  # earliest
        wire.subscribe(topic, "reader", durable=False, start_message_id=start)
        wire.flow(10)

    read()
    wire.messages(3)
    wire.ask("seek", consumer_id=1, message_publish_time=4_000_000_000_000)
    wire.expect("close_consumer")
    read()
    wire.send(b"new", sequence=3)
    assert payload_of(wire.message()) == b"new"
    wire.ask("close_consumer", consumer_id=1)
    read()
    assert payload_of(wire.message()) == b"old", "once: who comes anew begins where it says"


def test_a_consumer_that_takes_any_schema_leaves_it_to_others_to_bring_one(wire: Wire, topic: str) -> None:
    any_schema = {"name": "", "schema_data": b"", "type": 21, "properties": []}
    wire.subscribe(topic, "any", 1, 1, schema=any_schema)
    assert wire.ask("getSchema", "getSchemaResponse", topic=topic).error_code == 11
    wire.subscribe(topic, "s", 1, 2, schema={**any_schema, "type": 1})
    assert wire.ask("getSchema", "getSchemaResponse", topic=topic).schema.type == 1


def test_the_metadata_of_consumers_and_producers_have_a_length(wire: Wire, topic: str) -> None:
    """A real broker takes any of a producer's."""
    for count, name in ((1024, "success"), (1025, "error")):
        pair = [{"key": "x", "value": "y" * (count - 1)}]
        more = {"subscription": "s", "subType": 1, "consumer_id": count, "metadata": pair}
        answer = wire.ask("subscribe", name, topic=topic, **more)
    assert (answer.error, answer.message) == (1, "metadata has a max size of 1024 bytes")
    for count, name in ((4096, "producer_success"), (4097, "error")):
        pair = [{"key": "x", "value": "y" * (count - 1)}]
        answer = wire.ask("producer", name, topic=topic, producer_id=count, metadata=pair)
    assert (answer.error, answer.message) == (1, "metadata has a max size of 4096 bytes")


def test_a_failover_consumer_hears_behind_the_answer_whether_it_is_the_active_one(wire: Wire, topic: str) -> None:
    wire.say("subscribe", request_id=99, topic=topic, subscription="s", subType=2, consumer_id=1, consumer_name="a")
    names = []
    while not names or names[-1] != "active_consumer_change":
        frame = wire.receive()
        assert frame is not None
        names.append(frame.name)
    assert names == ["success", "active_consumer_change"]


def test_a_range_of_hashes_may_end_beyond_the_last(wire: Wire, topic: str) -> None:
    beyond = {"keySharedMode": 1, "hashRanges": [{"start": -3, "end": 65536}]}
    wire.subscribe(topic, kind=3, keySharedMeta=beyond)
    wire.producer(topic)
    wire.flow(10)
    for sequence in range(5):
        wire.send(b"x", sequence=sequence, partition_key=f"k{sequence}")
    assert len(wire.messages(5)) == 5
