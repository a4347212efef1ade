"""Who may publish what is asked of Python once, and remembered."""

from __future__ import annotations

import pytest

from tests.acceptor.bench import OPEN, SECOND
from tests.acceptor.nsq.bench import RESPONSE, START_NS, Bench, many, pub, sized


@pytest.mark.parametrize(
    ("line", "body", "early"),
    [
        (b"PUB t", sized(b"x"), False),
        (b"DPUB t 5", sized(b"x"), False),
        (b"MPUB t", many(b"x"), True),
    ],
)
def test_python_is_asked_whether_a_client_may_publish_until_it_has_said_so(
    bench: Bench, line: bytes, body: bytes, early: bool
) -> None:
    bench.acceptor.set("nsq.auth", 1)
    client = bench.client()
    client.send(line + b"\n")
    # nsqd looks at a body first, but for MPUB's.
    assert len(bench.upcalls) == early
    client.send(body)
    assert bench.commands() == [(client.number, line)]
    assert bench.take() == []
    bench.acceptor.call(client.number, "authorize", START_NS + 10 * SECOND, b"t")
    bench.acceptor.resume(client.number)
    bench.turn()
    client.send(line + b"\n" + body)
    assert bench.commands() == [], "it is remembered"
    requests = [request for request in bench.take() if request.kind != OPEN]
    assert len(requests) == 2
    client.send(pub(b"other", b"x"))
    assert bench.commands() == [], "everything before it is answered first"
    for request in requests:
        bench.answer(0, request)
    assert bench.commands() == [(client.number, b"PUB other")]


def test_authorizations_end_and_are_the_topics_own(bench: Bench) -> None:
    bench.acceptor.set("nsq.auth", 1)
    client = bench.client()

    def asked(topic: bytes) -> bool:
        client.send(pub(topic, b"x"))
        asked = bench.commands() == [(client.number, b"PUB " + topic)]
        if asked:
            bench.acceptor.call(client.number, "authorize", bench.now_ns + 10 * SECOND, topic)
            bench.acceptor.resume(client.number)
            bench.turn()
        bench.answer(0, bench.one())
        assert client.frames() == [(RESPONSE, b"OK")]
        return asked

    assert asked(b"a") and not asked(b"a") and asked(b"b") and not asked(b"a")
    bench.advance(9 * SECOND)
    assert not asked(b"a")
    bench.advance(SECOND)
    assert asked(b"a") and not asked(b"a")
    topics = [b"n%d" % i for i in range(17)]
    assert all(asked(topic) for topic in topics)
    assert not asked(topics[16]) and asked(topics[0]), "sixteen are remembered"
    bench.acceptor.call(client.number, "authorized-until-ns", bench.now_ns)
    assert asked(topics[16])


def test_an_authorization_that_is_over_at_once_serves_one_command(bench: Bench) -> None:
    bench.acceptor.set("nsq.auth", 1)
    client = bench.client()
    for _ in range(3):
        client.send(b"MPUB t\n" + many(b"x"))
        assert bench.commands() == [(client.number, b"MPUB t")]
        bench.acceptor.call(client.number, "authorize", 0, b"t")
        bench.acceptor.resume(client.number)
        bench.turn()
        bench.answer(0, bench.one())
