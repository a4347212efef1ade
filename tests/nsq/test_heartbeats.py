"""Heartbeats: when they come, what answers them, and what happens to a client that does not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.nsq.frames import HEARTBEAT, OK, RESPONSE, Frame
from tests.nsq.scenes import Scenarios, Scene
from tests.nsq.servers import NsqServer
from tests.nsq.wire import unique_topic

INTERVAL = 1.0
BEAT = Frame(RESPONSE, HEARTBEAT)

scenario = Scenarios(wait_for_scan=False)


@pytest.fixture(scope="module")
def outcomes(server: NsqServer) -> Iterator[dict[str, Future[None]]]:
    yield from scenario.run(server)


@scenario
def they_come_at_the_interval_and_nop_answers_them(scene: Scene) -> None:
    scene.starts_in_what_follows()
    wire = scene.consumer(heartbeat_interval=1000)
    scene.start()
    for n in range(1, 3):
        assert wire.frame() == BEAT
        scene.passed(n * INTERVAL)
        wire.send(b"NOP\n")
    assert wire.is_quiet(0.1)


@scenario
def they_come_without_sub_too(scene: Scene) -> None:
    scene.starts_in_what_follows()
    wire = scene.producer()
    wire.identify(heartbeat_interval=1000)
    scene.start()
    for n in range(1, 3):
        assert wire.frame() == BEAT
        scene.passed(n * INTERVAL)
        wire.send(b"NOP\n")


@scenario
def a_longer_interval_is_kept(scene: Scene) -> None:
    scene.starts_in_what_follows()
    wire = scene.consumer(heartbeat_interval=1500)
    scene.start()
    assert wire.frame() == BEAT
    scene.passed(1.5)


@scenario
def two_without_an_answer_close_the_connection(scene: Scene) -> None:
    scene.starts_in_what_follows()
    wire = scene.consumer(heartbeat_interval=1000)
    scene.start()
    frames = wire.frames_until_close()
    scene.passed(2 * INTERVAL)
    assert 1 <= len(frames) <= 2
    assert set(frames) == {BEAT}


@scenario
def a_silent_client_that_never_subscribed_is_closed_too(scene: Scene) -> None:
    scene.starts_in_what_follows()
    wire = scene.producer()
    wire.identify(heartbeat_interval=1000)
    scene.start()
    assert set(wire.frames_until_close()) == {BEAT}
    scene.passed(2 * INTERVAL)


@scenario
def any_command_is_an_answer(scene: Scene) -> None:
    wire = scene.consumer(heartbeat_interval=1000)
    topic = unique_topic()
    scene.start()
    beats = 0
    for n in range(1, 4):
        scene.sleep_until(n * 1.1 * INTERVAL)
        wire.send(b"RDY 0\n" if n == 2 else f"PUB {topic}\n\0\0\0\1x".encode())
        if n != 2:
            while (frame := wire.frame()) != OK:
                assert frame == BEAT
                beats += 1
    assert beats == 3


@scenario
def what_a_silent_client_held_comes_again(scene: Scene) -> None:
    """nsqd waits for the time-out, mq-shards gives it back at once."""
    silent, other = scene.consumer(rdy=1, heartbeat_interval=1000, msg_timeout=2100), scene.consumer()
    other.publish(scene.topic, b"x")
    message = silent.message()
    other.rdy(1)
    again = other.message()
    assert (again.id, again.attempts) == (message.id, 2)


@scenario
def switched_off_there_are_none_and_silence_is_no_fault(scene: Scene) -> None:
    wire = scene.producer()
    assert wire.identify(heartbeat_interval=-1)
    assert wire.is_quiet(2 * INTERVAL + 0.3)
    wire.publish(unique_topic(), b"x")


@scenario
def by_default_they_are_much_rarer(scene: Scene) -> None:
    wire, other = scene.consumer(), scene.producer()
    assert wire.is_quiet(2 * INTERVAL + 0.3)
    assert other.is_quiet(0.01)


@pytest.mark.parametrize("name", scenario.functions)
def test_heartbeats(outcomes: dict[str, Future[None]], name: str) -> None:
    outcomes[name].result(30)
