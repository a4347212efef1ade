"""What time does to messages: time-outs, touches, requeues and publishes with a delay. The options are LIMITS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.nsq import frames
from tests.nsq.api import post
from tests.nsq.frames import error
from tests.nsq.scenes import EARLY, LATE, Scenarios, Scene
from tests.nsq.servers import NsqServer
from tests.nsq.wire import FLUSH_MS

MSG_TIMEOUT = 0.3
MAX_MSG_TIMEOUT = 1.0
MAX_REQ_TIMEOUT = 0.6

scenario = Scenarios()


@pytest.fixture(scope="module")
def outcomes(limited: NsqServer) -> Iterator[dict[str, Future[None]]]:
    yield from scenario.run(limited)


@scenario
def an_unfinished_message_goes_to_another_after_its_timeout(scene: Scene) -> None:
    holder, waiter = scene.consumer(rdy=1), scene.consumer()
    scene.publish(b"x")
    message = holder.message()
    scene.start()
    holder.rdy(0)
    waiter.rdy(1)
    again = waiter.message()
    scene.passed(MSG_TIMEOUT)
    assert (again.id, again.timestamp, again.attempts) == (message.id, message.timestamp, 2)
    for command, name in ((frames.fin, "FIN"), (frames.touch, "TOUCH")):
        text = f"E_{name}_FAILED {name} {message.id.decode()} failed client does not own message"
        assert holder.ask(command(message.id)) == error(text)
    waiter.fin(again)
    assert waiter.is_not_in_flight(again)
    text = f"E_REQ_FAILED REQ {message.id.decode()} failed ID not in flight"
    assert holder.ask(frames.req(message.id, 0)) == error(text)


@scenario
def a_timeout_makes_room(scene: Scene) -> None:
    wire = scene.consumer(rdy=1)
    scene.publish(b"x")
    assert wire.message().attempts == 1
    for attempts in (2, 3, 4):
        scene.start()
        message = wire.message()
        assert message.attempts == attempts
        scene.passed(MSG_TIMEOUT - FLUSH_MS / 1000)
    wire.fin(message)
    assert wire.is_quiet(MSG_TIMEOUT + 0.3)


@scenario
def a_timeout_makes_room_for_others(scene: Scene) -> None:
    wire = scene.consumer(rdy=1)
    scene.publish(b"1", b"2")
    assert wire.message().body == b"1"
    scene.start()
    bodies = {wire.message().body for _ in range(2)}
    scene.passed(2 * MSG_TIMEOUT)
    assert bodies == {b"1", b"2"}


@scenario
def a_clients_own_timeout_counts(scene: Scene) -> None:
    holder, waiter = scene.consumer(rdy=1, msg_timeout=1000), scene.consumer()
    scene.publish(b"x")
    holder.message()
    scene.start()
    holder.rdy(0)
    waiter.rdy(1)
    assert waiter.message().attempts == 2
    scene.passed(1)


@scenario
def a_finished_message_does_not_time_out(scene: Scene) -> None:
    wire = scene.consumer(rdy=5)
    scene.publish(b"1", b"2")
    wire.fin(*wire.messages(2))
    assert wire.is_quiet(MSG_TIMEOUT + 0.4)


@scenario
def many_time_out_together(scene: Scene) -> None:
    holder, waiter = scene.consumer(rdy=50), scene.consumer()
    holder.publish_many(scene.topic, [b"%d" % n for n in range(50)])
    ids = {message.id for message in holder.messages(50)}
    scene.start()
    holder.rdy(0)
    waiter.rdy(50)
    again = waiter.messages(50)
    scene.passed(MSG_TIMEOUT - FLUSH_MS / 1000)
    assert {message.id for message in again} == ids
    assert {message.attempts for message in again} == {2}


@scenario
def touch_starts_the_time_anew(scene: Scene) -> None:
    holder, waiter = scene.consumer(rdy=1), scene.consumer()
    scene.publish(b"x")
    message = holder.message()
    holder.rdy(0)
    waiter.rdy(1)
    for _ in range(3):
        time.sleep(MSG_TIMEOUT / 2)
        holder.touch(message)
        scene.start()
    assert waiter.message().attempts == 2
    scene.passed(MSG_TIMEOUT)


@scenario
def touch_goes_by_the_clients_own_timeout(scene: Scene) -> None:
    """And not beyond the server's greatest, counted from the delivery."""
    holder, waiter = scene.consumer(rdy=1, msg_timeout=1000), scene.consumer()
    scene.publish(b"x")
    message = holder.message()
    scene.start()
    holder.rdy(0)
    waiter.rdy(1)
    scene.sleep_until(0.5)
    holder.touch(message)
    assert waiter.message().attempts == 2
    scene.passed(MAX_MSG_TIMEOUT)


@scenario
def touch_extends_to_the_greatest_timeout_and_no_further(scene: Scene) -> None:
    holder, waiter = scene.consumer(rdy=1), scene.consumer()
    scene.publish(b"x")
    message = holder.message()
    scene.start()
    holder.rdy(0)
    waiter.rdy(1)
    while waiter.is_quiet(MSG_TIMEOUT / 3):
        holder.touch(message)
    scene.passed(MAX_MSG_TIMEOUT)
    assert waiter.message().attempts == 2


@scenario
def touch_comes_too_late_after_the_timeout(scene: Scene) -> None:
    wire = scene.consumer(rdy=1)
    scene.publish(b"x")
    message = wire.message()
    wire.rdy(0)
    time.sleep(MSG_TIMEOUT + 0.35)
    for name, command in (("TOUCH", frames.touch(message.id)), ("FIN", frames.fin(message.id))):
        text = f"E_{name}_FAILED {name} {message.id.decode()} failed ID not in flight"
        assert wire.ask(command) == error(text)
    wire.rdy(1)
    assert wire.message().attempts == 2


@scenario
def a_requeue_with_a_delay_waits(scene: Scene) -> None:
    holder, waiter = scene.consumer(rdy=1), scene.consumer()
    scene.publish(b"x")
    message = holder.message()
    holder.rdy(0)
    waiter.rdy(1)
    scene.start()
    holder.req(message, 400)
    assert holder.is_not_in_flight(message)
    assert waiter.message().attempts == 2
    scene.passed(0.4)


@scenario
def a_requeue_waits_no_longer_than_the_greatest_delay(scene: Scene) -> None:
    wire = scene.consumer(rdy=1)
    scene.publish(b"x")
    message = wire.message()
    scene.start()
    wire.req(message, 3_600_000)
    assert wire.message().attempts == 2
    scene.passed(MAX_REQ_TIMEOUT)


@scenario
def requeued_messages_come_in_the_order_of_their_delays(scene: Scene) -> None:
    wire = scene.consumer(rdy=2)
    scene.publish(b"1", b"2")
    first, second = wire.messages(2)
    scene.start()
    wire.req(first, 550)
    wire.req(second, 200)
    message = wire.message()
    scene.passed(0.2)
    assert message.body == b"2"
    wire.fin(message)
    assert wire.message().body == b"1"
    scene.passed(0.55)


@scenario
def a_deferred_message_waits(scene: Scene) -> None:
    producer, wire = scene.producer(), scene.consumer(rdy=3)
    scene.start()
    published = time.time_ns()
    producer.publish_deferred(scene.topic, 400, b"later")
    producer.publish(scene.topic, b"now")
    message = wire.message()
    scene.passed(0)
    assert message.body == b"now"
    wire.fin(message)
    message = wire.message()
    scene.passed(0.4)
    assert (message.body, message.attempts) == (b"later", 1)
    assert abs(message.timestamp - published) < 0.3e9, "it tells when it was published"


@scenario
def a_message_deferred_over_http_waits(scene: Scene) -> None:
    wire = scene.consumer(rdy=2)
    scene.start()
    post(scene.server, f"/pub?topic={scene.topic}&defer=400", b"later")
    post(scene.server, f"/pub?topic={scene.topic}&defer=0", b"now")
    message = wire.message()
    assert message.body == b"now"
    wire.fin(message)
    assert wire.message().body == b"later"
    scene.passed(0.4)


@scenario
def a_deferred_message_comes_in_all_channels(scene: Scene) -> None:
    """nsqd looks at new channels late."""
    wire, other = scene.consumer(rdy=1), scene.consumer("other", rdy=1)
    scene.start()
    scene.producer().publish_deferred(scene.topic, 300, b"later")
    message = wire.message()
    scene.passed(0.3)
    assert message.body == b"later"
    assert other.message() == message
    if scene.server.shape.is_shards:
        scene.passed(0.3)


@scenario
def deferred_messages_come_in_the_order_of_their_delays(scene: Scene) -> None:
    producer, wire = scene.producer(), scene.consumer(rdy=9)
    scene.start()
    for delay in (600, 300, 0):
        producer.publish_deferred(scene.topic, delay, b"%d" % delay)
    for delay in (0, 300, 600):
        message = wire.message()
        assert message.body == b"%d" % delay
        wire.fin(message)
        scene.passed(delay / 1000)


@scenario
def a_deferred_message_before_the_first_channel_waits_too(scene: Scene) -> None:
    """nsqd counts the delay from when a channel is there, and looks at it late; mq-shards counts from the publish."""
    topic = scene.topic + "-without-channel"
    scene.start()
    scene.producer().publish_deferred(topic, 300, b"later")
    scene.topic = topic
    wire = scene.consumer(rdy=1)
    message = wire.message()
    took = time.monotonic() - scene.since
    assert (message.body, message.attempts) == (b"later", 1)
    assert 0.3 - EARLY <= took <= 0.3 + LATE + (0 if scene.server.shape.is_shards else 5.2)


@scenario
def what_a_client_held_comes_again_when_it_leaves(scene: Scene) -> None:
    """nsqd waits for the time-out, mq-shards gives it back at once."""
    holder, waiter = scene.consumer(rdy=3), scene.consumer()
    scene.publish(b"1", b"2", b"3")
    held = holder.messages(3)
    holder.fin(held[0])
    assert holder.is_not_in_flight(held[0])
    scene.start()
    holder.close()
    waiter.rdy(5)
    again = waiter.messages(2)
    assert time.monotonic() - scene.since < MSG_TIMEOUT + LATE
    assert {(message.id, message.attempts) for message in again} == {(message.id, 2) for message in held[1:]}
    waiter.fin(*again)
    assert waiter.is_quiet(MSG_TIMEOUT)


@scenario
def what_a_closing_client_held_times_out(scene: Scene) -> None:
    holder, waiter = scene.consumer(rdy=1), scene.consumer()
    scene.publish(b"x")
    holder.message()
    scene.start()
    assert holder.ask("CLS\n").data == b"CLOSE_WAIT"
    waiter.rdy(1)
    assert waiter.message().attempts == 2
    scene.passed(MSG_TIMEOUT)


@scenario
def a_timeout_in_one_channel_is_not_one_in_another(scene: Scene) -> None:
    wire, other = scene.consumer(rdy=1), scene.consumer("other", rdy=1, msg_timeout=1000)
    scene.publish(b"x")
    scene.start()
    message = other.message()
    assert wire.message().attempts == 1
    assert wire.message().attempts == 2
    scene.passed(MSG_TIMEOUT)
    other.fin(message)
    assert other.is_not_in_flight(message)
    assert other.is_quiet(0.3)


@pytest.mark.parametrize("name", scenario.functions)
def test_time(outcomes: dict[str, Future[None]], name: str) -> None:
    outcomes[name].result(30)
