"""Bound topics: what is published to them is kept too, its publisher is told, and all protocols see each other's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nats
import pytest
from nats.errors import NoRespondersError

from tests.nats.scenes import QUIET
from tests.nats.wire import Wire
from tests.nsq import api
from tests.pulsar import wire as pulsar
from tests.servers import Server, Shape, children, comm_of, free_port, start, wait_until

BOUND = ("events.>", "jobs.*")
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


@dataclass
class Broker:
    """Of all protocols."""

    server: Server
    nats: int
    nsq: int
    nsq_http: int
    http: int
    pulsar: int

    def beanstalk(self, data: bytes, until: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as client:
            client.sendall(data)
            heard = b""
            while not heard.endswith(until):
                received = client.recv(1 << 16)
                assert received, heard
                heard += received
        return heard

    def listener(self, subject: bytes) -> Wire:
        wire = Wire(self.nats)
        wire.send(CONNECT + b"SUB %s 1\r\n" % subject)
        wire.barrier()
        return wire


@contextlib.contextmanager
def running(acceptors: int, place: Path) -> Iterator[Broker]:
    ports = [free_port() for _ in range(5)]
    schemes = ("nats", "nsq", "nsq-http", "http", "pulsar")
    options = [f"--listen={scheme}://127.0.0.1:{port}" for scheme, port in zip(schemes, ports, strict=True)]
    options += [f"--set=nats.topics={pattern}" for pattern in BOUND]
    shape = Shape("shards-2", "mq-shards", ("--workers", "2", "--acceptors", str(acceptors)))
    server = start(shape, data_dir=place / "data", options=options)
    try:
        yield Broker(server, *ports)
    finally:
        server.dispose()


@pytest.fixture(scope="module", params=[1, 3])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    place = Path(tempfile.mkdtemp(prefix="topics-"))
    with running(request.param, place) as one:
        yield one
    shutil.rmtree(place)


def payloads(wire: Wire, count: int) -> list[bytes]:
    found: list[bytes] = []

    def all_there() -> bool:
        nonlocal found
        wire.barrier()
        found = re.findall(rb"MSG [^\r]+\r\n([^\r]*)\r\n", wire.heard.data)
        return len(found) >= count

    wait_until(all_there, f"{count} messages have come: {wire.heard.data!r}")
    return found


def test_a_publisher_is_told_what_number_its_message_has(broker: Broker) -> None:
    async def run() -> list[dict[str, object]]:
        client = await nats.connect(f"nats://127.0.0.1:{broker.nats}")
        try:
            answers = [await client.request("events.told", b"%d" % n, timeout=10) for n in range(20)]
        finally:
            await client.close()
        return [json.loads(answer.data) for answer in answers]

    assert asyncio.run(run()) == [{"stream": "events.told", "seq": n} for n in range(20)]


def test_what_is_not_bound_is_nobodys(broker: Broker) -> None:
    async def run() -> None:
        client = await nats.connect(f"nats://127.0.0.1:{broker.nats}")
        try:
            for subject in ("elsewhere", "jobs.a.b", "events"):
                with pytest.raises(NoRespondersError):
                    await client.request(subject, b"x", timeout=30)
        finally:
            await client.close()

    asyncio.run(run())
    names = api.stats(broker.nsq_http)["topics"]
    assert not {"elsewhere", "jobs.a.b", "events"} & {topic["topic_name"] for topic in names}


def test_it_reaches_tubes_and_those_who_listen(broker: Broker) -> None:
    listener = broker.listener(b"jobs.>")
    publisher = Wire(broker.nats)
    publisher.send(QUIET + b"PUB jobs.tube 5\r\nhello\r\n")
    publisher.barrier()
    heard = broker.beanstalk(b"watch jobs.tube\r\nignore default\r\nreserve-with-timeout 10\r\n", b"hello\r\n")
    assert b"RESERVED" in heard
    assert payloads(listener, 1) == [b"hello"]


def test_headers_do_not_stand_in_other_protocols_way(broker: Broker) -> None:
    wire = Wire(broker.nats)
    headers = b"NATS/1.0\r\nA: b\r\n\r\n"
    wire.send(CONNECT + b"HPUB jobs.headed %d %d\r\n%sbody\r\n" % (len(headers), len(headers) + 4, headers))
    wire.barrier()
    heard = broker.beanstalk(b"watch jobs.headed\r\nignore default\r\nreserve-with-timeout 10\r\n", b"body\r\n")
    assert heard.endswith(b" 4\r\nbody\r\n")


def test_what_tubes_and_topics_are_given_reaches_who_listens_and_is_there_once(broker: Broker) -> None:
    listener = broker.listener(b"jobs.*")
    put = b"put 0 0 60 3\r\none\r\n"
    broker.beanstalk(b"use jobs.given\r\n" + put + put + b"list-tube-used\r\n", b"USING jobs.given\r\n")
    with socket.create_connection(("127.0.0.1", broker.nsq), timeout=60) as client:
        client.sendall(b"  V2PUB jobs.given\n\x00\x00\x00\x03two")
        many = b"".join(len(body).to_bytes(4, "big") + body for body in (b"three", b"four"))
        client.sendall(b"MPUB jobs.given\n" + (len(many) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + many)
        heard = b""
        while heard.count(b"OK") < 2:
            heard += client.recv(100)
    api.post(broker.nsq_http, "/pub?topic=jobs.given", b"five")
    api.post(broker.nsq_http, "/mpub?topic=jobs.given", b"six\nseven")
    expected = [b"one", b"one", b"two", b"three", b"four", b"five", b"six", b"seven"]
    assert sorted(payloads(listener, len(expected))) == sorted(expected)
    topic = api.topic_stats(broker.nsq_http, "jobs.given")
    assert topic is not None and topic["message_count"] == len(expected)


def test_what_pulsars_producers_send_reaches_who_listens(broker: Broker) -> None:
    listener = broker.listener(b"jobs.*")
    with pulsar.Wire(broker.pulsar) as producer:
        producer.connect()
        producer.producer("persistent://public/default/jobs.pulsar")
        for n in range(300):
            producer.send(b"%d" % n, sequence=n)
        # What is not stored reaches nobody.
        producer.raw(pulsar.send_frame(1, 300, pulsar.entry_of(pulsar.metadata(), b"damaged", checksum=1)))
        producer.send(b"last", sequence=301)
        assert payloads(listener, 301) == [*(b"%d" % n for n in range(300)), b"last"]


def test_many_in_one_command_reach_who_listens_in_their_order_and_others_are_served_meanwhile(broker: Broker) -> None:
    listener = broker.listener(b"jobs.*")
    bodies = [b"%d" % n for n in range(40_000)]
    many = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    with socket.create_connection(("127.0.0.1", broker.nsq), timeout=60) as client:
        client.sendall(b"  V2MPUB jobs.many\n" + (len(many) + 4).to_bytes(4, "big"))
        client.sendall(len(bodies).to_bytes(4, "big") + many + b"PUB jobs.many\n\x00\x00\x00\x04last")
        assert payloads(listener, len(bodies) + 1) == [*bodies, b"last"]


def test_a_subject_that_is_no_topics_name_is_refused_with_a_word(broker: Broker) -> None:
    wire = broker.listener(b"inbox")
    wire.send(b"PUB events.%s inbox 1\r\nx\r\n" % (b"l" * 1024))
    answer = json.loads(payloads(wire, 1)[0])
    assert "too long" in answer["error"]["description"]


def test_a_thousand_without_waiting_are_all_there_after_kill_9_of_everything() -> None:
    place = Path(tempfile.mkdtemp(prefix="topics-"))
    try:
        with running(1, place) as broker:
            wire = broker.listener(b"inbox")
            wire.send(b"".join(b"PUB events.many inbox %d\r\n%d\r\n" % (len(b"%d" % n), n) for n in range(1000)))
            told = [json.loads(answer)["seq"] for answer in payloads(wire, 1000)]
            assert sorted(told) == list(range(1000))
            for pid in [*children(broker.server.process.pid), broker.server.process.pid]:
                os.kill(pid, signal.SIGKILL)
        with running(1, place) as broker:
            topic = api.topic_stats(broker.nsq_http, "events.many")
            assert topic is not None and topic["depth"] == 1000
    finally:
        shutil.rmtree(place)


def test_who_asks_while_a_worker_is_killed_is_answered_or_waits_and_nothing_that_was_confirmed_is_lost() -> None:
    place = Path(tempfile.mkdtemp(prefix="topics-"))
    try:
        with running(2, place) as broker:
            wire = broker.listener(b"inbox")
            for n in range(100):
                wire.send(b"PUB events.killed inbox 3\r\n%03d\r\n" % n)
                if n in (30, 60):
                    for pid in [pid for pid in children(broker.server.process.pid) if "worker" in comm_of(pid)]:
                        os.kill(pid, signal.SIGKILL)
                payloads(wire, n + 1)
            answers = [json.loads(answer) for answer in payloads(wire, 100)]
            confirmed = [answer["seq"] for answer in answers if "error" not in answer]
            assert len(set(confirmed)) == len(confirmed) >= 96
            topic = api.topic_stats(broker.nsq_http, "events.killed")
            assert topic is not None and topic["depth"] >= len(confirmed)
    finally:
        shutil.rmtree(place)
