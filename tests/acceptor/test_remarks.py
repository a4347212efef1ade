"""What the log is told of others: all of it as long as that is little, and then how much it was."""

from __future__ import annotations

import logging
import re
from typing import Final

import pytest
from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.remarks import LINE, MINUTE_NS, OTHERS, SAME, Remarks

from tests.nats.clusters import OURS, Member
from tests.nats.route_wire import CONNECT, INFO, RouteWire, line
from tests.servers import free_port, wait_until

CONF: Final = """
host: 127.0.0.1, port: $PORT, server_name: "same", http: "127.0.0.1:%d"
cluster { name: xyz, listen: "127.0.0.1:$ROUTE_PORT" }
"""

log = logging.getLogger("remarks")


class Clock:
    now_ns = 5

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def remarks(clock: Clock, caplog: pytest.LogCaptureFixture) -> Remarks:
    caplog.set_level(logging.DEBUG, "remarks")
    return Remarks(log, clock)


def test_of_one_server_there_are_few_lines_a_minute_and_the_last(
    remarks: Remarks, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(1000):
        remarks.say(logging.INFO, "a", f"a is {n}")
    remarks.say(logging.ERROR, "b", "b is wrong")
    assert caplog.messages == [*(f"a is {n}" for n in range(SAME)), "b is wrong"]
    assert remarks.wait_ns() == MINUTE_NS
    clock.now_ns += MINUTE_NS - 1
    remarks.expire()
    assert remarks.wait_ns() == 1
    caplog.clear()
    clock.now_ns += 1
    remarks.expire()
    assert caplog.messages == [f"a is 999 ({1000 - SAME} lines like it in a minute)"]
    assert remarks.wait_ns() == FOREVER
    remarks.say(logging.INFO, "a", "a again")
    assert caplog.messages[1:] == ["a again"]


def test_strangers_of_many_names_are_few_lines_too(
    remarks: Remarks, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(100_000):
        remarks.say(logging.INFO, f"{n}", f"{n} is there")
    assert len(caplog.messages) == OTHERS + SAME
    clock.now_ns += MINUTE_NS
    remarks.expire()
    assert caplog.messages[OTHERS + SAME :] == [f"99999 is there ({100_000 - OTHERS - SAME} lines like it in a minute)"]


@pytest.mark.parametrize("name", ["a\nINFO: b", "\x1b[2J", "x" * 100_000])
def test_a_line_is_one_and_short(remarks: Remarks, caplog: pytest.LogCaptureFixture, name: str) -> None:
    remarks.say(logging.INFO, name, name)
    assert caplog.messages[0].isprintable()
    assert len(caplog.messages[0]) <= LINE + 20


def test_a_server_with_the_name_of_this_one_comes_again_and_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    member = Member(OURS, tmp_path_factory.mktemp("same"), conf=CONF % free_port())
    member.start()
    try:
        member.wait()
        for _ in range(5 * SAME):
            wire = RouteWire(member.route_port)
            wire.send(line("CONNECT", CONNECT) + line("INFO", {**INFO, "server_name": "same"}))
            assert wire.rest() == b""
            wire.close()
        wait_until(lambda: 'name of this server: "same"' in member.said(), "that is said")
        assert len(re.findall(r'name of this server: "same"', member.said())) <= SAME
    finally:
        member.stop()
