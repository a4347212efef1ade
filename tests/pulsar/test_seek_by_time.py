"""Seeks to a time go by the times that producers give, as at a real broker: a client whose clock leads or lags finds
what it has seen in messages."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from tests.nsq.wire import Wire as NsqWire
from tests.pulsar.record_roles import request
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import MAX, Wire, payload_of

COUNT = 10
HOUR_MS = 3_600_000
SECOND_MS = 1000
EARLIEST = {"ledgerId": MAX, "entryId": MAX}
LATEST = {"ledgerId": MAX >> 1, "entryId": MAX >> 1}


def published(wire: Wire, topic: str, base_ms: int) -> None:
    """One message each second."""
    wire.producer(topic)
    for number in range(COUNT):
        wire.send(b"%d" % number, sequence=number, publish_time=base_ms + number * SECOND_MS)
        wire.expect("send_receipt")


def comes(wire: Wire, consumer: int) -> list[int]:
    """From the next message on all there are."""
    wire.flow(100, consumer)
    last = wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=consumer)
    found: list[int] = []
    if last.consumer_mark_delete_position.entryId != last.last_message_id.entryId:
        while not found or found[-1] != COUNT - 1:
            found.append(int(payload_of(wire.message(consumer))))
    wire.quiet()
    assert not wire.pending("message")
    return found


@pytest.fixture(params=[-HOUR_MS, HOUR_MS], ids=["lags", "leads"])
def base_ms(request: pytest.FixtureRequest) -> int:
    """When a client published its first message, by its own clock."""
    return int(time.time() * 1000) + int(request.param)


PLACES = [(-1, 0), (0, 0), (3500, 4), (4000, 4), (4001, 5), (9000, 9), (9001, COUNT), (2 * HOUR_MS, COUNT)]


@pytest.mark.parametrize("durable", [True, False])
def test_a_seek_finds_the_first_message_of_that_time_or_later(
    wire: Wire, topic: str, base_ms: int, durable: bool
) -> None:
    published(wire, topic, base_ms)
    consumer = 0
    for after_ms, first in PLACES:
        consumer += 1
        wire.subscribe(topic, consumer=consumer, durable=durable)
        wire.ask("seek", consumer_id=consumer, message_publish_time=base_ms + after_ms)
        wire.expect("close_consumer")
        consumer += 1
        wire.subscribe(topic, consumer=consumer, durable=durable)
        assert comes(wire, consumer) == list(range(first, COUNT)), after_ms
        wire.ask("close_consumer", consumer_id=consumer)


def test_a_time_below_zero_is_the_beginning(wire: Wire, topic: str) -> None:
    """Java's clients send their signed numbers so."""
    published(wire, topic, HOUR_MS)
    wire.subscribe(topic, consumer=1)
    wire.ask("seek", consumer_id=1, message_publish_time=MAX - 60_000)
    wire.expect("close_consumer")
    wire.subscribe(topic, consumer=2)
    assert comes(wire, 2) == list(range(COUNT))


def test_the_rest_api_finds_it_too(server: PulsarServer, wire: Wire, topic: str, base_ms: int) -> None:
    published(wire, topic, base_ms)
    wire.subscribe(topic)
    wire.ask("close_consumer", consumer_id=1)
    path = f"persistent/public/default/{topic}"
    for consumer, (after_ms, first) in enumerate(PLACES, 2):
        found = request(server.http, "", "", "GET", f"{path}/messageid/{base_ms + after_ms}")["json"]
        assert found["entryId"] == first
        asked = f"{path}/subscription/s/resetcursor/{base_ms + after_ms}"
        assert request(server.http, "", "", "POST", asked)["status"] == 204
        wire.subscribe(topic, consumer=consumer)
        assert comes(wire, consumer) == list(range(first, COUNT)), after_ms
        wire.ask("close_consumer", consumer_id=consumer)


@pytest.mark.parametrize("named", [{}, {"start_message_id": EARLIEST}, {"start_message_id": LATEST}])
def test_a_reader_goes_back_by_a_duration(wire: Wire, topic: str, named: Mapping[str, object]) -> None:
    published(wire, topic, int(time.time() * 1000) - 20 * SECOND_MS)
    wire.subscribe(topic, durable=False, start_message_rollback_duration_sec=16, **named)
    found = comes(wire, 1)
    assert found == list(range(found[0], COUNT)) and 4 <= found[0] < COUNT


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_subscription_that_is_there_goes_back_by_a_duration(wire: Wire, topic: str, kind: int) -> None:
    """As by a seek: its consumer is closed, and what it had acknowledged comes again to who has asked for that."""
    published(wire, topic, int(time.time() * 1000) - 20 * SECOND_MS)
    wire.subscribe(topic, kind=kind, initialPosition=1)
    wire.flow(100)
    for frame in wire.messages(COUNT):
        wire.ack({"ledgerId": frame.body.message_id.ledgerId, "entryId": frame.body.message_id.entryId})
    wire.subscribe(topic, kind=kind, consumer=2, start_message_rollback_duration_sec=16)
    assert wire.expect("close_consumer").consumer_id == 1
    found = comes(wire, 2)
    assert found == list(range(found[0], COUNT)) and 4 <= found[0] < COUNT


def test_a_seek_to_an_id_behind_one_to_a_time_comes_after_it(wire: Wire, topic: str, base_ms: int) -> None:
    published(wire, topic, base_ms)
    wire.subscribe(topic, initialPosition=1)
    wire.flow(100)
    place = wire.messages(COUNT)[7].body.message_id
    wire.say("seek", request_id=1000, consumer_id=1, message_publish_time=base_ms)
    wire.say("seek", request_id=1001, consumer_id=1, message_publish_time=base_ms + 2000)
    wire.say("seek", request_id=1002, consumer_id=1, message_id={"ledgerId": place.ledgerId, "entryId": place.entryId})
    for number in (1000, 1001, 1002):
        frame = wire.until(lambda one, n=number: getattr(one.body, "request_id", None) == n)  # type: ignore[misc]
        assert frame.name == "success"
    wire.subscribe(topic, consumer=2)
    assert comes(wire, 2) == [7, 8, 9]


def test_what_others_have_published_is_of_the_time_when_it_was_stored(
    server: PulsarServer, wire: Wire, topic: str
) -> None:
    wire.subscribe(topic, initialPosition=1)
    with NsqWire(server.other_port) as nsq:
        nsq.publish(topic, b"0")
        between_ms = int(time.time() * 1000) + 2
        while time.time() * 1000 < between_ms + 2:
            time.sleep(0.001)
        nsq.publish(topic, b"1")
    wire.ask("seek", consumer_id=1, message_publish_time=between_ms)
    wire.subscribe(topic, consumer=2)
    wire.flow(10, 2)
    assert payload_of(wire.message(2)) == b"1"


def test_a_time_is_found_in_what_is_not_all_there_any_more(wire: Wire, topic: str, base_ms: int) -> None:
    """Nothing is there: the end. A topic that nobody has used has none either."""
    wire.subscribe(topic)
    wire.ask("seek", consumer_id=1, message_publish_time=base_ms)
    start = EARLIEST
    wire.subscribe(topic + "-new", "r", consumer=3, durable=False, start_message_id=start)
    wire.ask("seek", consumer_id=3, message_publish_time=base_ms)
    wire.subscribe(topic, consumer=2)
    published(wire, topic, base_ms)
    assert comes(wire, 2) == list(range(COUNT))
