"""What users of the system account order of one client: that it is cut off (KICK), or told to go elsewhere (LDM). The
gateway hands it over to the acceptor that has the client. And who is cut off where there are too many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nats.client import Client
    from mq_shards.ringbuf.calls import Asked, Calls

DONE: Final = b"done"
NOBODY: Final = b"nobody"
CANNOT: Final = b"cannot"

Order = Callable[[int], bool]


def excess(conns: Sequence[int], all_clients: int, most: int) -> list[int]:
    """Of what are too many clients of all acceptors, the part of one that has these; 0 are never too many."""
    if not most or all_clients <= most:
        return []
    import random  # late: a start has no use for it

    part = -(-(all_clients - most) * len(conns) // all_clients)
    return random.sample(conns, min(part, len(conns)))


def serve(calls: Calls, clients: Mapping[int, Client], kick: Order, lame_duck: Order) -> None:
    """Either is given the number of a connection, and says whether that could be done."""

    def obey(asked: Asked, order: Order) -> None:
        wanted: Any = orjson.loads(asked.body)["cid"]
        conn = next((conn for conn, client in clients.items() if client.client_id == wanted), None)
        asked.answer(NOBODY if conn is None else DONE if order(conn) else CANNOT)

    for what, order in (("kick", kick), ("ldm", lame_duck)):
        calls.serve(f"nats.{what}", lambda asked, order=order: obey(asked, order))  # type: ignore[misc]
