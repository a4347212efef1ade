"""Who knows what topics there are need not ask again until a version is another one."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from mq_shards.csrc._core import lib
from mq_shards.gateway.catalog import DURABLE

from tests.engine import NSQ, Engine

TOPICS = [b"a", b"b", b"c", b"default"]


@pytest.fixture()
def engine() -> Iterator[Engine]:
    engine = Engine(workers=2)
    yield engine
    engine.dispose()


class Clients:
    """Of a broker, who do something now and then."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self._random = engine, random.Random(seed)
        self._beanstalk: list[int] = []
        self._nsq: list[int] = []
        self.restarts = 0

    def act(self) -> None:
        self._random.choice(
            [self.put, self.work_off, self.work_off, self.use, self.publish, self.subscribe, self.delete, self.leave,
             self.leave, self.restart_a_worker, self.delete_one, self.bury_one]
        )()  # fmt: skip

    def topic(self) -> bytes:
        return self._random.choice(TOPICS)

    def use(self) -> None:
        self._beanstalk.append(self.engine.connect())
        self.engine.send(self._beanstalk[-1], b"use %b\r\n" % self.topic())

    def put(self) -> None:
        conn = self.engine.connect()
        self.engine.send(conn, b"use %b\r\nput 0 0 60 1\r\nx\r\n" % self.topic())
        self.engine.close(conn)

    def work_off(self) -> None:
        """All jobs that there are."""
        conn = self.engine.connect()
        self.engine.send(conn, b"".join(b"watch %b\r\n" % topic for topic in TOPICS))
        while True:
            self.engine.received(conn)
            self.engine.send(conn, b"reserve-with-timeout 0\r\n")
            found = self.engine.received(conn).split()
            if found[0] != b"RESERVED":
                break
            self.engine.send(conn, b"delete %b\r\n" % found[1])
        self.engine.close(conn)

    def delete_one(self) -> None:
        """By its id, watching nothing of it."""
        conn = self.engine.connect()
        self.engine.send(conn, b"use %b\r\npeek-ready\r\npeek-buried\r\nuse default\r\n" % self.topic())
        for id in re.findall(rb"FOUND (\d+)", self.engine.received(conn)):
            self.engine.send(conn, b"delete %b\r\n" % id)
        self.engine.close(conn)

    def bury_one(self) -> None:
        conn = self.engine.connect()
        self.engine.send(conn, b"watch %b\r\nreserve-with-timeout 0\r\n" % self.topic())
        for id in re.findall(rb"RESERVED (\d+)", self.engine.received(conn)):
            self.engine.send(conn, b"bury %b 0\r\n" % id)
        self.engine.close(conn)

    def publish(self) -> None:
        conn = self.engine.connect(NSQ)
        self.engine.send(conn, b"  V2PUB %b\n\0\0\0\1x" % self.topic())
        self.engine.close(conn)

    def subscribe(self) -> None:
        self._nsq.append(self.engine.connect(NSQ))
        channel = self._random.choice([b"channel", b"some#ephemeral"])
        self.engine.send(self._nsq[-1], b"  V2SUB %b %b\n" % (self.topic(), channel))

    def delete(self) -> None:
        self.engine.change(lib.CHANGE_DELETE, self.topic())

    def leave(self) -> None:
        for conns in (self._beanstalk, self._nsq):
            while conns:
                self.engine.close(conns.pop())

    def restart_a_worker(self) -> None:
        if self._random.random() < 0.2:
            self.engine.restart_worker(self._random.randrange(2))
            self.restarts += 1


@pytest.mark.parametrize("seed", range(12))
def test_the_names_are_the_same_as_long_as_the_version_is(engine: Engine, seed: int) -> None:
    """As gateway/pulsar/core.py believes them."""
    clients, known, again = Clients(engine, seed), None, 0
    for _ in range(150):
        clients.act()
        version, names = (*engine.names_versions(), clients.restarts), set(engine.catalog())
        if known is not None and known[0] == version:
            assert names == known[1]
            again += 1
        known = version, names
    assert again > 0, "it was never believed"


@pytest.mark.parametrize("seed", range(6))
def test_topics_that_are_no_tubes_are_the_same_as_long_as_the_version_of_the_catalog_is(
    engine: Engine, seed: int
) -> None:
    """So who asks for no tubes need not ask again when some come and go."""
    clients, known, again = Clients(engine, seed), None, 0
    for _ in range(150):
        clients.act()
        version = (*engine.catalog_versions(), clients.restarts)
        names = {name for name, topic in engine.catalog().items() if topic.flags & DURABLE}
        if known is not None and known[0] == version:
            assert names == known[1]
            again += 1
        known = version, names
    assert again > 0, "it was never believed"


def test_a_tube_in_use_stays_in_the_list_whatever_comes_and_goes_in_it(engine: Engine) -> None:
    """So that a version does not rise with each job."""
    conn = engine.connect()
    engine.send(conn, b"use a\r\nwatch a\r\nwatch b\r\n")
    assert not engine.catalog(), "nothing was in it yet"
    versions = []
    for _ in range(3):
        engine.send(conn, b"put 0 0 60 1\r\nx\r\nreserve\r\n")
        found = re.search(rb"RESERVED (\d+)", engine.received(conn))
        assert found is not None
        engine.send(conn, b"delete %b\r\n" % found[1])
        assert engine.received(conn) == b"DELETED\r\n" and set(engine.catalog()) == {"a"}
        versions.append((engine.names_versions(), engine.catalog_versions()))
    assert versions[0] == versions[1] == versions[2]
    engine.close(conn)
    assert not engine.catalog()
    assert sum(engine.names_versions()) == sum(versions[0][0]) + 1 and engine.catalog_versions() == versions[0][1]
