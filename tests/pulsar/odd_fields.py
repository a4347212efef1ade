"""Commands whose fields have values that no client sends: random ones, of all commands there are."""

from __future__ import annotations

import random
from typing import Any, Final

from mq_shards.acceptor.protocols.pulsar.messages import base_command

from tests.pulsar.wire import Wire, entry_of, metadata

TEXTS: Final = (
    "persistent://public/default/odd-fields", "persistent://public/default/odd-other",
    "non-persistent://public/default/odd", "persistent://public/default/odd-partition-1", "odd", "", "x" * 300,
    "persistent://public/default/" + "\u00e9" * 400, "persistent://pulsar/system/transaction_coordinator_assign",
    "public/default", "a/b/c/d", "persistent://public/default/a\nb", "\x00", "s", "s", "s",
    "persistent://public/default/odd-fields", "persistent://public/default/odd-fields",
)  # fmt: skip
BYTES: Final = (b"", b"x", b"\xff" * 8, bytes(8), b"{}", b'{"type":"record","name":"A","fields":[]}', b"\xff" * 40)
NUMBERS: Final = (
    0, 1, 1, 1, 2, 3, 4, 5, 100, -1, (1 << 31) - 1, -(1 << 31), (1 << 32) - 1, (1 << 63) - 1, -(1 << 63), 1 << 63,
    (1 << 64) - 1,
)  # fmt: skip
MOST_DEEP: Final = 4


def _value(draw: random.Random, field: Any) -> object:  # noqa: ANN401
    if field.type == field.TYPE_STRING:
        return draw.choice(TEXTS)
    if field.type == field.TYPE_BYTES:
        return draw.choice(BYTES)
    if field.type == field.TYPE_BOOL:
        return draw.random() < 0.5
    if field.type == field.TYPE_ENUM:
        return draw.choice(list(field.enum_type.values_by_number))
    return draw.choice(NUMBERS)


def _fill(draw: random.Random, message: Any, depth: int = 0) -> None:  # noqa: ANN401
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and draw.random() < 0.5:
            continue
        there = getattr(message, field.name)
        if field.message_type is not None and depth < MOST_DEEP:
            for _ in range(draw.randrange(4) if field.is_repeated else 1):
                one = there.add() if field.is_repeated else there
                one.SetInParent()
                _fill(draw, one, depth + 1)
        elif field.message_type is None:
            try:
                if field.is_repeated:
                    there.extend(_value(draw, field) for _ in range(draw.randrange(4)))
                else:
                    setattr(message, field.name, _value(draw, field))
            except (ValueError, TypeError):
                continue  # it has no room for such a number


def _command(draw: random.Random) -> bytes:
    field = draw.choice([one for one in base_command().DESCRIPTOR.fields if one.message_type is not None])
    command = base_command()(type=field.number)
    getattr(command, field.name).SetInParent()
    _fill(draw, getattr(command, field.name))
    data = command.SerializePartialToString()
    entry = entry_of(metadata(), b"x") if field.name == "send" else b""
    return b"".join(
        ((len(data) + 4 + len(entry)).to_bytes(4, "big"), len(data).to_bytes(4, "big"), data, entry)
    )  # fmt: skip


def play(port: int, seed: int) -> None:
    """Until the broker closes the connection, or it has had enough."""
    draw = random.Random(seed)
    with Wire(port).connect() as wire:
        wire.ask("producer", None, topic="odd-fields", producer_id=1)
        wire.ask("subscribe", None, topic="odd-fields", subscription="s", subType=draw.randrange(4), consumer_id=1)
        wire.flow(10)
        wire.socket.settimeout(0.002)
        for _ in range(30):
            try:
                wire.raw(b"".join(_command(draw) for _ in range(draw.randrange(1, 4))))
                while wire.receive() is not None:
                    pass
            except TimeoutError:
                continue
            except OSError:
                pass
            return
