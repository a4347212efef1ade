"""kill -9, of everything and of one worker: what was acknowledged stays so. mq-shards only."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.nsq import frames
from tests.nsq.frames import OK, Message
from tests.nsq.ledger import Consumer, Ledger, Publisher
from tests.nsq.servers import SHARDS, NsqServer, running
from tests.nsq.wire import Wire, consumer
from tests.servers import Shape, wait_until

RECOVERY_SECONDS = 5.0  # it takes one, on a machine that is not busy


def with_workers(workers: int) -> Shape:
    return Shape(f"shards-{workers}", "mq-shards", ("--workers", str(workers)))


def under_load(server: NsqServer, ledger: Ledger, seed: int, *, outages: bool = False) -> list[Publisher | Consumer]:
    """Clients at work: publishers of all topics, two consumers of each channel."""
    clients: list[Publisher | Consumer] = []
    for n in range(3):
        clients.append(Publisher(server, ledger, seed * 100 + n, outages=outages))
    for n, queue in enumerate(ledger.queues * 2):
        clients.append(Consumer(server, ledger, seed * 100 + 50 + n, queue))
    wait_until(lambda: all(client.is_at_work.is_set() for client in clients), "all have begun")
    return clients


def wait_for_work(ledger: Ledger, published: int, finished: int) -> None:
    """Until so much more has been done."""
    before = ledger.count()

    def is_done() -> bool:
        now = ledger.count()
        return now[0] - before[0] >= published and now[1] - before[1] >= finished

    wait_until(is_done, f"{published} were published and {finished} finished", 30)


def is_back(server: NsqServer, comm: str, before: int) -> bool:
    try:
        return server.pid_of(comm) != before
    except LookupError:
        return False


def publish_until_ok(server: NsqServer, topic: str, body: bytes) -> None:
    """While a worker is dead a publish may fail, or wait."""
    until = time.monotonic() + 60
    while True:
        with Wire(server) as wire:
            frame = wire.ask(frames.pub(topic, body))
        if frame == OK:
            return
        assert frame.data.startswith(b"E_PUB_FAILED"), frame
        assert time.monotonic() < until, f"{topic} is not served again"
        time.sleep(0.01)


def kill_worker(server: NsqServer, worker: int) -> None:
    """And waits until there is another."""
    before = server.pid_of(f"mq-worker-{worker}")
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: is_back(server, f"mq-worker-{worker}", before), "the worker is back")


def test_nothing_is_lost_when_all_processes_are_killed(tmp_path: Path) -> None:
    """Also with another number of workers after each crash."""
    ledger = Ledger()
    for seed, workers in enumerate([2, 3, 1]):
        with running(with_workers(workers), data_dir=tmp_path) as server:
            if seed == 0:
                ledger.make_channels(server)
            clients = under_load(server, ledger, seed)
            wait_for_work(ledger, 200, 60)
            server.kill()
            for client in clients:
                client.stop()
            assert any(client.was_cut_off for client in clients)
    with running(SHARDS, data_dir=tmp_path) as server:
        ledger.drain(server)
        for topic in ledger.topics:
            with Wire(server) as wire:
                wire.publish(topic, b"new")
            with consumer(server, topic, "a", rdy=5) as wire:
                assert wire.message().id not in ledger.bodies, "no id is used again"


def test_a_sub_whose_worker_dies_is_asked_of_the_next(tmp_path: Path) -> None:
    with running(with_workers(1), data_dir=tmp_path) as server, Wire(server) as wire, Wire(server) as other:
        worker = server.pid_of("mq-worker-0")
        os.kill(worker, signal.SIGSTOP)
        wire.send(b"SUB t c\n")
        assert other.ask(b"CLS\n").data.startswith(b"E_INVALID"), "the acceptor has read what came before"
        os.kill(worker, signal.SIGKILL)
        assert wire.frame() == OK
        wire.send(b"RDY 1\n")
        publish_until_ok(server, "t", b"hello")
        assert wire.message().body == b"hello"


@pytest.mark.parametrize("memory", [False, True], ids=["disk", "memory"])
def test_nothing_is_lost_when_one_worker_after_the_other_is_killed(memory: bool, tmp_path: Path) -> None:
    """And no connection is cut, but those of publishers that were told E_PUB_FAILED."""
    ledger = Ledger()
    with running(SHARDS, data_dir=None if memory else tmp_path) as server:
        ledger.make_channels(server)
        clients = under_load(server, ledger, 7, outages=True)
        for worker in (1, 0):
            wait_for_work(ledger, 200, 60)
            with ledger.lock:
                ledger.outages += 1
            kill_worker(server, worker)
            for n in range(20):
                publish_until_ok(server, f"after-{n}", b"x")
            with ledger.lock:
                ledger.outages += 1
        wait_for_work(ledger, 200, 60)
        for client in clients:
            client.stop()
            assert not client.was_cut_off
        ledger.drain(server)


def test_what_a_consumer_said_of_messages_to_a_worker_that_dies_is_refused(tmp_path: Path) -> None:
    """And before anything is answered that came behind it; what it had done is no error."""
    with running(with_workers(1), data_dir=tmp_path) as server, consumer(server, "said", rdy=10) as wire:
        with Wire(server) as producer:
            producer.publish_many("said", [b"one", b"two", b"three"])
        done, said, again = wire.messages(3)
        wire.fin(done)
        wire.publish("other", b"which waits until the FIN is done")
        before = server.pid_of("mq-worker-0")
        os.kill(before, signal.SIGSTOP)
        wire.fin(said)
        wire.req(again)
        os.kill(before, signal.SIGKILL)
        assert [wire.frame().data for _ in range(2)] == [
            b"E_FIN_FAILED FIN %s failed ID not in flight" % said.id,
            b"E_REQ_FAILED REQ %s failed ID not in flight" % again.id,
        ]
        assert {message.body for message in wire.messages(2)} == {b"two", b"three"}


class TestAfterKillingEverything:
    def test_only_the_unfinished_come_again_and_their_attempts_count_on(self, tmp_path: Path) -> None:
        bodies = [b"%d" % n for n in range(6)]
        first: list[Message] = []
        for round_number in range(1, 4):
            with running(SHARDS, data_dir=tmp_path) as server, consumer(server, "counted", rdy=10) as wire:
                if round_number == 1:
                    with Wire(server) as producer:
                        producer.publish_many("counted", bodies)
                    first = wire.messages(6)
                    wire.rdy(0)
                    wire.fin(first[0], first[3])
                    wire.req(first[5])
                    assert all(wire.is_not_in_flight(first[n]) for n in (0, 3, 5))
                else:
                    again = sorted(wire.messages(4), key=lambda message: message.body)
                    assert [message.body for message in again] == [b"1", b"2", b"4", b"5"]
                    assert {message.attempts for message in again} == {round_number}
                    assert [(m.id, m.timestamp) for m in again] == [
                        (first[n].id, first[n].timestamp) for n in (1, 2, 4, 5)
                    ]
                    assert wire.is_quiet()
                server.kill()

    def test_what_waits_for_a_first_channel_waits_on(self, tmp_path: Path) -> None:
        with running(SHARDS, data_dir=tmp_path) as server, Wire(server) as wire:
            wire.publish("waiting", b"1", b"2")
            wire.publish_many("waiting", [b"3", b"4"])
            server.kill()
        with running(SHARDS, data_dir=tmp_path) as server, consumer(server, "waiting", rdy=9) as wire:
            assert [message.body for message in wire.messages(4)] == [b"1", b"2", b"3", b"4"]

    def test_channels_are_still_there_and_ephemeral_ones_are_not(self, tmp_path: Path) -> None:
        with (
            running(SHARDS, data_dir=tmp_path) as server,
            consumer(server, "durable", "ch") as wire,
            consumer(server, "durable", "ch#ephemeral"),
        ):
            wire.publish("durable", b"before")
            server.kill()
        with running(SHARDS, data_dir=tmp_path) as server, Wire(server) as wire:
            wire.publish("durable", b"after")
            with consumer(server, "durable", "ch", rdy=5) as reader:
                assert [message.body for message in reader.messages(2)] == [b"before", b"after"]
            with consumer(server, "durable", "ch#ephemeral", rdy=5) as reader:
                assert reader.is_quiet()

    def test_deferred_and_requeued_messages_keep_their_time(self, tmp_path: Path) -> None:
        delay = 2.5
        with running(SHARDS, data_dir=tmp_path) as server, consumer(server, "later", rdy=1) as wire:
            with Wire(server) as producer:
                producer.publish("later", b"requeued")
            message = wire.message()
            since = time.monotonic()
            wire.rdy(0)
            wire.req(message, int(delay * 1000))
            assert wire.is_not_in_flight(message)
            wire.publish_deferred("later", int(delay * 1000), b"deferred")
            server.kill()
        with running(SHARDS, data_dir=tmp_path) as server, consumer(server, "later", rdy=5) as wire:
            assert {(message.body, message.attempts) for message in wire.messages(2)} == {
                (b"requeued", 2), (b"deferred", 1),
            }  # fmt: skip
            assert time.monotonic() - since >= delay - 0.1


class TestAfterKillingAWorker:
    def test_consumers_stay_subscribed_and_its_messages_come_again(self) -> None:
        topics = [f"held-{n}" for n in range(20)]
        with running(SHARDS) as server:
            wires = {topic: consumer(server, topic, rdy=2) for topic in topics}
            held = {}
            for topic, wire in wires.items():
                publish_until_ok(server, topic, b"held")
                held[topic] = wire.message()
            kill_worker(server, 1)
            killed_at = time.monotonic()
            for topic in topics:
                publish_until_ok(server, topic, b"new")
            came = {topic: [wire.message()] for topic, wire in wires.items()}
            for topic, wire in wires.items():
                while came[topic][-1].body != b"new":
                    came[topic].append(wire.message())
            assert time.monotonic() - killed_at < RECOVERY_SECONDS
            given_back = 0
            for topic, wire in wires.items():
                came[topic] += wire.messages_until_quiet(0.05, finish=False)
                by_body = {message.body: message for message in came[topic]}
                assert len(by_body) == len(came[topic]), "each comes once"
                assert by_body[b"new"].attempts == 1
                if b"held" in by_body:
                    given_back += 1
                    assert (by_body[b"held"].id, by_body[b"held"].attempts) == (held[topic].id, 2)
                wire.fin(held[topic])
                assert wire.is_not_in_flight(held[topic]), "it is held again, or still"
            assert 0 < given_back < len(topics), "those of the killed worker"
            for wire in wires.values():
                wire.close()

    def test_the_other_workers_topics_are_served_all_the_time(self) -> None:
        topics = [f"served-{n}" for n in range(20)]
        with running(SHARDS) as server:
            with Wire(server) as wire:
                for topic in topics:
                    wire.publish(topic, b"x")
            stopped = server.pid_of("mq-worker-0")
            os.kill(stopped, signal.SIGSTOP)
            served = 0
            for topic in topics:
                with Wire(server) as wire:
                    wire.send(frames.pub(topic, b"y"))
                    served += not wire.is_quiet(0.05)
            assert 0 < served < len(topics), "a worker that hangs holds up its own topics only"
            os.kill(stopped, signal.SIGCONT)
            for topic in topics:
                publish_until_ok(server, topic, b"z")
