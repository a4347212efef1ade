"""Python's part in measuring services (csrc/acceptor/protocols/nats/nats_latency.h). The acceptor has a client of its
own in the system account, which hears how long requests took at other acceptors and servers:

    $SYS.LATENCY.M2.<id>    {"account": ..., "req_id": the answer's subject, "m2": {"service": ns, "responder": {...}}}
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson
from mq_shards.acceptor.protocols.nats.own_client import OwnClient
from mq_shards.acceptor.protocols.nats.shares import lifetime_ns

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.watched import Watched

# How often it is looked for requests that have waited too long, unless services have less time to answer.
LONGEST_LOOK_NS: Final = 1_000_000_000
SHORTEST_LOOK_NS: Final = 50_000_000
MAX_RESPONDER_BYTES: Final = 256 << 10


class Latencies:
    def __init__(self, engine: Engine, protocol: int, watched: Watched, account: str, number: int) -> None:
        """`account`: the system account, which has that number in the codec."""
        self.client: Final = OwnClient(engine, protocol, watched, account, self._heard)
        self._engine = engine
        self._protocol = protocol
        self._look_ns = LONGEST_LOOK_NS
        self._next_ns = 0
        self.client.subscribe(f"$SYS.LATENCY.M2.{engine.configure(protocol, 'latency', number):016x}")

    def learn(self, exports: Iterable[Mapping[str, Any]]) -> None:
        """Learns the exports of the services that are measured."""
        shortest = min((lifetime_ns(export) for export in exports), default=LONGEST_LOOK_NS)
        self._look_ns = min(max(shortest, SHORTEST_LOOK_NS), LONGEST_LOOK_NS)
        self._next_ns = time.monotonic_ns() + self._look_ns

    def wait_ns(self) -> int:
        return max(self._next_ns - time.monotonic_ns(), 0)

    def expire(self) -> None:
        if (now := time.monotonic_ns()) >= self._next_ns:
            self._next_ns = now + self._look_ns
            self._engine.configure(self._protocol, "latency-expire")

    def _heard(self, subject: str, reply: str, body: bytes) -> None:
        said = half_of(body)
        if said is not None:
            self._engine.configure(self._protocol, "latency-half", *said)


def half_of(body: bytes) -> tuple[int, bytes] | None:
    """What another acceptor or server has measured, in the codec's form; None: it is not valid.

    >>> half_of(b'{"req_id":"_R_.1.x.T","m2":{"service":5,"responder":{"acc":"A","rtt":3}}}')
    (5, b'3 _R_.1.x.T {"acc":"A","rtt":3}')
    >>> half_of(b'{"req_id":"_R_.1.x.T","m2":{"service":5}}')
    """
    try:
        found = orjson.loads(body)
        request, service, responder = found["req_id"], found["m2"]["service"], found["m2"]["responder"]
        rtt = responder.get("rtt", 0)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    is_valid = isinstance(request, str) and not set(request) & set(" \t\r\n") and isinstance(responder, dict)
    if not is_valid or not all(type(one) is int and 0 <= one < 1 << 62 for one in (service, rtt)):
        return None
    shown = orjson.dumps(responder)
    if len(shown) > MAX_RESPONDER_BYTES:
        return None
    return service, f"{rtt} {request} ".encode() + shown
