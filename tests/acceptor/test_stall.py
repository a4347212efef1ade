"""A process that stood still for longer than a timeout hears its clients before it says that they are silent."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

import pytest

from tests.engine import NSQ, SECOND, Engine

INTERVAL_S = 1
SIZE = struct.Struct(">I")


@pytest.fixture
def engine() -> Iterator[Engine]:
    found = Engine()
    yield found
    found.dispose()


def connect(engine: Engine) -> int:
    conn = engine.connect(NSQ)
    said = json.dumps({"heartbeat_interval": INTERVAL_S * 1000}).encode()
    engine.send(conn, b"  V2IDENTIFY\n" + SIZE.pack(len(said)) + said)
    assert engine.received(conn).endswith(b"OK")
    return conn


@pytest.mark.parametrize("clients", [1, 700])  # more than are looked at in a turn
def test_what_waits_in_sockets_counts_before_timers(engine: Engine, clients: int) -> None:
    conns = [connect(engine) for _ in range(clients)]
    for conn in conns:
        engine.write(conn, b"NOP\n")
    engine.advance_to(engine.now_ns + 70 * INTERVAL_S * SECOND)
    assert not any(engine.is_ended(conn) for conn in conns)


def test_who_was_silent_is_cut_after_that_look(engine: Engine) -> None:
    conn = connect(engine)
    engine.advance_to(engine.now_ns + 70 * INTERVAL_S * SECOND)
    assert engine.is_ended(conn)
