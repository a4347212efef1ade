"""What is done for all clients, or many of them: for some in each turn, the newest first.

rounds.begin(do)           do(conn, client) for all; for the first of them at once
rounds.begin(do, clients)  for these
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from mq_shards.acceptor.engine import FOREVER

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nats.client import Client

    Do = Callable[[int, Client], object]

IN_A_TURN: Final = 256


class Rounds:
    def __init__(self, clients: Mapping[int, Client]) -> None:
        self._clients = clients
        self._left: dict[Do, dict[int, Client]] = {}

    def begin(self, do: Do, clients: Iterable[tuple[int, Client]] | None = None) -> None:
        self._left.setdefault(do, {}).update(self._clients.items() if clients is None else clients)
        self._go_on(do)

    def wait_ns(self) -> int:
        return 0 if self._left else FOREVER

    def expire(self) -> None:
        for do in list(self._left):
            self._go_on(do)

    def _go_on(self, do: Do) -> None:
        left = self._left[do]
        for _ in range(min(IN_A_TURN, len(left))):
            conn, client = left.popitem()
            if self._clients.get(conn) is client:  # not gone meanwhile
                do(conn, client)
        if not left:
            del self._left[do]
