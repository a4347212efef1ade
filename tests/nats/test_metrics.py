"""/metrics and /varz count all messages of NATS, which no topic keeps: those of clients and those of other servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, meshed, mixtures, settled
from tests.nsq import api
from tests.nsq.test_metrics import figure
from tests.servers import free_port

MESSAGES = 50
BODY = b"12345"
HTTP_PORT = free_port()


@pytest.fixture(params=mixtures((OURS, NEW_REAL), (OURS_3, OURS)), scope="module")
def members(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[tuple[Member, int]]]:
    """Two servers, with their monitoring ports; the first is ours and shows /metrics."""
    directory = tmp_path_factory.mktemp("counted")
    found: list[tuple[Member, int]] = []
    try:
        for kind in request.param:
            port, routes = free_port(), [member.route_url for member, _ in found]
            arguments = ("-m", str(port)) if kind == NEW_REAL else ()
            options = () if kind == NEW_REAL else ("--listen", f"nats-http://127.0.0.1:{port}")
            options += () if found else ("--listen", f"http://127.0.0.1:{HTTP_PORT}")
            member = Member(kind, directory, routes, extra=arguments, options=options)
            found.append((member, port))
            member.start()
            member.wait()
        meshed([member for member, _ in found])
        yield found
    finally:
        for member, _ in found:
            member.stop()


def passed(what: str) -> dict[tuple[str, str], float]:
    text = api.call(HTTP_PORT, "GET", "/metrics").body.decode()
    return {
        (protocol, way): figure(text, f"protocol_{what}_total", protocol=protocol, direction=way)
        for protocol in ("nats", "nats-route", "nats-leaf")
        for way in ("in", "out")
    }


def test_what_passes_is_counted_by_protocol_and_direction(members: list[tuple[Member, int]]) -> None:
    both = [member for member, _ in members]
    listeners = [member.client(b"SUB news 1\r\n") for member in both]
    meshed(both)
    before = passed("messages"), passed("bytes"), [api.call(port, "GET", "/varz").json for _, port in members]
    for member in both:
        member.client(b"PUB news %d\r\n%s\r\n" % (len(BODY), BODY) * MESSAGES).close()
    settled(both, listeners, 2 * MESSAGES * len(listeners))
    after = passed("messages"), passed("bytes"), [api.call(port, "GET", "/varz").json for _, port in members]
    # Each server has its client's and the other's messages, and sends its client's on to the other.
    expected = {
        ("nats", "in"): 1, ("nats", "out"): 2, ("nats-route", "in"): 1, ("nats-route", "out"): 1,
        ("nats-leaf", "in"): 0, ("nats-leaf", "out"): 0,
    }  # fmt: skip
    for unit, was, now in zip((1, len(BODY)), before[:2], after[:2], strict=True):
        assert {way: now[way] - was[way] for way in now} == {
            way: times * MESSAGES * unit for way, times in expected.items()
        }
    wanted = {"in_msgs": 2, "in_client_msgs": 1, "out_msgs": 3, "out_client_msgs": 2}
    for was, now in zip(before[2], after[2], strict=True):
        assert {name: now[name] - was[name] for name in wanted} == {
            name: times * MESSAGES for name, times in wanted.items()
        }
    for wire in listeners:
        wire.close()
