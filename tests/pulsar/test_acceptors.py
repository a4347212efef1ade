"""What holds over all acceptors: names of producers, exclusive places, and who is active."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from mq_shards.acceptor.protocols.pulsar.messages import Message
from mq_shards.acceptor.protocols.pulsar.subscribe import EXCLUSIVE as EXCLUSIVE_CONSUMER
from mq_shards.acceptor.protocols.pulsar.subscribe import FAILOVER, KEY_SHARED, SHARED

from tests.pulsar.servers import PulsarServer, running, stopped
from tests.pulsar.test_bundles import asked
from tests.pulsar.wire import Wire, payload_of

EXCLUSIVE, WAIT, FENCE = 1, 2, 3
CONSUMER_BUSY, SERVICE_NOT_READY, PRODUCER_BUSY, PRODUCER_FENCED = 5, 6, 16, 25
MOST_TRIES = 64


@pytest.fixture(scope="module")
def server() -> Iterator[PulsarServer]:
    with running(workers=2, acceptors=2) as server:
        yield server


def acceptor_of(wire: Wire) -> str:
    """The names that it gives to producers have its number."""
    name = wire.producer("whose", producer=1000).producer_name
    wire.ask("close_producer", producer_id=1000)
    return str(name.partition("-")[0].removeprefix("mq"))


@pytest.fixture
def pair(server: PulsarServer) -> Iterator[tuple[Wire, Wire]]:
    """Connections to two acceptors; which one it is the kernel's choice."""
    one = Wire(server.port).connect()
    there = acceptor_of(one)
    for _ in range(MOST_TRIES):
        other = Wire(server.port).connect()
        if acceptor_of(other) != there:
            break
        other.__exit__()
    else:
        raise AssertionError("all connections go to one acceptor")
    with one, other:
        yield one, other


def refused(one: Wire, other: Wire, name: str, **fields: object) -> Message:
    """What the other is told once the one, who is in its way, has shown that it is alive."""
    other.say(name, request_id=700, **fields)
    one.until(lambda frame: frame.name == "ping")
    one.say("pong")
    frame = other.until(lambda frame: getattr(frame.body, "request_id", 0) == 700)
    assert frame.name == "error", frame
    return frame.body


def test_a_name_is_one_producers(pair: tuple[Wire, Wire], topic: str) -> None:
    one, other = pair
    one.producer(topic, producer_name="n")
    error = refused(one, other, "producer", topic=topic, producer_id=1, producer_name="n")
    assert error.error == PRODUCER_BUSY and "'n' is already connected" in error.message
    one.ask("close_producer", producer_id=1)
    assert other.producer(topic, producer_name="n").producer_name == "n"


def test_an_exclusive_producer_is_alone(pair: tuple[Wire, Wire], topic: str) -> None:
    one, other = pair
    first = one.producer(topic, producer_access_mode=EXCLUSIVE)
    assert first.topic_epoch == 0
    for mode, error in ((0, PRODUCER_BUSY), (EXCLUSIVE, PRODUCER_FENCED)):
        assert refused(one, other, "producer", topic=topic, producer_id=1, producer_access_mode=mode).error == error
    one.ask("close_producer", producer_id=1)
    assert other.producer(topic, producer_access_mode=EXCLUSIVE).topic_epoch == 1
    error = refused(other, one, "producer", topic=topic, producer_id=2, producer_access_mode=EXCLUSIVE)
    assert error.error == PRODUCER_FENCED


def test_who_waits_gets_in_when_the_others_have_gone(pair: tuple[Wire, Wire], topic: str) -> None:
    one, other = pair
    one.producer(topic, producer_access_mode=EXCLUSIVE)
    waits = other.producer(topic, producer_access_mode=WAIT)
    assert not waits.producer_ready
    one.ask("close_producer", producer_id=1)
    ready = other.expect("producer_success")
    assert (ready.producer_ready, ready.topic_epoch, ready.request_id) == (True, 1, waits.request_id)
    other.send(b"x")
    other.expect("send_receipt")


def test_who_fences_throws_out_all_others(pair: tuple[Wire, Wire], topic: str) -> None:
    one, other = pair
    one.producer(topic)
    waiting = one.producer(topic, producer=2, producer_access_mode=WAIT)
    assert not waiting.producer_ready
    assert other.producer(topic, producer_access_mode=FENCE).topic_epoch == 0
    fenced = one.expect("error")
    assert (fenced.request_id, fenced.error) == (waiting.request_id, PRODUCER_FENCED)
    one.send(b"x")
    assert one.is_closed()
    other.send(b"y")
    other.expect("send_receipt")


def test_nothing_is_stored_of_who_was_fenced_off_by_another_acceptor(
    server: PulsarServer, pair: tuple[Wire, Wire], topic: str
) -> None:
    """Its own acceptor hears of that only when it has passed on what its client has sent."""
    one, other = pair
    number = acceptor_of(one)
    one.producer(topic)
    one.send(b"before")
    one.expect("send_receipt")
    with stopped(server.pid_of(f"mq-acceptor-{number}")):
        for sequence in range(1, 9):
            one.send(b"behind", sequence=sequence)
        other.producer(topic, producer_access_mode=FENCE)
        other.send(b"exclusive")
        first = other.expect("send_receipt").message_id
    assert one.is_closed()
    other.send(b"exclusive", sequence=1)
    second = other.expect("send_receipt").message_id
    assert second.entryId == first.entryId + 1, "nothing was stored between"


def test_an_epoch_of_before_is_refused(pair: tuple[Wire, Wire], topic: str) -> None:
    one, other = pair
    for epoch in range(2):
        assert one.producer(topic, producer_access_mode=EXCLUSIVE).topic_epoch == epoch
        one.ask("close_producer", producer_id=1)
    error = other.ask("producer", "error", topic=topic, producer_id=1, producer_access_mode=EXCLUSIVE, topic_epoch=0)
    assert error.error == PRODUCER_FENCED
    assert other.producer(topic, producer_access_mode=EXCLUSIVE, topic_epoch=1).topic_epoch == 2


def test_a_connection_that_ends_frees_its_names(server: PulsarServer, pair: tuple[Wire, Wire], topic: str) -> None:
    one, other = pair
    one.producer(topic, producer_name="n", producer_access_mode=EXCLUSIVE)
    waits = other.producer(topic, producer_access_mode=WAIT)
    assert not waits.producer_ready
    one.socket.close()
    assert other.expect("producer_success").producer_ready


def test_a_client_that_is_dead_is_found_out_over_there(pair: tuple[Wire, Wire], topic: str) -> None:
    """It answers no PING: whoever wants its name gets it, after five seconds."""
    one, other = pair
    one.producer(topic, producer_name="n")
    one.subscribe(topic, kind=EXCLUSIVE_CONSUMER)
    other.socket.settimeout(20)
    other.say("producer", request_id=500, topic=topic, producer_id=1, producer_name="n")
    other.say("subscribe", request_id=501, topic=topic, subscription="s", subType=EXCLUSIVE_CONSUMER, consumer_id=1)
    assert other.until(lambda frame: getattr(frame.body, "request_id", 0) == 500).name == "producer_success"
    assert other.until(lambda frame: getattr(frame.body, "request_id", 0) == 501).name == "success"
    frames = []
    while (frame := one.receive()) is not None:
        frames.append(frame.name)
    assert frames == ["ping"]


def test_a_worker_that_dies_takes_nobodys_name_along(server: PulsarServer, pair: tuple[Wire, Wire], topic: str) -> None:
    one, other = pair
    one.producer(topic, producer_name="n", producer_access_mode=EXCLUSIVE)
    assert not other.producer(topic, producer_access_mode=WAIT).producer_ready
    for worker in (0, 1):
        os.kill(server.pid_of(f"mq-worker-{worker}"), signal.SIGKILL)
    assert one.expect("close_producer").producer_id == 1
    assert other.expect("error").error == SERVICE_NOT_READY  # it waits no more: it asks again
    again = one.producer(topic, producer_name="n", producer_access_mode=EXCLUSIVE)
    assert again.producer_ready
    assert not other.producer(topic, producer_access_mode=WAIT).producer_ready


def test_who_waits_is_told_to_ask_again_when_a_topic_is_unloaded(
    server: PulsarServer, pair: tuple[Wire, Wire], topic: str
) -> None:
    """It would be fenced off else, and its application told so."""
    one, other = pair
    one.producer(topic, producer_access_mode=EXCLUSIVE)
    waits = other.producer(topic, producer_access_mode=WAIT)
    local = topic.removeprefix("persistent://public/default/")
    assert asked(server, "PUT", f"persistent/public/default/{local}/unload")[0] == 204
    assert one.expect("close_producer").producer_id == 1
    error = other.expect("error")
    assert (error.request_id, error.error) == (waits.request_id, SERVICE_NOT_READY)
    assert other.producer(topic, producer_access_mode=WAIT).producer_ready
    assert not other.frames, "it is not told that it is closed"


# --- consumers --------------------------------------------------------------------------------------------------------


def test_an_exclusive_consumer_is_alone(pair: tuple[Wire, Wire], topic: str) -> None:
    one, other = pair
    one.subscribe(topic, kind=EXCLUSIVE_CONSUMER)
    for kind in (EXCLUSIVE_CONSUMER, SHARED, FAILOVER, KEY_SHARED):
        error = refused(one, other, "subscribe", topic=topic, subscription="s", subType=kind, consumer_id=1)
        assert error.error == CONSUMER_BUSY
    one.ask("close_consumer", consumer_id=1)
    other.subscribe(topic, kind=EXCLUSIVE_CONSUMER)


def test_one_of_all_consumers_of_a_failover_subscription_is_active(pair: tuple[Wire, Wire], topic: str) -> None:
    one, other = pair
    name = f"{topic}-partition-0"
    one.subscribe(name, kind=FAILOVER, consumer_name="b")
    one.flow(100)
    assert one.expect("active_consumer_change").is_active
    other.subscribe(name, kind=FAILOVER, consumer_name="a")
    other.flow(100)
    assert other.expect("active_consumer_change").is_active
    assert not one.expect("active_consumer_change").is_active
    one.producer(name)
    one.send(b"1")
    assert payload_of(other.message()) == b"1"
    other.socket.close()
    assert one.expect("active_consumer_change").is_active
    assert payload_of(one.message()) == b"1"
