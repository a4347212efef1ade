"""Which of a subscription's consumers is given the next message."""

from __future__ import annotations

from collections import Counter

from tests.pulsar.wire import Frame, Wire, payload_of
from tests.servers import wait_until

SHARED, KEY_SHARED = 1, 3


def place(frame: Frame) -> dict[str, int]:
    found = frame.body.message_id
    return {"ledgerId": found.ledgerId, "entryId": found.entryId}


def shares(wire: Wire) -> Counter[int]:
    """How many each consumer has been given and nobody has looked at."""
    wire.quiet()
    return Counter(frame.body.consumer_id for frame in wire.pending("message"))


def test_a_lower_priority_gets_only_what_a_higher_one_has_no_permits_for(wire: Wire, topic: str) -> None:
    """The smaller the number, the higher."""
    wire.producer(topic, producer=100)
    for consumer, priority in ((1, 1), (2, 0), (3, 1), (4, 7), (5, 2_000_000_000)):
        wire.subscribe(topic, kind=SHARED, consumer=consumer, priority_level=priority)
    for consumer, permits in ((4, 100), (5, 100), (1, 10), (2, 7), (3, 10)):
        wire.flow(permits, consumer=consumer)
    wire.quiet()
    for sequence in range(30):
        wire.send(b"m", 100, sequence)
    wait_until(lambda: shares(wire).total() == 30, "all are dealt out")
    assert shares(wire) == {2: 7, 1: 10, 3: 10, 4: 3}
    wire.frames.clear()
    wire.flow(5, consumer=2)
    wire.quiet()
    for sequence in range(30, 36):
        wire.send(b"m", 100, sequence)
    first = [wire.until(lambda frame: frame.name == "message").body.consumer_id for _ in range(6)]
    assert first == [2] * 5 + [4], "as soon as it has permits again"


def test_those_of_one_priority_take_turns(wire: Wire, topic: str) -> None:
    wire.producer(topic, producer=100)
    for consumer, priority in ((1, 3), (2, 5), (3, 3), (4, 3)):
        wire.subscribe(topic, kind=SHARED, consumer=consumer, priority_level=priority)
        wire.flow(100, consumer=consumer)
    wire.quiet()
    for sequence in range(30):
        wire.send(b"m", 100, sequence)
    wait_until(lambda: shares(wire).total() == 30, "all are dealt out")
    assert shares(wire) == {1: 10, 3: 10, 4: 10}
    for consumer in (1, 3, 4):
        wire.ask("close_consumer", consumer_id=consumer)
    wait_until(lambda: shares(wire)[2] == 30, "it has all that the others had")


def test_a_key_that_somebody_has_unacknowledged_goes_to_no_other(wire: Wire, topic: str) -> None:
    """Who comes later takes over half of the keys, but of none while what came before is not acknowledged."""
    keys = [f"k{number}" for number in range(40)]
    wire.producer(topic, producer=100)
    wire.subscribe(topic, kind=KEY_SHARED, consumer=1)
    wire.flow(1000, consumer=1)
    for sequence, key in enumerate(keys):
        wire.send(key.encode(), 100, sequence, partition_key=key)
    had = wire.messages(len(keys))
    wire.subscribe(topic, kind=KEY_SHARED, consumer=2)
    wire.flow(1000, consumer=2)
    for sequence, key in enumerate(keys, len(keys)):
        wire.send(key.encode(), 100, sequence, partition_key=key)
    for _ in keys:
        wire.expect("send_receipt")
    assert shares(wire)[2] == 0, "the first has not acknowledged any key yet"
    wire.ack(*map(place, had))
    frames = [wire.until(lambda frame: frame.name == "message") for _ in keys]
    again = {payload_of(frame).decode(): frame.body.consumer_id for frame in frames}
    assert again.keys() == set(keys) and set(again.values()) == {1, 2}
