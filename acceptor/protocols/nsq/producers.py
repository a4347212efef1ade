"""The producers in nsqd's /stats. The gateway asks each acceptor for them with the call `nsq.producers`, in pieces that
each begin at a connection. The counts are kept by the codec (nsq_producers.h), and nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from mq_shards.csrc._core import ffi
from mq_shards.csrc.structs import struct_in

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.ringbuf.calls import Asked, Calls

# What nsq_ask_producers writes: where the next piece begins, then each producer's struct nsq_producer and its topics.
_NEXT_BYTES: Final = 8
_PRODUCER_BYTES: Final[int] = ffi.sizeof("struct nsq_producer")
_PRODUCED_BYTES: Final[int] = ffi.sizeof("struct nsq_produced")


class Producer(NamedTuple):
    conn: int
    opened_ns: int  # monotonic
    messages: dict[str, int]  # by topic


def producers_of(data: bytes) -> tuple[int, list[Producer]]:
    """Returns where the next piece begins (0: this was the last), and the producers that have published something."""
    following = int.from_bytes(data[:_NEXT_BYTES], "little")
    found = []
    at = _NEXT_BYTES
    while at < len(data):
        producer = struct_in("nsq_producer", data, at)
        at += _PRODUCER_BYTES
        messages = {}
        for _ in range(producer.topics):
            topic = struct_in("nsq_produced", data, at)
            at += _PRODUCED_BYTES
            if topic.messages:
                messages[bytes(topic.name[0 : topic.name_bytes]).decode()] = topic.messages
        if messages:
            found.append(Producer(producer.conn, producer.opened_ns, messages))
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
