"""Socket pairs over which an acceptor hands connections to the gateway, which may hand them back, or to the first
acceptor: one pair for each protocol and acceptor.

The supervisor keeps both ends open, so that connections under way wait for the next process when one dies.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import Final

from mq_shards.ringbuf.handover import Handover
from mq_shards.supervisor.child import Child
from mq_shards.supervisor.options.listen import Listen


class Handovers:
    def __init__(self) -> None:
        self._pairs: Final[dict[tuple[str, int], tuple[socket.socket, socket.socket]]] = {}

    def tell(self, started: Child, acceptors: Sequence[Child], addresses: Iterable[Listen]) -> None:
        """Sends a process that has started its ends of the pairs. `acceptors`: all of them, the gateway included."""
        first, *others = [acceptor for acceptor in acceptors if acceptor.role == "acceptor"]
        kept = list(addresses)
        for protocol in sorted({address.spoken for address in kept if address.hands_over}):
            self._tell(protocol, started, [first, *others], acceptors[-1])
        for protocol in sorted({address.spoken for address in kept if address.comes_by_others}):
            self._tell(protocol, started, others, first)

    def ends_of_gateway(self, acceptors: Sequence[Child], addresses: Iterable[Listen]) -> list[socket.socket]:
        """The ends at which the gateway takes connections; they stay ours."""
        protocols = {address.spoken for address in addresses if address.hands_over}
        givers = [acceptor.index for acceptor in acceptors if acceptor.role == "acceptor"]
        return [self._pair(protocol, giver)[1] for protocol in sorted(protocols) for giver in givers]

    def _tell(self, protocol: str, started: Child, givers: Sequence[Child], taker: Child) -> None:
        for giver in givers:
            if started in (giver, taker):
                here, there = self._pair(protocol, giver.index)
                message = {"do": "handover", "protocol": protocol, "acceptor": giver.index}
                started.send(message, [(there if started is taker else here).fileno()])

    def _pair(self, protocol: str, acceptor: int) -> tuple[socket.socket, socket.socket]:
        if (protocol, acceptor) not in self._pairs:
            self._pairs[protocol, acceptor] = Handover.pair()
        return self._pairs[protocol, acceptor]

    def close(self) -> None:
        for pair in self._pairs.values():
            for end in pair:
                end.close()
