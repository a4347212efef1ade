"""What tests of consumers publish, and what they read of it."""

from __future__ import annotations

from tests.pulsar.wire import Wire, batch_of, entry_of, metadata, send_frame

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
EARLIEST = 1


def publish(wire: Wire, topic: str, count: int, producer: int = 100) -> None:
    wire.producer(topic, producer=producer)
    for sequence in range(count):
        wire.send(str(sequence).encode(), producer, sequence)
    for _ in range(count):
        wire.expect("send_receipt")


def publish_batches(wire: Wire, topic: str, batches: int, size: int, producer: int = 100) -> None:
    wire.producer(topic, producer=producer)
    for sequence in range(batches):
        head = metadata(sequence_id=sequence, num_messages_in_batch=size)
        wire.raw(send_frame(producer, sequence, entry_of(head, batch_of(*[b"m"] * size)), num_messages=size))
    for _ in range(batches):
        wire.expect("send_receipt")


def entries(frames: list) -> list[int]:
    return [frame.body.message_id.entryId for frame in frames]


def place(frame: object, **more: object) -> dict[str, object]:
    found = frame.body.message_id  # type: ignore[attr-defined]
    return {"ledgerId": found.ledgerId, "entryId": found.entryId, **more}
