"""Which of a subscription's consumers is given the next message."""

from __future__ import annotations

from collections import Counter

from tests.pulsar.wire import Frame, Wire, payload_of

KEY_SHARED = 3


def place(frame: Frame) -> dict[str, int]:
    found = frame.body.message_id
    return {"ledgerId": found.ledgerId, "entryId": found.entryId}


def shares(wire: Wire) -> Counter[int]:
    """How many each consumer has been given and nobody has looked at."""
    wire.quiet()
    return Counter(frame.body.consumer_id for frame in wire.pending("message"))


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
