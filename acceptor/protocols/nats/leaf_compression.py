"""Agrees on compression with a leaf node or hub: by INFO of both sides, as for routes. What follows is an S2 stream in
each direction. With s2_auto the round-trip time of PINGs decides the level."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.protocols.nats.route_compression import (
    ACCEPT,
    AUTO,
    LEVELS,
    NOT_SUPPORTED,
    OFF,
    THRESHOLDS_NS,
    by_rtt,
    is_negotiated,
    level_of,
    select,
)


@dataclass(slots=True)
class Compression:
    wanted: str = AUTO
    thresholds_ns: tuple[int, ...] = THRESHOLDS_NS
    mode: str = NOT_SUPPORTED  # of what this side sends
    is_open: bool = True  # not agreed or ruled out yet
    is_on: bool = False
    began_ns: int = field(default_factory=time.monotonic_ns)

    @property
    def offer(self) -> str:
        """The mode that this side's INFO offers; "" leaves it out."""
        if self.is_open or self.wanted == AUTO:
            return self.wanted if self.wanted != NOT_SUPPORTED else ""
        return self.mode

    def agree(self, theirs: str) -> bool:
        """Agrees by the other side's INFO. Returns whether both sides compress from now on. Raises ValueError."""
        self.is_open = False
        if not is_negotiated(self.wanted):
            self.mode = OFF if theirs and self.wanted == OFF else NOT_SUPPORTED
            return False
        self.mode = select(self.wanted, theirs)
        if self.mode == AUTO:
            self.mode = by_rtt(time.monotonic_ns() - self.began_ns, self.thresholds_ns)
        self.is_on = is_negotiated(self.mode)
        return self.is_on

    def leave_out(self, theirs: str) -> None:
        """The other side goes on without compression. `theirs`: the mode in its CONNECT, "" if it knows none."""
        if self.is_open and theirs in (OFF, ACCEPT, AUTO, *LEVELS):
            self.mode = OFF
        self.is_open = False

    def begin(self, engine: Engine, conn: int) -> None:
        engine.compress(conn, level_of(self.mode))

    def watch(self, engine: Engine, conn: int) -> None:
        """Has the codec report the next PONG, if the level depends on it."""
        if self.is_on and self.wanted == AUTO:
            engine.call(conn, "tell-pong")

    def adapt(self, engine: Engine, conn: int, rtt_ns: int) -> None:
        mode = by_rtt(rtt_ns, self.thresholds_ns)
        if self.is_on and self.wanted == AUTO and mode != self.mode:
            self.mode = mode
            self.begin(engine, conn)
        self.watch(engine, conn)
