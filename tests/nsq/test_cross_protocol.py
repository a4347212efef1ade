"""One core for all: what beanstalkd's protocol puts, NSQ's channels get, and the other way round. mq-shards only."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import greenstalk
import pytest

from tests.nsq.api import call, post, topic_stats
from tests.nsq.servers import SHARDS, NsqServer, running
from tests.nsq.wire import Wire, consumer, unique_topic
from tests.servers import wait_until

TIMEOUT = 60.0
Tube = greenstalk.Client[bytes]


@pytest.fixture(scope="module")
def both() -> Iterator[NsqServer]:
    with running(SHARDS) as server:
        yield server


@pytest.fixture
def name() -> str:
    """A tube and a topic."""
    return unique_topic("cross")


@pytest.fixture
def producer(both: NsqServer) -> Iterator[Wire]:
    with Wire(both) as wire:
        yield wire


def tube(server: NsqServer, name: str) -> Tube:
    """Uses and watches it and nothing else. Bodies are bytes."""
    return greenstalk.Client(("127.0.0.1", server.beanstalk_port), encoding=None, use=name, watch=name)


def user(server: NsqServer, name: str) -> Tube:
    """Only puts."""
    return greenstalk.Client(("127.0.0.1", server.beanstalk_port), encoding=None, use=name)


def reserve(client: Tube, count: int) -> list[bytes]:
    """Takes and deletes so many jobs."""
    bodies = []
    for _ in range(count):
        job = client.reserve(TIMEOUT)
        bodies.append(job.body)
        client.delete(job)
    return bodies


def has_none(client: Tube) -> bool:
    try:
        client.reserve(0)
    except greenstalk.TimedOutError:
        return True
    return False


class TestPutByBeanstalk:
    def test_before_the_first_channel_it_waits_for_it(self, both: NsqServer, name: str) -> None:
        with user(both, name) as client:
            for n in range(3):
                client.put(b"%d" % n)
        with consumer(both, name, rdy=10) as wire:
            messages = wire.messages(3)
            assert [message.body for message in messages] == [b"0", b"1", b"2"]
            assert {message.attempts for message in messages} == {1}
            wire.fin(*messages)
            assert wire.is_quiet()

    def test_it_goes_to_all_channels(self, both: NsqServer, name: str) -> None:
        with consumer(both, name, "a", rdy=10) as a, consumer(both, name, "b", rdy=10) as b, user(both, name) as client:
            for n in range(5):
                client.put(b"%d" % n)
            for wire in (a, b):
                assert [message.body for message in wire.messages(5)] == [b"%d" % n for n in range(5)]

    def test_a_waiting_consumer_gets_it_at_once(self, both: NsqServer, name: str) -> None:
        with consumer(both, name, rdy=1) as wire, user(both, name) as client:
            for n in range(20):
                client.put(b"%d" % n)
                message = wire.message()
                assert message.body == b"%d" % n
                wire.fin(message)

    @pytest.mark.parametrize("body", [b"", b"\r\n", bytes(range(256)), os.urandom(65535)], ids=len)
    def test_any_body(self, both: NsqServer, name: str, body: bytes) -> None:
        with consumer(both, name, rdy=1) as wire, user(both, name) as client:
            client.put(body)
            assert wire.message().body == body

    def test_beanstalk_clients_and_channels_each_have_their_own(self, both: NsqServer, name: str) -> None:
        """What one finishes the other still has."""
        with consumer(both, name) as wire, tube(both, name) as client:
            for n in range(4):
                client.put(b"%d" % n)
            assert reserve(client, 2) == [b"0", b"1"]
            wire.rdy(3)
            messages = wire.messages(3)
            assert [message.body for message in messages] == [b"0", b"1", b"2"]
            wire.fin(*messages)
            assert reserve(client, 2) == [b"2", b"3"]
            assert has_none(client)
            assert wire.message().body == b"3"

    def test_a_requeued_message_is_not_a_released_job(self, both: NsqServer, name: str) -> None:
        with consumer(both, name, rdy=1) as wire, tube(both, name) as client:
            client.put(b"x")
            job = client.reserve(TIMEOUT)
            wire.req(wire.message())
            assert wire.message().attempts == 2
            assert client.stats_job(job)["releases"] == 0
            client.release(job)
            assert client.reserve(TIMEOUT).id == job.id
            assert wire.is_quiet()


class TestPublishedByNsq:
    def test_before_anybody_watches_and_without_a_channel_it_waits(
        self, both: NsqServer, producer: Wire, name: str
    ) -> None:
        producer.publish(name, b"1", b"2")
        producer.publish_many(name, [b"3", b"4"])
        with tube(both, name) as client:
            assert reserve(client, 4) == [b"1", b"2", b"3", b"4"]
            assert has_none(client)

    def test_it_goes_to_beanstalk_clients_and_channels(self, both: NsqServer, producer: Wire, name: str) -> None:
        with tube(both, name) as client, consumer(both, name, "a", rdy=9) as a, consumer(both, name, "b", rdy=9) as b:
            producer.publish(name, b"1", b"2")
            producer.publish_many(name, [b"3", b"4"])
            for wire in (a, b):
                assert [message.body for message in wire.messages(4)] == [b"1", b"2", b"3", b"4"]
            assert reserve(client, 4) == [b"1", b"2", b"3", b"4"]
            assert has_none(client)

    def test_a_waiting_reserve_gets_it(self, both: NsqServer, producer: Wire, name: str) -> None:
        with tube(both, name) as client:
            got: list[bytes] = []
            waiter = threading.Thread(target=lambda: got.extend(reserve(client, 1)))
            waiter.start()
            with user(both, name) as other:
                wait_until(lambda: other.stats_tube(name)["current-waiting"] == 1, "the reserve waits")
            producer.publish(name, b"x")
            waiter.join(TIMEOUT)
            assert got == [b"x"]

    def test_it_is_a_job_with_all_its_states(self, both: NsqServer, producer: Wire, name: str) -> None:
        with tube(both, name) as client:
            producer.publish(name, b"x")
            job = client.reserve(TIMEOUT)
            client.release(job)
            job = client.reserve(TIMEOUT)
            client.touch(job)
            client.bury(job)
            assert client.stats_job(job)["state"] == "buried"
            assert client.stats_job(job)["tube"] == name
            assert client.kick(1) == 1
            assert reserve(client, 1) == [b"x"]
            assert has_none(client)

    @pytest.mark.parametrize("body", [b"\r\n", bytes(range(256)), os.urandom(300_000)], ids=len)
    def test_any_body(self, both: NsqServer, producer: Wire, name: str, body: bytes) -> None:
        """Also one larger than a beanstalk client could put."""
        with tube(both, name) as client:
            producer.publish(name, body)
            assert reserve(client, 1) == [body]


def test_both_put_and_both_take_in_turn(both: NsqServer, producer: Wire, name: str) -> None:
    expected = [b"%d" % n for n in range(100)]
    with tube(both, name) as client, consumer(both, name, rdy=200) as wire:
        for n, body in enumerate(expected):
            if n % 2:
                client.put(body)
            else:
                producer.publish(name, body)
        assert [message.body for message in wire.messages(100)] == expected
        assert sorted(reserve(client, 100)) == sorted(expected)
        assert has_none(client)


def test_a_tube_beside_channels_is_shown_to_nsqs_users_while_it_has_jobs(both: NsqServer, name: str) -> None:
    """Somebody wanted it through beanstalkd's protocol once, and works off nothing of it."""
    with consumer(both, name, rdy=10) as wire:
        assert "tube" not in (topic_stats(both, name) or {})
        with user(both, name):
            post(both, f"/pub?topic={name}", b"both")
        assert wire.message().body == b"both"
        assert (topic_stats(both, name) or {})["tube"] == {"jobs": 1}
        assert b"      <tube> jobs: 1\n" in call(both, "GET", f"/stats?topic={name}").body
