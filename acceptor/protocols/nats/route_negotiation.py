"""Negotiates the compression of each route, and adapts its level to the round-trip time with s2_auto.

route_compression.py has the modes and the rules by which two servers agree on them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mq_shards.acceptor.protocols.nats.route_compression import (
    ACCEPT,
    AUTO,
    NOT_SUPPORTED,
    OFF,
    by_rtt,
    is_negotiated,
    level_of,
    select,
    thresholds_of,
)
from mq_shards.acceptor.protocols.nats.route_figures import figures_of

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.protocol import Settings
    from mq_shards.acceptor.protocols.nats.cluster import Route
    from mq_shards.acceptor.protocols.nats.route_info import Own


class Negotiation:
    def __init__(
        self, engine: Engine, own: Own, say_info: Callable[[Route], None], remark: Callable[[int, Route, str], None]
    ) -> None:
        """`own.compression` is this server's mode. `say_info` sends INFO, and `remark` logs."""
        self._engine = engine
        self._own = own
        self._say_info = say_info
        self._remark = remark
        self._thresholds: tuple[int, ...] = ()

    def set(self, settings: Settings) -> None:
        self._thresholds = thresholds_of(settings)

    def begin(self, route: Route) -> None:
        """To be called before anything is sent."""
        if is_negotiated(self._own.compression):
            # The codec must send nothing of its own until compression is decided.
            self._engine.call(route.conn, "negotiates", 1)

    def said(self, route: Route) -> str:
        """The mode for INFO; empty: INFO has none."""
        mode = route.compression if route.negotiated and self._own.compression != AUTO else self._own.compression
        return mode if mode != NOT_SUPPORTED else ""

    def agree(self, route: Route, theirs: str) -> bool:
        """Agrees on compression, given the other server's mode. Returns whether it is on from here, and another INFO
        will come compressed. Raises ValueError, with the error that the other server is sent."""
        if route.negotiated:
            return False
        if not is_negotiated(self._own.compression):
            off = theirs and self._own.compression == OFF
            route.compression = OFF if off else NOT_SUPPORTED
            return False
        mode = select(self._own.compression, theirs)
        if mode == AUTO:
            mode = by_rtt(time.monotonic_ns() - route.began_ns, self._thresholds)
        route.negotiated, route.compression = True, mode
        self._engine.call(route.conn, "negotiates", 0)
        if not is_negotiated(mode):
            return False
        if route.wish is not None:
            self._say_info(route)
        route.compressed = True
        self._set_mode(route, mode)
        if route.wish is None:
            self._say_info(route)
        return True

    def _set_mode(self, route: Route, mode: str) -> None:
        """Sets the level of what we send from now on."""
        route.compression = mode
        self._engine.compress(route.conn, level_of(mode))

    def follow_rtt(self, route: Route) -> None:
        """With s2_auto, has the next PONG told, for adapt()."""
        if route.compressed and self._own.compression == AUTO:
            self._engine.call(route.conn, "tell-pong")

    def adapt(self, route: Route) -> None:
        """A PONG has come: with s2_auto, adapts the level to the round-trip time."""
        if not route.compressed or self._own.compression != AUTO:
            return
        mode = by_rtt(figures_of(self._engine, route.conn)["rtt_ns"], self._thresholds)
        if mode != route.compression:
            self._remark(logging.INFO, route, mode)
            self._set_mode(route, mode)
        self.follow_rtt(route)

    def change(self, route: Route) -> None:
        """Changes the level of what we send. A route that was not compressed, or must not be any more, is closed, to be
        made anew."""
        mode = self._own.compression
        if route.compression in (NOT_SUPPORTED, mode):
            return
        if not route.compressed or mode in (OFF, ACCEPT):
            self._engine.close_connection(route.conn)
        elif mode == AUTO:
            self.adapt(route)
        else:
            self._set_mode(route, mode)
