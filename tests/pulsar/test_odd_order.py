"""Commands in an order that no client sends them in, without waiting for answers: each is answered as if it had come
after the answers to those before, and nobody else notices. The same with values that no client gives their fields."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mq_shards.acceptor.protocols.pulsar.clients import TOPIC_NOT_FOUND
from mq_shards.acceptor.protocols.pulsar.messages import encode

from tests.pulsar import odd_fields
from tests.pulsar.odd_order import Script
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Frame, Wire, payload_of

SHARED = 1
FIRST = 1000  # the first request's number


@pytest.fixture(scope="module")
def server() -> Iterator[PulsarServer]:
    with running(workers=2, acceptors=2) as server:
        yield server
        assert "Traceback" not in server.stderr.read_text()


def subscribe(topic: str, request: int, consumer: int = 1, kind: int = 0) -> bytes:
    return encode(
        "subscribe", request_id=request, topic=topic, subscription="s", subType=kind, consumer_id=consumer,
        initialPosition=1,
    )  # fmt: skip


def about(name: str, request: int, consumer: int = 1, **fields: object) -> bytes:
    return encode(name, request_id=request, consumer_id=consumer, **fields)


def together(wire: Wire, *commands: bytes) -> list[Frame]:
    """The answers to commands that go out at once, whose requests are numbered from FIRST on."""
    wire.raw(b"".join(commands))
    wanted = {FIRST + n for n in range(len(commands))}
    return [
        wire.until(lambda frame, n=n: getattr(frame.body, "request_id", None) == n)  # type: ignore[misc]
        for n in sorted(wanted)
    ]


def prepared(wire: Wire, topic: str, count: int = 5) -> list[dict[str, int]]:
    wire.producer(topic)
    places = []
    for sequence in range(count):
        wire.send(b"%d" % sequence, sequence=sequence)
        place = wire.expect("send_receipt").message_id
        places.append({"ledgerId": place.ledgerId, "entryId": place.entryId})
    return places


def comes(wire: Wire, topic: str, count: int, consumer: int = 1) -> list[bytes]:
    """So many messages, and none behind them."""
    wire.flow(100, consumer)
    found = [payload_of(frame) for frame in wire.messages(count, consumer)]
    wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=consumer)
    assert not wire.pending("message"), topic
    return found


@pytest.mark.parametrize("seed", range(3))
def test_no_order_of_commands_ends_anything_but_its_own_connection(server: PulsarServer, seed: int) -> None:
    with Wire(server.port) as bystander:
        bystander.connect().producer(f"bystander-{seed}")
        for number in range(12):
            Script(server.port, 100 * seed + number).play()
        bystander.send(b"x")
        bystander.expect("send_receipt")


@pytest.mark.long
def test_none_of_many_orders_does(server: PulsarServer) -> None:
    with Wire(server.port) as bystander:
        bystander.connect().producer("bystander")
        for number in range(1000, 1500):
            Script(server.port, number).play()
            bystander.quiet()
        bystander.send(b"x")
        bystander.expect("send_receipt")


@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.long)])
def test_no_values_of_fields_end_anything_but_their_own_connection(server: PulsarServer, count: int) -> None:
    with Wire(server.port) as bystander:
        bystander.connect().producer("bystander-of-fields")
        for seed in range(count):
            odd_fields.play(server.port, seed)
            bystander.quiet()
        bystander.send(b"x")
        bystander.expect("send_receipt")


@pytest.mark.parametrize("version", [bytes(8), bytes(8) + b"\xff" * 40, b"\xff" * 40])
def test_a_version_of_a_schema_may_be_longer_than_it_is(server: PulsarServer, version: bytes) -> None:
    with Wire(server.port) as wire:
        answer = wire.connect().ask("getSchema", "getSchemaResponse", topic="versions", schema_version=version)
        assert answer.error_code == TOPIC_NOT_FOUND


def test_an_id_is_taken_again_while_its_consumer_is_closed(wire: Wire, topic: str) -> None:
    prepared(wire, topic)
    wire.subscribe(topic, initialPosition=1)
    answers = together(wire, about("close_consumer", FIRST), subscribe(topic, FIRST + 1))
    assert [frame.name for frame in answers] == ["success", "success"]
    assert comes(wire, topic, 5) == [b"0", b"1", b"2", b"3", b"4"]


def test_an_id_is_taken_again_while_a_seek_closes_its_consumer(wire: Wire, topic: str) -> None:
    places = prepared(wire, topic)
    wire.subscribe(topic, initialPosition=1)
    wire.ack(places[4], cumulative=True)
    answers = together(
        wire,
        about("seek", FIRST, message_id=places[2]),
        about("close_consumer", FIRST + 1),
        subscribe(topic, FIRST + 2),
    )
    assert [frame.name for frame in answers] == ["success"] * 3
    assert comes(wire, topic, 3) == [b"2", b"3", b"4"]


@pytest.mark.parametrize("kind", [0, SHARED])
def test_a_subscription_is_made_anew_by_a_subscribe_right_behind_its_unsubscribe(
    wire: Wire, topic: str, kind: int
) -> None:
    places = prepared(wire, topic)
    wire.subscribe(topic, kind=kind, initialPosition=1)
    wire.flow(5)
    wire.messages(5)
    wire.ack(*places[:3])
    answers = together(wire, about("unsubscribe", FIRST), subscribe(topic, FIRST + 1, kind=kind))
    assert [frame.name for frame in answers] == ["success", "success"]
    assert comes(wire, topic, 5) == [b"0", b"1", b"2", b"3", b"4"]


def test_an_id_stays_taken_when_its_unsubscribe_is_refused(wire: Wire, topic: str) -> None:
    prepared(wire, topic)
    wire.subscribe(topic, kind=SHARED, consumer=1)
    wire.subscribe(topic, kind=SHARED, consumer=2)
    answers = together(wire, about("unsubscribe", FIRST), subscribe(topic, FIRST + 1, kind=SHARED))
    assert [frame.name for frame in answers] == ["error", "success"]
    answers = together(
        wire, about("unsubscribe", FIRST), about("close_consumer", FIRST + 1), subscribe(topic, FIRST + 2, kind=SHARED)
    )
    assert [frame.name for frame in answers][1:] == ["success", "success"]


def test_of_two_seeks_the_second_says_where_a_subscription_is(wire: Wire, topic: str) -> None:
    """A real broker refuses the second."""
    places = prepared(wire, topic)
    wire.subscribe(topic, initialPosition=1)
    wire.ack(places[4], cumulative=True)
    answers = together(wire, about("seek", FIRST, message_id=places[3]), about("seek", FIRST + 1, message_id=places[1]))
    assert [frame.name for frame in answers] == ["success", "success"]
    wire.subscribe(topic, consumer=2)
    assert comes(wire, topic, 4, consumer=2) == [b"1", b"2", b"3", b"4"]


def test_what_is_acknowledged_behind_a_seek_comes_nevertheless(wire: Wire, topic: str) -> None:
    places = prepared(wire, topic)
    wire.subscribe(topic, kind=SHARED, initialPosition=1)
    wire.flow(5)
    wire.messages(5)
    ack = encode("ack", consumer_id=1, ack_type=0, message_id=places[2:4])
    wire.raw(about("seek", FIRST, message_id=places[1]) + ack)
    wire.until(lambda frame: getattr(frame.body, "request_id", None) == FIRST)
    wire.subscribe(topic, kind=SHARED, consumer=2)
    assert comes(wire, topic, 4, consumer=2) == [b"1", b"2", b"3", b"4"]
