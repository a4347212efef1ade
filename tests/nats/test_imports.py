"""From account to account and on: long ways, ways that part and meet, and ways that lead back."""

from __future__ import annotations

import json

from tests.nats.conftest import server_of
from tests.nats.servers import NatsServer
from tests.nats.wire import Wire

server = server_of("imports.conf")


def client(server: NatsServer, user: str, *commands: bytes) -> Wire:
    wire = Wire(server.port)
    said = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "user": user, "pass": user}
    wire.send(b"CONNECT %s\r\n%s" % (json.dumps(said).encode(), b"".join(commands)))
    wire.barrier()
    return wire


def ask(subject: bytes, reply: bytes = b"in.1", payload: bytes = b"?") -> bytes:
    return b"PUB %s %s %d\r\n%s\r\n" % (subject, reply, len(payload), payload)


def settled(wire: Wire) -> bytes:
    """What it has been sent before the answer to its PING, which comes behind."""
    before = len(wire.heard.data)
    wire.barrier()
    return wire.heard.data[before:]


def asked(wire: Wire, subject: bytes) -> list[tuple[bytes, bytes]]:
    """The replies and payloads of requests that were heard there."""
    found = []
    rest = settled(wire)
    while (begin := rest.find(b"HMSG " + subject)) >= 0:
        line, _, rest = rest[begin:].partition(b"\r\n")
        words = line.split()
        headers, total = int(words[-2]), int(words[-1])
        found.append((words[3], rest[headers:total]))
        rest = rest[total:]
    return found


def test_a_request_goes_a_long_way_and_its_answer_comes_back(server: NatsServer) -> None:
    service, taker = client(server, "l11", b"SUB w11 1\r\n"), client(server, "l0", b"SUB in.* 1\r\n")
    for n in range(20):
        taker.send(ask(b"w", payload=b"question %d" % n))
        settled(taker)
        [(reply, payload)] = asked(service, b"w11")
        assert payload == b"question %d" % n
        service.send(b"PUB %s 4\r\nback\r\n" % reply)
        settled(service)
        assert b"MSG in.1 1 4\r\nback\r\n" in settled(taker)


def test_what_is_sent_after_the_answer_leaves_later_requests_alone(server: NatsServer) -> None:
    service, taker = client(server, "l11", b"SUB w11 1\r\n"), client(server, "l10", b"SUB in.* 1\r\n")
    taker.send(ask(b"w10"))
    settled(taker)
    [(reply, _)] = asked(service, b"w11")
    guessed = reply[:-16] + b"0" * 16
    for subject in (reply, reply, guessed, guessed):
        service.send(b"PUB %s 4\r\nback\r\n" % subject)
    settled(service)
    assert settled(taker).count(b"MSG in.1 1 4\r\nback\r\n") == 1
    for n in range(2):
        taker.send(ask(b"w10", b"in.%d" % n, b"%d" % n))
    settled(taker)
    found = asked(service, b"w11")
    assert sorted(payload for _, payload in found) == [b"0", b"1"]
    for subject, payload in found:
        service.send(b"PUB %s 1\r\n%s\r\n" % (subject, payload))
    settled(service)
    said = settled(taker)
    assert [said.count(b"MSG in.%d 1 1\r\n%d\r\n" % (n, n)) for n in range(2)] == [1, 1]


def test_ways_that_part_and_meet_bring_the_same_message_each(server: NatsServer) -> None:
    """One of the ways goes on through more accounts than the others, before those are gone."""
    last, third = client(server, "last", b"SUB last 1\r\n"), client(server, "m3", b"SUB m 1\r\n")
    first, one = client(server, "m1", b"SUB m 1\r\n"), client(server, "one", b"SUB one 1\r\n")
    taker = client(server, "many", b"SUB in.* 1\r\n")
    payload = bytes(range(32, 127)) * 200
    taker.send(ask(b"ask", payload=payload))
    settled(taker)
    wires = ((last, b"last"), (third, b"m"), (first, b"m"), (one, b"one"))
    heard = [asked(wire, subject) for wire, subject in wires]
    assert [len(each) for each in heard] == [2, 1, 1, 2]
    assert all(body == payload for each in heard for _, body in each)
    assert len({reply for each in heard for reply, _ in each}) == 6
    for (wire, _), messages in zip(wires, heard, strict=True):
        for reply, _ in messages:
            wire.send(b"PUB %s 2\r\nhi\r\n" % reply)
        settled(wire)
    # Each of the three ways takes one answer, whoever is first.
    assert settled(taker).count(b"MSG in.1 1 2\r\nhi\r\n") == 3


def test_a_way_that_leads_back_ends_there(server: NatsServer) -> None:
    """That names change on the way hides it when the configuration is read."""
    services = [client(server, name, b"SUB %s 1\r\n" % name.encode()) for name in ("b", "c")]
    taker = client(server, "a", b"SUB in.* 1\r\n")
    for _ in range(50):
        taker.send(ask(b"a"))
        settled(taker)
        assert [len(asked(wire, subject)) for wire, subject in zip(services, (b"b", b"c"), strict=True)] == [1, 1]


def test_who_asks_where_nobody_listens_on_all_ways_is_told(server: NatsServer) -> None:
    taker = client(server, "a", b"SUB in.* 1\r\n")
    taker.send(ask(b"a"))
    assert b"NATS/1.0 503" in settled(taker)
