"""Real clients at work on the real nsqd and on mq-shards: pynsq and gnsq."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.nsq.api import channel_stats, topic_stats
from tests.nsq.auth_server import AuthServer, grant, permission, running_auth
from tests.nsq.certificates import Certificates
from tests.nsq.clients import (
    ClientLibrary,
    Consumer,
    Delivery,
    Features,
    Producer,
    PublishError,
    Subscription,
    keep,
)
from tests.nsq.gnsq_client import GNSQ, http_client
from tests.nsq.pynsq_client import PYNSQ, PynsqCrowd
from tests.nsq.restart import start_again
from tests.nsq.scenes import EARLY, Scene, play_again_if_late
from tests.nsq.servers import HOST, NSQD_SCAN_REFRESH_SECONDS, SHARDS, NsqServer, running
from tests.nsq.test_lookupd import Lookupd, needs_nsqlookupd
from tests.nsq.wire import consumer, unique_topic
from tests.servers import Shape, wait_until

LIBRARIES = (PYNSQ, GNSQ)
MAX_MSG_SIZE = 1024 * 1024


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name)
def library(request: pytest.FixtureRequest) -> ClientLibrary:
    found: ClientLibrary = request.param
    return found


@pytest.fixture
def producer(library: ClientLibrary, server: NsqServer) -> Iterator[Producer]:
    with library.producer(server) as producer:
        yield producer


@pytest.fixture(scope="module")
def second(shape: Shape) -> Iterator[NsqServer]:
    with running(shape) as server:
        yield server


@pytest.fixture(scope="module")
def timed_scenes(shape: Shape) -> Iterator[dict[str, Scene]]:
    """Made for the first test and used by the last, since the real nsqd does not see at once that there is a channel to
    look for time-outs in."""
    with running(shape, {"msg-timeout": "1s"}) as server:
        scenes = {name: Scene(server) for name in TIMED}
        for scene in scenes.values():
            consumer(server, scene.topic).close()
            scene.start()
        yield scenes


@pytest.fixture(scope="module")
def verifying(shape: Shape, tls_options: dict[str, str]) -> Iterator[NsqServer]:
    with running(shape, {**tls_options, "tls-client-auth-policy": "require-verify"}) as server:
        yield server


@pytest.fixture(scope="module")
def auth() -> Iterator[AuthServer]:
    with running_auth() as auth:
        yield auth


@pytest.fixture(scope="module")
def guarded(shape: Shape, auth: AuthServer) -> Iterator[NsqServer]:
    with running(shape, {"auth-http-address": auth.address}) as server:
        yield server


@pytest.fixture(scope="module")
def lookupd() -> Iterator[Lookupd]:
    lookupd = Lookupd()
    try:
        yield lookupd
    finally:
        lookupd.stop()


@pytest.fixture(scope="module")
def registered(shape: Shape, lookupd: Lookupd) -> Iterator[NsqServer]:
    options = {"lookupd-tcp-address": lookupd.address, "broadcast-address": HOST}
    with running(shape, options) as server:
        yield server


def consuming(library: ClientLibrary, server: NsqServer, topic: str, **fields: Any) -> Consumer:  # noqa: ANN401
    return library.consumer(Subscription([server], topic, **fields))


def first_finishes_then_keep(delivery: Delivery) -> bool | None:
    """Both clients ask for one message first, and for as many as they may when that is done."""
    return True if delivery.body == b"first" else None


def the_channel(server: NsqServer, topic: str, channel: str = "ch") -> dict[str, Any]:
    return channel_stats(server, topic, channel) or {"depth": -1, "in_flight_count": -1, "clients": []}


def is_done(server: NsqServer, topic: str, channel: str = "ch") -> bool:
    found = the_channel(server, topic, channel)
    return bool(found["depth"] == found["in_flight_count"] == found["deferred_count"] == 0)


def wait_until_done(server: NsqServer, topic: str, channel: str = "ch") -> None:
    wait_until(lambda: is_done(server, topic, channel), "all messages are finished")


def publish_until_ok(producer: Producer, topic: str, body: bytes, seconds: float = 60.0) -> None:
    """For when the broker or a worker of it is not there, or was not."""
    until = time.monotonic() + seconds
    while True:
        try:
            return producer.publish(topic, body)
        except PublishError:
            assert time.monotonic() < until, "publishing does not work again"
            time.sleep(0.01)


@pytest.mark.usefixtures("timed_scenes")
def test_what_is_published_one_by_one_in_batches_and_deferred_is_consumed(
    library: ClientLibrary, server: NsqServer, producer: Producer, topic: str
) -> None:
    with consuming(library, server, topic, max_in_flight=10) as consumer:
        before = time.time_ns()
        producer.publish(topic, b"one")
        producer.publish_many(topic, [b"two", b"three", b"four"])
        producer.publish_deferred(topic, 0, b"late")
        deliveries = consumer.wait_for(5)
        assert sorted(consumer.bodies) == [b"four", b"late", b"one", b"three", b"two"]
        assert {delivery.attempts for delivery in deliveries} == {1}
        assert len({delivery.id for delivery in deliveries}) == 5
        assert all(before <= delivery.timestamp <= time.time_ns() for delivery in deliveries)
        wait_until_done(server, topic)
        assert not consumer.errors


def test_any_bytes_come_as_they_were(library: ClientLibrary, server: NsqServer, producer: Producer, topic: str) -> None:
    bodies = [
        b"\0",
        b"\n",
        b"OK",
        b"_heartbeat_",
        bytes(range(256)),
        random.Random(1).randbytes(100_000),
        "ü☃".encode(),
    ]
    with consuming(library, server, topic, max_in_flight=3) as consumer:
        for body in bodies:
            producer.publish(topic, body)
        producer.publish_many(topic, bodies)
        consumer.wait_for(2 * len(bodies))
        assert Counter(consumer.bodies) == Counter(bodies * 2)


def test_messages_up_to_the_greatest_size_and_not_beyond(
    library: ClientLibrary, server: NsqServer, producer: Producer, topic: str
) -> None:
    body = random.Random(2).randbytes(MAX_MSG_SIZE)
    with consuming(library, server, topic, max_in_flight=4) as consumer:
        producer.publish(topic, body)
        producer.publish(topic, body[1:])
        producer.publish_many(topic, [body, body[2:]])
        consumer.wait_for(4)
        assert Counter(consumer.bodies) == Counter([body, body[1:], body, body[2:]])
        # The broker closes with most of it unread, so that TCP may lose the E_BAD_MESSAGE on its way.
        with pytest.raises(PublishError):
            producer.publish(topic, body + b"x")
        publish_until_ok(producer, topic, b"after it")
        assert consumer.wait_for(5)[4].body == b"after it"


@pytest.mark.parametrize("max_in_flight", [1, 200])
@pytest.mark.heavy
def test_one_consumer_gets_messages_in_their_order(
    library: ClientLibrary, server: NsqServer, producer: Producer, topic: str, max_in_flight: int
) -> None:
    bodies = [b"%d" % n for n in range(1000)]
    with consuming(library, server, topic, max_in_flight=max_in_flight) as consumer:
        wait_until(lambda: the_channel(server, topic)["clients"], "it has subscribed")
        for start in range(0, 900, 100):
            producer.publish_many(topic, bodies[start : start + 100])
        for body in bodies[900:]:
            producer.publish(topic, body)
        consumer.wait_for(len(bodies))
        assert consumer.bodies == bodies


@pytest.mark.heavy
def test_many_clients_of_both_kinds_at_once(server: NsqServer, topic: str) -> None:
    """Each message comes once on each channel, whoever published it."""
    channels = ("a", "b")

    def publish(number: int, producer: Producer) -> list[bytes]:
        bodies = [b"%d:%d" % (number, n) for n in range(150)]
        for n in range(50):
            producer.publish(topic, bodies[n])
        for n in range(50, 150, 20):
            producer.publish_many(topic, bodies[n : n + 20])
        return bodies

    with contextlib.ExitStack() as stack:
        consumers = {
            channel: [
                stack.enter_context(consuming(library, server, topic, channel=channel, max_in_flight=7))
                for library in LIBRARIES * 2
            ]
            for channel in channels
        }
        for channel in channels:
            wait_until(lambda c=channel: len(the_channel(server, topic, c)["clients"]) == 4, "all have subscribed")
        producers = [stack.enter_context(library.producer(server)) for library in LIBRARIES * 2]
        with ThreadPoolExecutor(len(producers)) as pool:
            sent = [body for bodies in pool.map(publish, range(len(producers)), producers) for body in bodies]
        for channel in channels:
            wait_until(lambda c=channel: sum(len(one.bodies) for one in consumers[c]) >= len(sent), "all have come")
            wait_until_done(server, topic, channel)
            assert sorted(body for one in consumers[channel] for body in one.bodies) == sorted(sent)
            assert all(one.bodies for one in consumers[channel]), "each has had some"


class TestAnswers:
    def test_messages_are_held_up_to_the_limit_and_finished_from_elsewhere(
        self, library: ClientLibrary, server: NsqServer, producer: Producer, topic: str
    ) -> None:
        with consuming(library, server, topic, max_in_flight=20, handler=first_finishes_then_keep) as consumer:
            producer.publish(topic, b"first")
            producer.publish_many(topic, [b"%d" % n for n in range(50)])
            held = consumer.wait_for(21)[1:]
            wait_until(lambda: the_channel(server, topic)["in_flight_count"] == 20, "20 are in flight")
            assert len(consumer.deliveries) == 21
            (client,) = the_channel(server, topic)["clients"]
            assert (client["ready_count"], client["in_flight_count"]) == (20, 20)
            random.Random(3).shuffle(held)
            for delivery in held:
                delivery.finish()
            more = consumer.wait_for(41)[21:]
            for delivery in more:
                delivery.finish()
            for delivery in consumer.wait_for(51)[41:]:
                delivery.finish()
            wait_until_done(server, topic)
            assert sorted(consumer.bodies[1:], key=int) == [b"%d" % n for n in range(50)]
            assert not consumer.errors

    def test_a_message_is_requeued_from_elsewhere_and_comes_again(
        self, library: ClientLibrary, server: NsqServer, producer: Producer, topic: str
    ) -> None:
        with consuming(library, server, topic, handler=keep) as consumer:
            producer.publish(topic, b"x")
            for attempts in range(1, 5):
                delivery = consumer.wait_for(attempts)[-1]
                assert (delivery.attempts, delivery.id) == (attempts, consumer.deliveries[0].id)
                delivery.requeue()
            consumer.wait_for(5)[-1].finish()
            wait_until_done(server, topic)
            assert the_channel(server, topic)["requeue_count"] == 4

    def test_a_handler_that_fails_gets_the_message_again_after_a_backoff(
        self, library: ClientLibrary, server: NsqServer, producer: Producer, topic: str
    ) -> None:
        def twice_in_vain(delivery: Delivery) -> bool:
            return delivery.body != b"bad" or delivery.attempts > 2

        subscription: dict[str, Any] = {"max_in_flight": 8, "max_backoff_seconds": 0.2, "handler": twice_in_vain}
        with consuming(library, server, topic, **subscription) as consumer:
            producer.publish_many(topic, [b"%d" % n for n in range(10)] + [b"bad"] + [b"%d" % n for n in range(10, 20)])
            deliveries = consumer.wait_for(23)
            assert [one.attempts for one in deliveries if one.body == b"bad"] == [1, 2, 3]
            assert {one.attempts for one in deliveries if one.body != b"bad"} == {1}
            wait_until_done(server, topic)
            assert the_channel(server, topic)["requeue_count"] == 2

            def is_at_full_speed() -> bool:
                producer.publish(topic, b"good")  # each success is a step out of the backoff
                return [client["ready_count"] for client in the_channel(server, topic)["clients"]] == [8]

            wait_until(is_at_full_speed, "the backoff is over")

    def test_nothing_comes_during_a_backoff(self, server: NsqServer, topic: str) -> None:
        """pynsq's first lasts 2.8 % of the longest; it ends with one message on trial."""
        backoff_seconds, times = 0.5, []

        def first_in_vain(delivery: Delivery) -> bool:
            times.append(time.monotonic())
            return len(times) > 1

        subscription = Subscription([server], topic, max_backoff_seconds=backoff_seconds / 0.028, handler=first_in_vain)
        with PYNSQ.consumer(subscription) as consumer, PYNSQ.producer(server) as producer:
            producer.publish_many(topic, [b"%d" % n for n in range(10)])
            consumer.wait_for(11)
            assert times[1] - times[0] >= backoff_seconds - EARLY
            wait_until_done(server, topic)

    def test_after_too_many_tries_it_is_given_up(
        self, library: ClientLibrary, server: NsqServer, producer: Producer, topic: str
    ) -> None:
        subscription: dict[str, Any] = {"max_tries": 3, "max_backoff_seconds": 0.1, "handler": lambda _: False}
        with consuming(library, server, topic, **subscription) as consumer:
            producer.publish(topic, b"hopeless")
            wait_until(lambda: consumer.given_up, "it is given up")
            assert consumer.given_up == [b"hopeless"]
            assert [delivery.attempts for delivery in consumer.deliveries] == [1, 2, 3]
            wait_until_done(server, topic)
            assert the_channel(server, topic)["requeue_count"] == 3


class TestConnections:
    def test_what_may_be_in_flight_is_shared_by_connections(
        self, library: ClientLibrary, server: NsqServer, second: NsqServer, topic: str
    ) -> None:
        both = [server, second]
        subscription = Subscription(both, topic, max_in_flight=10, handler=first_finishes_then_keep)
        with library.consumer(subscription) as consumer:
            for broker in both:
                wait_until(lambda b=broker: the_channel(b, topic)["clients"], "it has subscribed")
            for number, broker in enumerate(both):
                with library.producer(broker) as producer:
                    producer.publish(topic, b"first")
                    consumer.wait_for(number + 1)
            for broker in both:
                with library.producer(broker) as producer:
                    producer.publish_many(topic, [b"x"] * 20)
            consumer.wait_for(12)
            for broker in both:
                wait_until(lambda b=broker: the_channel(b, topic)["in_flight_count"] == 5, "half are in flight")
                assert [client["ready_count"] for client in the_channel(broker, topic)["clients"]] == [5]
            assert len(consumer.deliveries) == 12

            for delivery in consumer.deliveries[2:12]:
                delivery.finish()
            wait_until(lambda: len(consumer.deliveries) == 22, "as many come again")

    @pytest.mark.heavy
    def test_five_hundred_consumers_of_one_channel(self, server: NsqServer, topic: str) -> None:
        with PynsqCrowd(server, topic, 500) as crowd, PYNSQ.producer(server) as producer:

            def ready() -> int:
                return [client["ready_count"] for client in the_channel(server, topic)["clients"]].count(1)

            wait_until(lambda: ready() == 500, "all are ready")
            producer.publish_many(topic, [b"%d" % n for n in range(500)])
            wait_until(lambda: all(crowd.held), "each has a message")
            assert sorted(int(message.body) for held in crowd.held for message in held) == list(range(500))
            assert the_channel(server, topic)["in_flight_count"] == 500
            crowd.finish_all()
            wait_until_done(server, topic)
        wait_until(lambda: the_channel(server, topic)["clients"] == [], "all have left")

    def test_an_ephemeral_channel_goes_with_its_consumer(
        self, library: ClientLibrary, server: NsqServer, producer: Producer, topic: str
    ) -> None:
        with consuming(library, server, topic, channel="ch#ephemeral") as consumer:
            wait_until(lambda: the_channel(server, topic, "ch#ephemeral")["clients"], "it has subscribed")
            producer.publish(topic, b"x")
            assert consumer.wait_for(1)[0].body == b"x"
        wait_until(lambda: (topic_stats(server, topic) or {})["channels"] == [], "the channel has gone")

    def test_an_ephemeral_topic_goes_with_its_channel(self, library: ClientLibrary, server: NsqServer) -> None:
        topic = unique_topic("short") + "#ephemeral"
        with consuming(library, server, topic, channel="ch#ephemeral") as consumer:
            with library.producer(server) as producer:
                producer.publish(topic, b"x")
            assert consumer.wait_for(1)[0].body == b"x"
        wait_until(lambda: topic_stats(server, topic) is None, "the topic has gone")


FEATURES = [
    (tls, compression) for tls in (False, True) for compression in ("", "snappy", "deflate") if tls or compression
]


class TestFeatures:
    @pytest.mark.parametrize(("tls", "compression"), FEATURES, ids=lambda value: str(value) or "plain")
    def test_messages_pass_through_tls_and_compression(
        self,
        library: ClientLibrary,
        tls_server: NsqServer,
        certificates: Certificates,
        topic: str,
        tls: bool,
        compression: Any,  # noqa: ANN401
    ) -> None:
        draw = random.Random(4)
        noise = [draw.randbytes(size) for size in (1, 100, 5000, 70_000, 300_000)]
        bodies = noise + [b"again and again " * count for count in (1, 100, 5000)] + [b"%d" % n for n in range(200)]
        features = Features(tls=certificates if tls else None, compression=compression)
        with (
            consuming(library, tls_server, topic, max_in_flight=20, features=features) as consumer,
            library.producer(tls_server, features) as producer,
        ):
            wait_until(lambda: the_channel(tls_server, topic)["clients"], "it has subscribed")
            (client,) = the_channel(tls_server, topic)["clients"]
            has = {name for name in ("tls", "snappy", "deflate") if client[name]}
            assert has == ({"tls"} if tls else set()) | ({compression} if compression else set())
            for body in bodies[:50]:
                producer.publish(topic, body)
            producer.publish_many(topic, bodies[50:])
            consumer.wait_for(len(bodies))
            assert Counter(consumer.bodies) == Counter(bodies)
            wait_until_done(tls_server, topic)
            assert consumer.closed == 0

    def test_a_client_shows_its_certificate(
        self, library: ClientLibrary, verifying: NsqServer, certificates: Certificates, topic: str
    ) -> None:
        features = Features(tls=certificates, show=certificates.client)
        with (
            consuming(library, verifying, topic, features=features) as consumer,
            library.producer(verifying, features) as producer,
        ):
            producer.publish(topic, b"x")
            assert consumer.wait_for(1)[0].body == b"x"


class TestAuthorization:
    def test_who_knows_the_secret_may(
        self, library: ClientLibrary, guarded: NsqServer, auth: AuthServer, topic: str
    ) -> None:
        auth.answers[f"of {topic}"] = grant(
            permission(f"^{topic}$", ["ch"], "subscribe"), permission(f"^{topic}$", [".*"], "publish")
        )
        features = Features(secret=f"of {topic}")
        with (
            consuming(library, guarded, topic, features=features) as consumer,
            library.producer(guarded, features) as producer,
        ):
            producer.publish(topic, b"x")
            assert consumer.wait_for(1)[0].body == b"x"
            with pytest.raises(PublishError, match=r"E_UNAUTHORIZED|NSQUnauthorized"):
                producer.publish(topic + "-else", b"x")

    def test_who_does_not_may_not(
        self, library: ClientLibrary, guarded: NsqServer, auth: AuthServer, topic: str
    ) -> None:
        auth.answers[f"reader of {topic}"] = grant(permission(topic, ["ch"], "subscribe"))
        features = Features(secret=f"reader of {topic}")
        with (
            library.producer(guarded, features) as producer,
            pytest.raises(PublishError, match=r"E_UNAUTHORIZED|NSQUnauthorized"),
        ):
            producer.publish(topic, b"x")
        with PYNSQ.consumer(Subscription([guarded], topic, features=Features(secret="wrong"))) as consumer:
            wait_until(lambda: consumer.errors, "it is refused")
            assert consumer.errors[0].startswith("b'E_AUTH_FAILED")
        assert topic_stats(guarded, topic) is None


@needs_nsqlookupd
class TestDiscovery:
    def test_a_consumer_finds_its_broker(
        self, library: ClientLibrary, registered: NsqServer, lookupd: Lookupd, topic: str
    ) -> None:
        with library.producer(registered) as producer:
            producer.publish_many(topic, [b"1", b"2", b"3"])
            wait_until(lambda: lookupd.producers(topic), "the topic is registered")
            where = [f"http://{HOST}:{lookupd.http_port}"]
            with library.consumer(Subscription([], topic, lookupd_http=where, max_in_flight=5)) as consumer:
                producer.publish(topic, b"4")
                consumer.wait_for(4)
                assert sorted(consumer.bodies) == [b"1", b"2", b"3", b"4"]
                wait_until(lambda: lookupd.channels(topic) == ["ch"], "the channel is registered")


class TestRestarts:
    def test_producers_and_gnsqs_consumer_connect_again(self, shape: Shape, topic: str, tmp_path: Path) -> None:
        """pynsq's Reader waits 15 s before it does."""
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(running(shape, data_dir=tmp_path))
            producers = [stack.enter_context(library.producer(server)) for library in LIBRARIES]
            wanted = Subscription([server], topic, max_in_flight=50, max_backoff_seconds=0.1)
            consumer = stack.enter_context(GNSQ.consumer(wanted))
            for producer in producers:
                producer.publish(topic, b"before")
            consumer.wait_for(2)
            wait_until_done(server, topic)
            server.terminate()
            with ThreadPoolExecutor(len(producers)) as pool:
                published = [pool.submit(publish_until_ok, one, topic, b"during", 20) for one in producers]
                start_again(server)
                for each in published:
                    each.result()
            for producer in producers:
                producer.publish(topic, b"after")
            wait_until(lambda: Counter(consumer.bodies)[b"after"] == 2, "the rest has come", 20)
            wait_until_done(server, topic)
            times = Counter(consumer.bodies)
            assert times[b"before"] == 2
            assert times[b"during"] >= 2

    def test_what_waits_and_what_is_held_outlasts_the_restart(self, shape: Shape, topic: str, tmp_path: Path) -> None:
        with running(shape, data_dir=tmp_path) as server:
            with PYNSQ.producer(server) as producer, consuming(GNSQ, server, topic, handler=keep) as holder:
                producer.publish_many(topic, [b"%d" % n for n in range(100)])
                holder.wait_for(1)
            server.terminate()
            start_again(server)
            with consuming(PYNSQ, server, topic, max_in_flight=10) as consumer:
                consumer.wait_for(100)
                wait_until_done(server, topic)
                assert sorted(consumer.bodies, key=int) == [b"%d" % n for n in range(100)]

    @pytest.mark.parametrize(("library", "memory"), [(PYNSQ, False), (GNSQ, True)], ids=["pynsq-disk", "gnsq-memory"])
    def test_a_consumer_outlives_every_worker(
        self, library: ClientLibrary, memory: bool, topic: str, tmp_path: Path
    ) -> None:
        """kill -9: it stays connected, misses nothing, and gets again no more than was in flight. mq-shards only."""
        bodies = [b"%d" % n for n in range(400)]
        kills = {100: 0, 250: 1}
        with running(SHARDS, data_dir=None if memory else tmp_path) as server:
            wanted = Subscription([server], topic, max_in_flight=30)
            with library.consumer(wanted) as consumer, library.producer(server) as producer:
                for n, body in enumerate(bodies):
                    if n in kills:
                        os.kill(server.pid_of(f"mq-worker-{kills[n]}"), signal.SIGKILL)
                    publish_until_ok(producer, topic, body)
                wait_until(lambda: set(consumer.bodies) >= set(bodies), "every message has come", 20)
                wait_until_done(server, topic)
                times = Counter(delivery.id for delivery in consumer.deliveries)
                again = [delivery for delivery in consumer.deliveries if delivery.attempts > 1]
                assert len(consumer.deliveries) - len(times) == len(again), "what comes again says so"
                assert len(again) <= 30
                assert consumer.closed == 0
                assert all("FIN" in error or "Finish" in error for error in consumer.errors), consumer.errors


class TestHttp:
    """gnsq's client of the HTTP API."""

    def test_publishing_and_administration(self, server: NsqServer, topic: str) -> None:
        http = http_client(server)
        assert http.ping() == b"OK"
        assert http.info()["version"].startswith("1.")
        http.create_topic(topic)
        http.create_channel(topic, "ch")
        http.publish(topic, b"one")
        http.publish(topic, b"late", defer=0)
        http.multipublish(topic, [b"two", b"three"])
        http.multipublish(topic, [b"four\n", b"\0five"], binary=True)
        with consuming(GNSQ, server, topic, max_in_flight=5) as consumer:
            consumer.wait_for(6)
            assert sorted(consumer.bodies) == [b"\0five", b"four\n", b"late", b"one", b"three", b"two"]
            http.pause_channel(topic, "ch")
            wait_until(lambda: the_channel(server, topic)["paused"], "it is paused")
            http.publish(topic, b"later")
            wait_until(lambda: the_channel(server, topic)["depth"] == 1, "it waits")
            http.unpause_channel(topic, "ch")
            assert consumer.wait_for(7)[6].body == b"later"
        (found,) = http.stats(topic=topic)["topics"]
        assert (found["topic_name"], found["message_count"]) == (topic, 7)
        assert topic in http.stats(text=True).decode()
        http.publish(topic, b"in vain")
        http.empty_channel(topic, "ch")
        http.delete_channel(topic, "ch")
        http.delete_topic(topic)
        wait_until(lambda: topic_stats(server, topic) is None, "it is deleted")


def stays_alive_by_heartbeats(library: ClientLibrary, scene: Scene) -> None:
    features = Features(heartbeat_seconds=1)
    scene.starts_in_what_follows()
    with (
        consuming(library, scene.server, scene.topic, features=features) as consumer,
        library.producer(scene.server, features) as producer,
    ):
        scene.start()
        wait_until(lambda: consumer.heartbeats >= 2, "two heartbeats have come")
        scene.passed(2.0)
        scene.sleep_until(2.6)
        producer.publish(scene.topic, b"x")
        assert consumer.wait_for(1)[0].body == b"x"
        assert consumer.closed == 0
        assert not consumer.errors


def comes_again_unless_touched(library: ClientLibrary, scene: Scene) -> None:
    with (
        consuming(library, scene.server, scene.topic, max_in_flight=3, handler=first_finishes_then_keep) as consumer,
        library.producer(scene.server) as producer,
    ):
        producer.publish_many(scene.topic, [b"first", b"touched", b"forgotten"])
        found = {delivery.body: delivery for delivery in consumer.wait_for(3)}
        scene.start()
        for number in range(1, 5):
            scene.sleep_until(0.4 * number)
            found[b"touched"].touch()
        again = consumer.wait_for(4)[3]
        assert (again.body, again.attempts, again.id) == (b"forgotten", 2, found[b"forgotten"].id)
        found[b"touched"].finish()
        again.finish()
        wait_until_done(scene.server, scene.topic)
        assert the_channel(scene.server, scene.topic)["timeout_count"] == 1
        assert len(consumer.deliveries) == 4


def is_deferred(library: ClientLibrary, scene: Scene) -> None:
    with (
        consuming(library, scene.server, scene.topic, max_in_flight=3) as consumer,
        library.producer(scene.server) as producer,
    ):
        scene.start()
        producer.publish_deferred(scene.topic, 800, b"late")
        producer.publish(scene.topic, b"soon")
        assert consumer.wait_for(2)[0].body == b"soon"
        scene.passed(0.8)


TIMED = {
    f"{library.name} {function.__name__}": (function, library)
    for library in LIBRARIES
    for function in (stays_alive_by_heartbeats, comes_again_unless_touched, is_deferred)
}


@pytest.fixture(scope="module")
def outcomes(timed_scenes: dict[str, Scene]) -> Iterator[dict[str, Future[None]]]:
    """All at once."""
    with ThreadPoolExecutor(len(TIMED)) as pool:
        yield {name: pool.submit(play, scene, *TIMED[name]) for name, scene in timed_scenes.items()}


def play(scene: Scene, function: Callable[[ClientLibrary, Scene], None], library: ClientLibrary) -> None:
    scenes = [scene]

    def play_once() -> None:
        if not scenes:
            scenes.append(Scene(scene.server))
            consumer(scene.server, scenes[0].topic).close()
            scenes[0].start()
        if not scene.server.shape.is_shards:
            scenes[0].sleep_until(NSQD_SCAN_REFRESH_SECONDS)
        function(library, scenes.pop())

    play_again_if_late(f"{library.name} {function.__name__}", play_once)


@pytest.mark.parametrize("name", TIMED)
def test_time(outcomes: dict[str, Future[None]], name: str) -> None:
    outcomes[name].result()
