"""What begins a gateway that has not begun yet, and what does not."""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mq_shards.gateway.pulsar.store import Store
from mq_shards.supervisor.standby import Standby, has_work

NOTHING: dict[str, Any] = {"nsq": {"lookupd-tcp-address": [], "statsd-address": ""}}


class Waiting:
    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.begun = 0
        self.standby = Standby(self.selector, self._begin)

    def _begin(self) -> None:
        self.begun += 1

    def turn(self) -> None:
        for key, _ in self.selector.select(0):
            key.data()


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    one = Waiting()
    yield one
    one.standby.close()
    one.selector.close()


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def test_it_begins_once_however_many_come_in_one_turn_and_what_they_sent_is_left(waiting: Waiting) -> None:
    pairs = [pair(), pair()]
    waiting.standby.wait([ours for ours, _ in pairs])
    waiting.turn()
    assert not waiting.begun
    for _, theirs in pairs:
        theirs.send(b"x")
    waiting.turn()
    waiting.turn()
    assert (waiting.begun, waiting.standby.waits) == (1, False)
    assert [ours.recv(9) for ours, _ in pairs] == [b"x", b"x"]
    for one in pairs:
        for end in one:
            end.close()


def test_nobody_begins_it_after_the_end(waiting: Waiting) -> None:
    ours, theirs = pair()
    with ours, theirs:
        waiting.standby.wait([ours])
        theirs.send(b"x")
        waiting.standby.end()
        waiting.turn()
        assert not waiting.begun


def test_an_acceptor_that_asks_begins_it_and_one_that_dies_does_not(waiting: Waiting) -> None:
    waiting.standby.wait([])
    for asked in (False, True):  # a question of an acceptor that died after it is nobody's
        ours, theirs = pair()
        waiting.standby.keep(0, ours)
        if asked:
            theirs.send(b"?")
        theirs.close()
        waiting.turn()
        assert not waiting.begun
        assert waiting.standby.take(0) is None
    ours, theirs = pair()
    with theirs:
        waiting.standby.keep(0, ours)
        theirs.send(b"?")
        waiting.turn()
        assert waiting.begun == 1
        kept = waiting.standby.take(0)
        assert kept is ours
        assert kept.recv(9) == b"?"
        kept.close()


def test_what_was_decided_before_is_work(tmp_path: Path) -> None:
    assert not has_work({"http"}, NOTHING, None)
    assert not has_work({"http"}, NOTHING, str(tmp_path))
    (tmp_path / "writers").mkdir()
    assert not has_work({"http"}, NOTHING, str(tmp_path))
    (tmp_path / "writers" / "w.json").write_text("{}")
    assert has_work({"http"}, NOTHING, str(tmp_path))


def test_servers_to_be_told_of_topics_are_work_where_there_are_clients_of_nsq() -> None:
    settings = {"nsq": {"lookupd-tcp-address": ["a:1"], "statsd-address": ""}}
    assert has_work({"nsq"}, settings, None)
    assert not has_work({"http"}, settings, None)


def test_what_pulsars_clients_have_made_is_work_and_a_catalog_of_nothing_is_none(tmp_path: Path) -> None:
    async def make(*records: dict[str, object]) -> None:
        store = Store(tmp_path)
        await store.open()
        await store.commit(*records)
        await store.close()

    asyncio.run(make())
    assert not has_work({"pulsar"}, NOTHING, str(tmp_path))
    asyncio.run(make({"do": "transactions-from", "id": 1}))
    for listening in ("pulsar", "nats"):  # there too: others may wait for what was begun
        assert has_work({listening}, NOTHING, str(tmp_path))
