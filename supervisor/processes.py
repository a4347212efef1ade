"""The places of all processes, and what joins those that fill them: rings, sockets, segments in memory.

A process fills a place until it ends; the next one in that place is joined anew. What outlives a process (sockets over
which connections are handed over, segments of --memory) stays here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mq_shards.supervisor.child import Child
from mq_shards.supervisor.handover import Handovers
from mq_shards.supervisor.kept import KeptSegments
from mq_shards.supervisor.mesh import Mesh
from mq_shards.supervisor.options.options import Options
from mq_shards.supervisor.options.sections import broker_number
from mq_shards.supervisor.rings import Rings
from mq_shards.supervisor.shares import Shares


class Entries(NamedTuple):
    """Dotted names of the functions that children run; each is called with its end of the control socket."""

    acceptor: str = "mq_shards.acceptor.process.main"
    worker: str = "mq_shards.shards.worker.main"
    gateway: str = "mq_shards.gateway.load.main"


class Processes:
    def __init__(self, options: Options, workers: int, has_gateway: bool, meshed: bool, entries: Entries) -> None:
        """`meshed`: acceptors pass messages to each other. No process is started."""
        self.has_gateway: Final = has_gateway
        # In the order of their places on the board; the gateway is the last.
        self.acceptors: Final = [Child("acceptor", i, entries.acceptor) for i in range(options.acceptors)]
        if has_gateway:
            self.acceptors.append(Child("gateway", options.acceptors, entries.gateway, "mq-gateway"))
        self.workers: Final = [Child("worker", i, entries.worker) for i in range(workers)]
        self.rings: Final = Rings(self.acceptors, self.workers, broker_number(options.settings, "ring-bytes"))
        self.mesh: Final = Mesh(self.acceptors, broker_number(options.settings, "mesh-ring-bytes")) if meshed else None
        self.handovers: Final = Handovers()
        self.kept: Final = KeptSegments()
        self.shares: Final = Shares()

    @property
    def all(self) -> list[Child]:
        return [*self.acceptors, *self.workers]

    @property
    def without_gateway(self) -> list[Child]:
        """The acceptors, as they are called where the gateway is not one of them."""
        return [child for child in self.acceptors if child.role == "acceptor"]

    @property
    def alive(self) -> list[Child]:
        return [child for child in self.all if child.alive]

    def recovered(self, worker: Child) -> None:
        """Acceptors get their side of the rings to a worker only after its recovery."""
        for acceptor in self.acceptors:
            if acceptor.alive:
                self.rings.join(acceptor, worker)

    def ended(self, child: Child) -> None:
        """Tells the others that the process in this place is dead."""
        self.rings.sever(child)
        if self.mesh is not None:
            self.mesh.sever(child)
        self.shares.gone(child)

    def close(self) -> None:
        """Kills and reaps every child, whatever the reason for the end."""
        for child in self.all:
            child.kill()
        for child in self.all:
            if child.alive:
                child.reap()
            child.close()
        self.rings.close()
        self.handovers.close()
        self.kept.close()
