"""The producers in nsqd's /stats. The gateway asks each acceptor for them with the call `nsq.producers`, in pieces that
each begin at a connection. The counts are kept by the codec (nsq_producers.h), and nothing here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.ringbuf.calls import Asked, Calls

# What nsq_ask_producers writes: where the next piece begins, then each producer's struct nsq_producer and its topics.
_NEXT: Final = struct.Struct("<Q")
_PRODUCER: Final = struct.Struct("<IIQ")
_PRODUCED: Final = struct.Struct("<QII64s")


class Producer(NamedTuple):
    conn: int
    opened_ns: int  # monotonic
    messages: dict[str, int]  # by topic


def producers_of(data: bytes) -> tuple[int, list[Producer]]:
    """Returns where the next piece begins (0: this was the last), and the producers that have published something."""
    (following,) = _NEXT.unpack_from(data)
    found = []
    at = _NEXT.size
    while at < len(data):
        conn, topics, opened_ns = _PRODUCER.unpack_from(data, at)
        at += _PRODUCER.size
        messages = {}
        for _ in range(topics):
            count, _, name_bytes, name = _PRODUCED.unpack_from(data, at)
            at += _PRODUCED.size
            if count:
                messages[name[:name_bytes].decode()] = count
        if messages:
            found.append(Producer(conn, opened_ns, messages))
    return following, found


class Producers:
    def __init__(
        self, engine: Engine, protocol: int, describe: Callable[[int, int], dict[str, Any]], calls: Calls | None
    ) -> None:
        """`describe`: makes the /stats entry of a connection, given its number and when it was opened."""
        self._engine = engine
        self._protocol = protocol
        self._describe = describe
        if calls is not None:
            calls.serve("nsq.producers", self._answer)

    def _answer(self, asked: Asked) -> None:
        place = int(orjson.loads(asked.body)["from"])
        following, found = producers_of(self._engine.ask(self._protocol, "producers", place))
        asked.answer(orjson.dumps({
            "next": following,
            "producers": [
                {**self._describe(one.conn, one.opened_ns), "pub_counts": one.messages} for one in found
            ],
        }))  # fmt: skip
