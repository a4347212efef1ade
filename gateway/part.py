"""What a folder of the gateway adds to its process: servers, and work that no request asks for.

An offer (offer.py) makes the part, so that the process itself names none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

from mq_shards.acceptor.engine import Engine
from mq_shards.gateway.access import HttpAccess
from mq_shards.gateway.broker import Broker
from mq_shards.gateway.calls import AcceptorCalls
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_server import HttpServer
from mq_shards.gateway.metrics import Metrics
from mq_shards.gateway.reloads import Reloads
from mq_shards.gateway.terms import Terms
from mq_shards.gateway.unread import Unread
from mq_shards.gateway.workers import Workers
from mq_shards.ringbuf.control import Message
from mq_shards.ringbuf.handover import Handover

PrepareTopic: TypeAlias = Callable[[str], Awaitable[None]]


class Shared(NamedTuple):
    """What all parts work with."""

    start: Message  # the supervisor's first message
    say: Callable[[Message], object]  # sends the supervisor a message
    supervisor: int  # its process id
    version: str  # of mq-shards
    broker_id: str
    data_dir: Path | None  # None: messages are kept in memory
    terms: Terms
    engine: Engine
    workers: Workers
    calls: AcceptorCalls
    broker: Broker
    bodies: Bodies
    access: HttpAccess
    metrics: Metrics
    reloads: Reloads
    prepare_topic: PrepareTopic  # has all parts prepare a topic: see Part.prepare_topic


class Part:
    """To be made where the event loop runs."""

    name: ClassVar[str]  # of its folder
    servers: Mapping[str, HttpServer] = {}  # by the scheme of --listen, without TLS
    takes: ClassVar[str] = ""  # the protocol whose connections acceptors hand over to it: see attach()
    # To be called before the first message of a topic is published, whatever its name. It never fails.
    prepare_topic: PrepareTopic | None = None

    def meet(self, others: Mapping[str, Part]) -> None:
        """Gets to know all parts, by name. Called before anything arrives."""

    async def unread(self) -> Mapping[str, Sequence[Unread]]:
        """What named readers have not read, by topic. Raises ReadersError, OSError."""
        return {}

    def work(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What goes on beside requests, begun when all workers are attached. It is cancelled before end()."""
        return ()

    def worker_came(self) -> None:
        """A worker is attached, perhaps after a restart."""

    def acceptor_came(self, acceptor: int) -> None:
        """An acceptor can be asked, perhaps after a restart."""

    def attach(self, handover: Handover) -> None:
        """Takes connections that acceptors hand over, and owns the handover from then on."""
        raise NotImplementedError

    def reload(self, settings: Mapping[str, Any]) -> None:
        """Applies all settings again. Raises ValueError, with nothing changed."""

    async def close(self, timeout_s: float) -> None:
        """Accepts no more connections, and waits up to `timeout_s` for requests that are being served."""

    async def end(self, timeout_s: float) -> None:
        """Called last, when close() of all parts is over."""
