"""A batch is as many jobs to beanstalkd's clients, each with an id, a state and an end of its own, over crashes too."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import greenstalk
import pytest
from mq_shards.csrc._core import lib

from tests import servers
from tests.nsq import wire as nsq
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.test_batches import COMPRESSIONS, send_batch
from tests.pulsar.wire import Wire, batch_of, entry_of, metadata, payload_of, send_frame
from tests.servers import wait_until

MOST = 64 * lib.PARTS_MAX_WORDS


@pytest.fixture
def tube(server: PulsarServer, topic: str) -> Iterator[greenstalk.Client]:
    with client(server, topic) as found:
        yield found


def client(server: PulsarServer, tube: str) -> greenstalk.Client:
    return greenstalk.Client(("127.0.0.1", server.beanstalk_port), encoding=None, use=tube, watch=tube)


def take_all(tube: greenstalk.Client) -> list[greenstalk.Job]:
    jobs = []
    try:
        while True:
            jobs.append(tube.reserve(timeout=0))
    except greenstalk.TimedOutError:
        return jobs


def kill_worker(server: PulsarServer, tube: greenstalk.Client) -> None:
    """Returns when the next one answers."""
    os.kill(server.pid_of("mq-worker-0"), signal.SIGKILL)

    def answers() -> bool:
        with contextlib.suppress(greenstalk.InternalError):
            return bool(tube.stats())
        return False

    wait_until(answers, "the worker is back", 30)


def is_gone(tube: greenstalk.Client, job: greenstalk.Job) -> bool:
    try:
        tube.peek(job.id)
    except greenstalk.NotFoundError:
        return True
    return False


@pytest.mark.parametrize("how", COMPRESSIONS)
def test_each_message_of_a_batch_is_a_job_with_an_id_of_its_own(
    wire: Wire, topic: str, tube: greenstalk.Client, how: str
) -> None:
    wire.producer(topic)
    payloads = [b"%d" % i * 20 for i in range(50)]
    send_batch(wire, *payloads, how=how)
    send_batch(wire, b"one", how=how, sequence=1)
    kind, compress = COMPRESSIONS[how]
    fields = {"compression": kind, "uncompressed_size": 6} if kind else {}
    wire.raw(send_frame(1, 2, entry_of(metadata(sequence_id=2, **fields), compress(b"single"))))
    wire.expect("send_receipt")
    stats = tube.stats_tube(topic)
    assert (stats["current-jobs-ready"], stats["total-jobs"]) == (52, 52)
    assert tube.peek_ready().body == payloads[0]
    jobs = take_all(tube)
    assert [job.body for job in jobs] == [*payloads, b"one", b"single"]
    assert len({job.id for job in jobs}) == 52 and sorted(job.id for job in jobs) == [job.id for job in jobs]
    assert tube.stats_job(jobs[7])["state"] == "reserved"
    tube.delete(jobs[7])
    assert is_gone(tube, jobs[7]) and tube.peek(jobs[8].id).body == payloads[8]
    for job in jobs[:7] + jobs[8:]:
        tube.delete(job)
    assert tube.stats_tube(topic)["current-jobs-reserved"] == 0


def test_each_is_released_buried_kicked_and_touched_by_itself(wire: Wire, topic: str, tube: greenstalk.Client) -> None:
    wire.producer(topic)
    send_batch(wire, b"a", b"b", b"c", b"d")
    a, b, c, d = (tube.reserve(timeout=5) for _ in range(4))
    tube.bury(b, priority=3)
    tube.release(c, priority=1, delay=0)
    tube.release(d, priority=0, delay=600)
    tube.touch(a)
    stats = tube.stats_tube(topic)
    names = ("ready", "reserved", "buried", "delayed", "urgent")
    assert [stats[f"current-jobs-{name}"] for name in names] == [1, 1, 1, 1, 1]
    assert (tube.peek_buried().body, tube.peek_delayed().body, tube.peek_ready().body) == (b"b", b"d", b"c")
    assert tube.kick(10) == 1
    tube.kick_job(d)
    assert [job.body for job in take_all(tube)] == [b"d", b"c", b"b"]
    assert tube.stats_job(b)["buries"] == 1 and tube.stats_job(d)["kicks"] == 1
    tube.release(a)
    assert tube.reserve_job(a.id).body == b"a"


def test_the_whole_of_a_batch_is_no_job(wire: Wire, topic: str, tube: greenstalk.Client) -> None:
    """Its record has an id, which is the one before that of its first part."""
    wire.producer(topic)
    send_batch(wire, b"a", b"b")
    a, b = (tube.reserve(timeout=5) for _ in range(2))
    whole = a.id - (b.id - a.id)
    for ask in (tube.peek, tube.reserve_job, tube.stats_job, tube.delete, tube.kick_job):
        with pytest.raises(greenstalk.NotFoundError):
            ask(whole)  # type: ignore[operator]


def test_a_large_batch_and_one_that_is_delayed_and_a_tube_that_is_paused(
    server: PulsarServer, wire: Wire, topic: str, tube: greenstalk.Client
) -> None:
    wire.producer(topic)
    payloads = [b"%d" % i for i in range(MOST)]
    send_batch(wire, *payloads)
    assert tube.stats_tube(topic)["current-jobs-ready"] == MOST
    some = [tube.reserve(timeout=5) for _ in range(50)]
    assert [job.body for job in some] == payloads[:50]
    ids = range(some[0].id, some[0].id + MOST * (step := some[1].id - some[0].id), step)
    assert tube.peek(ids[-1]).body == payloads[-1]
    for job in some:
        tube.release(job, priority=1 << 31)
    with socket.create_connection(("127.0.0.1", server.beanstalk_port), timeout=60) as many:
        many.sendall(b"".join(b"delete %d\r\n" % id_ for id_ in ids[50:]))
        replies = many.makefile("rb")
        assert {replies.readline() for _ in ids[50:]} == {b"DELETED\r\n"}
    assert [job.body for job in take_all(tube)] == payloads[:50]
    send_batch(wire, b"later", b"too", sequence=1, deliver_at_time=1 << 42)
    assert tube.stats_tube(topic)["current-jobs-delayed"] == 2
    send_batch(wire, *[b"x"] * (MOST + 1), sequence=2)  # more than are taken apart
    assert tube.reserve(timeout=5).body == batch_of(*[b"x"] * (MOST + 1))


def test_channels_and_jobs_of_one_batch_end_by_themselves(
    server: PulsarServer, wire: Wire, topic: str, tube: greenstalk.Client
) -> None:
    wire.producer(topic)
    wire.subscribe(topic)
    with nsq.Wire(server.other_port) as consumer:
        consumer.subscribe(topic, "channel", rdy=10)
        send_batch(wire, b"a", b"b", b"c")
        for message in consumer.messages(3):
            consumer.fin(message)
        jobs = take_all(tube)
        assert [job.body for job in jobs] == [b"a", b"b", b"c"]
        tube.delete(jobs[1])
        wire.flow(10)
        assert payload_of(wire.message()) == batch_of(b"a", b"b", b"c")
        for job in (jobs[0], jobs[2]):
            tube.release(job)
        assert [job.body for job in take_all(tube)] == [b"a", b"c"]


def test_the_first_channel_of_a_tube_has_its_batches_once(server: PulsarServer, topic: str) -> None:
    with client(server, topic) as tube, Wire(server.port) as wire, nsq.Wire(server.other_port) as consumer:
        wire.connect().producer(topic)
        send_batch(wire, b"a", b"b", b"c")
        tube.put(b"job")
        first = tube.reserve(timeout=5)
        consumer.subscribe(topic, "channel", rdy=10)
        messages = consumer.messages(4)
        assert sorted(message.body for message in messages) == [b"a", b"b", b"c", b"job"]
        consumer.fin(*messages)
        assert all(consumer.is_not_in_flight(message) for message in messages)
        tube.release(first)
        assert sorted(job.body for job in take_all(tube)) == [b"a", b"b", b"c", b"job"]


@pytest.mark.parametrize("delete", ["beanstalk", "topic"])
def test_a_topic_with_batches_is_deleted(server: PulsarServer, topic: str, delete: str) -> None:
    with client(server, topic) as tube, Wire(server.port) as wire:
        wire.connect().producer(topic)
        for i in range(20):
            send_batch(wire, b"a", b"b", b"c", sequence=i)
        held, buried = tube.reserve(timeout=5), tube.reserve(timeout=5)
        tube.bury(buried)
        if delete == "topic":
            from tests.nsq import api

            api.call(server.http_port, "DELETE", f"/admin/v2/persistent/public/default/{topic}?force=true")
            assert is_gone(tube, held) and not take_all(tube)
        else:
            for job in take_all(tube):
                tube.delete(job)
            tube.delete(held)
            tube.delete(buried)
            assert not take_all(tube)


def test_jobs_of_a_batch_outlive_crashes_each_in_its_state(tmp_path: Path) -> None:
    with running(data_dir=tmp_path) as server, Wire(server.port) as wire:
        with client(server, "t") as tube:
            wire.connect().producer("t")
            send_batch(wire, *(b"%d" % i for i in range(70)), how="lz4")
            expected: dict[int, tuple[bytes, str]] = {}
            for job in take_all(tube):
                number = int(job.body)
                if number % 7 == 0:
                    expected[job.id] = (job.body, "ready")  # reserved, and given back by the crash
                elif number % 7 == 1:
                    tube.bury(job)
                    expected[job.id] = (job.body, "buried")
                elif number % 7 == 2:
                    tube.release(job, delay=1000)
                    expected[job.id] = (job.body, "delayed")
                else:
                    tube.delete(job)
            kill_worker(server, tube)
            assert {id: (tube.peek(id).body, tube.stats_job(id)["state"]) for id in expected} == expected
            assert tube.kick(100) == 10 and tube.kick(100) == 10
            got = take_all(tube)
            assert {job.id for job in got} == set(expected)
        with Wire(server.port) as again, client(server, "t") as tube:  # its ids are nobody else's
            again.connect().producer("t")
            send_batch(again, b"x", b"y", sequence=1)
            more = take_all(tube)
            assert {job.body for job in more} == {b"%d" % int(body) for body, _ in expected.values()} | {b"x", b"y"}
            assert len({job.id for job in more}) == 32


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_was_deleted_of_batches_stays_so_over_kills_and_compaction(tmp_path: Path) -> None:
    """A ledger: what a client heard to be deleted does not come again, and nothing else is lost; while
    batches of which little is left are moved in the log all the time."""
    random_ = random.Random(7)
    settings = ["log.retention-hours=0", "log.retention-bytes=0"]
    with running(data_dir=tmp_path, settings=settings) as server:
        left: set[bytes] = set()
        sequence = moved = 0
        for _ in range(4):
            with Wire(server.port) as wire, client(server, "t") as tube:
                wire.connect().producer("t")
                for _ in range(300):
                    bodies = [b"%d-%d" % (sequence, i) for i in range(20)]
                    send_batch(wire, *(body + b"-" * 20_000 for body in bodies), sequence=sequence)
                    left |= set(bodies)
                    sequence += 1
                for job in take_all(tube):
                    body = job.body.rstrip(b"-")
                    assert body in left, "it was deleted"
                    of, place = map(int, body.split(b"-"))
                    if of % 10 or place:
                        tube.delete(job)
                        left.discard(body)
                    elif random_.random() < 0.3:
                        tube.bury(job)
                moved += tube.stats()["binlog-records-migrated"]
                kill_worker(server, tube)
        with client(server, "t") as tube:
            while tube.kick(1000):
                pass
            assert moved > 0
            assert {job.body.rstrip(b"-") for job in take_all(tube)} == left


@pytest.mark.parametrize("how", ["none", "zstd"])
def test_those_that_are_there_are_jobs_where_pulsar_is_not_spoken_any_more(tmp_path: Path, how: str) -> None:
    with running(data_dir=tmp_path) as server, Wire(server.port) as wire, client(server, "old"):
        wire.connect().producer("old")
        send_batch(wire, b"first", b"second", how=how)
    with (
        servers.running(servers.SINGLE, data_dir=tmp_path) as of_jobs,
        greenstalk.Client(("127.0.0.1", of_jobs.port), encoding=None, watch="old") as tube,
    ):
        assert [tube.reserve(timeout=30).body for _ in range(2)] == [b"first", b"second"]
