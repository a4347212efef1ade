"""Who may publish what is asked of Python once, and remembered."""

from __future__ import annotations

import pytest
from mq_shards.acceptor.engine import protocol_number

from tests.acceptor.bench import OPEN, SECOND
from tests.acceptor.nsq.bench import ERROR, RESPONSE, START_NS, Bench, Client, many, pub, sized


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
    client, other = bench.client(), bench.client()

    def asked(topic: bytes, client: Client = client) -> bool:
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
    topics = [b"n%d" % i for i in range(300)]
    assert all(asked(topic) for topic in topics)
    assert not any(asked(topic) for topic in topics), "hundreds are remembered"
    assert asked(topics[0], other) and not asked(topics[0], other), "nobody has what was another's"
    bench.acceptor.call(client.number, "authorized-until-ns", bench.now_ns)
    assert asked(topics[16])
    bench.acceptor.call(client.number, "authorized-until-ns", 2**64 - 1)
    assert not asked(topics[16])
    bench.acceptor.call(client.number, "forget-authorized")
    assert asked(topics[16]) and not asked(topics[16]) and not asked(topics[0], other)


def test_more_than_there_is_room_for_is_asked_again_and_nothing_else_happens(bench: Bench) -> None:
    bench.acceptor.set("nsq.auth", 1)
    client = bench.client()
    client.send(pub(b"first", b"x"))
    for i in range(40_000):
        bench.acceptor.call(client.number, "authorize", bench.now_ns + 10 * SECOND, b"n%d" % i)
    bench.acceptor.resume(client.number)
    bench.turn()
    bench.commands()
    bench.answer(0, bench.one())
    asked = 0
    for topic in (b"n%d" % i for i in range(39_000, 39_200)):
        client.send(pub(topic, b"x"))
        if bench.commands():
            asked += 1
            bench.acceptor.call(client.number, "authorize", bench.now_ns + 10 * SECOND, topic)
            bench.acceptor.resume(client.number)
            bench.turn()
        bench.answer(0, bench.one())
    assert asked < 100


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


def test_a_number_that_another_name_has_by_now_makes_no_topic_of_that(bench: Bench) -> None:
    """A tube may be called what a topic may not."""
    client, others, tubes = bench.client(), bench.client(), Client(bench, protocol=protocol_number("beanstalk"))
    bench.clients.append(tubes)
    bench.turn()
    bench.take()
    client.send(pub(b"first", b"x"))
    request = bench.one()
    bench.answer(0, request)
    client.frames()
    for i in range(1100):
        others.send(pub(b"n%d" % i, b"x"))
        bench.answer(0, bench.one())
        others.frames()
        if i > 1000:
            tubes.send(b"watch a/tube/%d\r\n" % i)
            bench.take()
    name = bench.acceptor.topic_name(request.topic)
    assert name.startswith(b"a/tube/"), "the number was given to it"
    client.send(pub(name, b"x"))
    assert client.frames() == [(ERROR, b'E_BAD_TOPIC PUB topic name "%s" is not valid' % name)]
