"""The wall clock is set while a broker runs: what waits for a time is no later for it, and what is to stay is there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from mq_shards.acceptor.protocols.pulsar.expiries import SPARE, Expiries

from tests.crash.test_clock import HOUR_S, Clock
from tests.crash.test_clock import clock as clock
from tests.crash.test_clock import shim as shim
from tests.pulsar.record_roles import request
from tests.pulsar.servers import running
from tests.pulsar.test_security import SECRET, say_connect, token
from tests.pulsar.test_transactions import COMMIT, begin, connected, end, join, kill, send
from tests.pulsar.wire import Wire, payload_of
from tests.servers import wait_until

SHARED = 1
DAY_MS = 24 * HOUR_S * 1000
LONG = pytest.mark.long


@pytest.mark.parametrize("off_s", [-HOUR_S, pytest.param(HOUR_S, marks=LONG)])
def test_delays_and_transactions_take_as_long_as_they_did(tmp_path: Path, clock: Clock, off_s: int) -> None:
    with running(data_dir=tmp_path / "data", env=clock.env) as server, connected(server) as wire:
        for consumer, topic in enumerate(("delayed", "expires", "stays"), 1):
            wire.producer(topic, consumer)
            wire.subscribe(topic, kind=SHARED, consumer=consumer)
            wire.flow(10, consumer)
        wire.send(b"later", 1, deliver_at_time=int(time.time() * 1000) + 2000)
        expires, stays = begin(wire, 2000), begin(wire, DAY_MS)
        join(wire, expires, "expires")
        join(wire, stays, "stays")
        send(wire, b"never", expires, 2)
        send(wire, b"behind", producer=2)
        clock.set(off_s)
        send(wire, b"in time", stays, 3)
        assert payload_of(wire.message(1)) == b"later"
        assert payload_of(wire.message(2)) == b"behind"
        kill(server, "mq-gateway")
        assert end(wire, stays, COMMIT) == 0
        assert payload_of(wire.message(3)) == b"in time"


@LONG
def test_what_is_too_old_goes_by_the_clock_of_now_and_nothing_before(tmp_path: Path, clock: Clock) -> None:
    def backlog(topic: str = "t") -> int:
        stats = request(server.http, "", "", "GET", f"persistent/public/default/{topic}/stats")["json"]
        return int(stats["subscriptions"]["s"]["msgBacklog"])

    settings = ["pulsar.policies-interval=50ms"]
    with running(data_dir=tmp_path / "data", env=clock.env, settings=settings) as server, connected(server) as wire:
        path = "namespaces/public/default/messageTTL"
        assert request(server.http, "", "", "POST", path, 2 * HOUR_S)["status"] == 204
        for number, topic in enumerate(("t", "sooner"), 1):
            wire.producer(topic, number)
            wire.subscribe(topic, kind=SHARED, consumer=number)
        path = "persistent/public/default/sooner/messageTTL?messageTTL=60"
        assert request(server.http, "", "", "POST", path)["status"] == 204
        for off_s in (0, -HOUR_S, HOUR_S):
            clock.set(off_s)
            send(wire, b"x")
            # That this one is gone says that all have been looked at by this clock.
            send(wire, b"x", producer=2)
            clock.set(off_s + 120)
            wait_until(lambda: backlog("sooner") == 0, "what is too old by this clock has expired", 60)
        assert backlog() == 3
        clock.set(4 * HOUR_S)
        wait_until(lambda: backlog() == 0, "all have expired", 60)
        clock.set(0)
        send(wire, b"new")
        wire.flow(10)
        assert payload_of(wire.message()) == b"new"


@LONG
def test_a_token_has_expired_as_soon_as_the_clock_says_so(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    settings = [f"pulsar.token-secret-key-file={tmp_path / 'secret'}"]
    with running(env=clock.env, settings=settings) as server, Wire(server.port) as wire, Wire(server.port) as other:
        say_connect(wire, token(exp=int(time.time()) + HOUR_S // 2))
        say_connect(other, token(exp=int(time.time()) + HOUR_S // 2), refreshes=False)
        for one in (wire, other):
            one.expect("connected")
        clock.set(HOUR_S)
        wire.expect("authChallenge")
        assert other.is_closed()
        wire.say("authResponse", response={"auth_method_name": "token", "auth_data": token()})
        wire.producer("t")


def test_expiries_are_as_many_as_clients_whoever_has_come_and_gone() -> None:
    all_of_them = Expiries()
    for conn in range(1000):
        all_of_them.note(conn, 1e12 + conn)
        if conn % 10:
            all_of_them.forget(conn)
    for again in range(1000):
        all_of_them.note(0, 1e12 + again)
    assert len(all_of_them) <= 2 * 100 + SPARE
    assert all_of_them.soonest_s() is not None
    assert list(all_of_them.over(1e12 - 1)) == []
    assert list(all_of_them.over(2e12)) == [*range(10, 1000, 10), 0]
    assert all_of_them.soonest_s() is None
