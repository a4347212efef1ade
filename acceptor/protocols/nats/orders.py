"""Orders that users of the system account give for one client: close it (KICK), or ask it to reconnect elsewhere (LDM).
The gateway passes them to the acceptor that has the client. Also chooses clients to close when there are too many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nats.client import Client
    from mq_shards.acceptor.protocols.nats.leaf_nodes import LeafNodes
    from mq_shards.ringbuf.calls import Asked, Calls

DONE: Final = b"done"
NOBODY: Final = b"nobody"
CANNOT: Final = b"cannot"

Order = Callable[[int], bool]


def is_excess(clients: int, most: int) -> bool:
    """Whether there are more clients than `most`; 0: any number, -1: none."""
    return most != 0 and clients > max(most, 0)


def excess(conns: Sequence[int], all_clients: int, most: int) -> list[int]:
    """Chooses the share of clients to close, of too many (see is_excess()), among `conns`, those of this acceptor."""
    if not is_excess(all_clients, most):
        return []
    import random  # imported late, as it is rarely needed

    part = -(-(all_clients - max(most, 0)) * len(conns) // all_clients)
    return random.sample(conns, min(part, len(conns)))


def serve(
    calls: Calls, clients: Mapping[int, Client], kick: Order, lame_duck: Order, leaves: Callable[[], LeafNodes | None]
) -> None:
    """Serves the calls. `kick` and `lame_duck` take a connection's number, and return whether that could be done.
    `leaves` returns what kicks leaf nodes and hubs."""

    def obey(asked: Asked, order: Order) -> None:
        wanted: Any = orjson.loads(asked.body)["cid"]
        conn = next((conn for conn, client in clients.items() if client.client_id == wanted), None)
        if conn is None and order is kick and (found := leaves()) is not None and found.kick(wanted):
            asked.answer(DONE)
            return
        asked.answer(NOBODY if conn is None else DONE if order(conn) else CANNOT)

    for what, order in (("kick", kick), ("ldm", lame_duck)):
        calls.serve(f"nats.{what}", lambda asked, order=order: obey(asked, order))  # type: ignore[misc]
