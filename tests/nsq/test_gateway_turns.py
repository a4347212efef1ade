"""What is told of very many topics is worked out in short turns of the gateway's event loop."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from mq_shards.acceptor.access.arrival import Arrival
from mq_shards.gateway import turns
from mq_shards.gateway.catalog import Channel, Topic
from mq_shards.gateway.http_server import HttpServer
from mq_shards.gateway.nsq import lookupd
from mq_shards.gateway.nsq.elsewhere import ChannelsElsewhere, Timeouts
from mq_shards.gateway.nsq.from_acceptors import FromAcceptors
from mq_shards.gateway.nsq.lookupd import Lookupd, Peer
from mq_shards.gateway.nsq.registrations import Registrations
from mq_shards.gateway.nsq.statsd import Statsd, StatsdOptions
from mq_shards.gateway.nsq.topics import visible_topics
from mq_shards.ringbuf.handover import Handover

TOPICS = [
    Topic(f"t{n}", 0, 2, 10, 100, 0, [Channel("ch", 0, 0, 4, 0, 0, 7, 0, 0)]) for n in range(8 * turns.PIECE)
]  # fmt: skip


EPHEMERAL = [replace(topic, name=f"{topic.name}#ephemeral") for topic in TOPICS]


class FakeBroker:
    def __init__(self, topics: list[Topic]) -> None:
        self._topics = topics

    async def topics(self, consumers: bool) -> tuple[list[Topic], list[str]]:
        return self._topics, []


async def turns_of(work: Awaitable[object]) -> int:
    """How often others have their turn meanwhile."""
    task = asyncio.ensure_future(work)
    count = 0
    while not task.done():
        count += 1
        await asyncio.sleep(0)
    await task
    return count


async def statsd(topics: list[Topic] = TOPICS) -> int:
    broker: Any = FakeBroker(topics)
    statsd = Statsd(StatsdOptions("", "", 1.0, 508, exclude_ephemeral=True, on_disk=True), broker, None)
    return await turns_of(statsd.report()) - await turns_of(visible_topics(broker))


async def statsd_without_figures() -> int:
    return await statsd(EPHEMERAL)


async def one_by_one(topics: list[Topic]) -> AsyncIterator[Topic]:
    for topic in topics:
        yield topic


async def all_come() -> int:
    return await turns_of(Registrations().update(one_by_one(TOPICS), lambda _: None))


async def all_go() -> int:
    there = Registrations()
    await there.update(one_by_one(TOPICS), lambda _: None)
    return await turns_of(there.update(one_by_one([]), lambda _: None))


async def elsewhere() -> int:
    broker: Any = FakeBroker(TOPICS)
    channels = ChannelsElsewhere(broker, list, Timeouts(1, 1))
    names = [topic.name for topic in TOPICS]
    return await turns_of(channels.update(names, set(names)))


@pytest.mark.parametrize("play", [statsd, statsd_without_figures, all_come, all_go, elsewhere])
def test_others_have_their_turns_meanwhile(play: Callable[[], Awaitable[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0)

    async def count() -> int:
        return await play()

    assert asyncio.run(count()) >= 8


class ToldPeer(Peer):
    """A peer that has told its daemon of all topics when the connection breaks."""

    def __init__(self) -> None:
        self.wanted = {(topic.name, "") for topic in TOPICS}
        self.is_told = asyncio.Event()
        self.breaks = asyncio.Event()
        super().__init__("", {}, self.wanted)

    async def _session(self) -> None:
        for registration in self.wanted:
            self._told.add(registration)
        self.is_told.set()
        await self.breaks.wait()
        raise OSError

    def holds(self) -> int:
        """How much of what was told it has not let go of."""
        return sum(registration in self._told for registration in self.wanted)


@pytest.mark.parametrize("cancelled", [False, True], ids=["its connection breaks", "it is let go"])
def test_what_a_daemon_was_told_is_let_go_of_in_pieces(monkeypatch: pytest.MonkeyPatch, *, cancelled: bool) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0)

    async def play() -> list[int]:
        peer = ToldPeer()
        task = asyncio.create_task(peer.run())
        await peer.is_told.wait()
        if cancelled:
            task.cancel()
        peer.breaks.set()
        held = [peer.holds()]
        while held[-1]:
            await asyncio.sleep(0)
            held.append(peer.holds())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return held

    held = asyncio.run(play())
    assert held[0] == len(TOPICS)
    assert max(before - after for before, after in itertools.pairwise(held)) <= len(TOPICS) / 8


@pytest.mark.parametrize(("rest_s", "often"), [(0.0, True), (3600.0 / len(TOPICS), False)], ids=["few", "many"])
def test_all_topics_are_listed_the_less_often_the_more_there_are(
    monkeypatch: pytest.MonkeyPatch, rest_s: float, *, often: bool
) -> None:
    monkeypatch.setattr(lookupd, "WATCH_S", 0.001)
    monkeypatch.setattr(lookupd, "REST_S", rest_s)
    monkeypatch.setattr(Peer, "run", lambda _: asyncio.sleep(3600))
    broker: Any = FakeBroker(TOPICS)
    lists = 0
    versions = itertools.count()

    async def each_topic() -> AsyncIterator[Topic]:
        nonlocal lists
        lists += 1
        async for topic in one_by_one(TOPICS):
            yield topic

    async def play() -> None:
        broker.each_topic = each_topic
        task = asyncio.create_task(Lookupd(broker, lambda: (next(versions),), {}, ["x:1"], Timeouts(1, 1)).run())
        async with asyncio.timeout(30):
            while often and lists <= 3:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0 if often else 0.3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())
    assert often or lists == 1


def test_connections_that_acceptors_pass_on_are_taken_many_in_a_turn() -> None:
    """Else each would wait for all requests that are served meanwhile, once for each connection before it."""
    count = 100

    class Server:
        adopted = 0

        async def adopt(self, sock: socket.socket, *_: object) -> None:
            self.adopted += 1
            sock.close()

    async def turns(server: Server) -> int:
        taken = FromAcceptors(cast(HttpServer, server))
        given, attached = Handover.pair()
        giving = Handover(given)
        taken.attach(Handover(attached))
        found = given_so_far = 0
        while server.adopted < count:
            with socket.socket() as one:
                while given_so_far < count and giving.give(one.fileno(), b"", Arrival().encode()):
                    given_so_far += 1
            await asyncio.sleep(0)
            found += 1
        taken.close()
        giving.close()
        return found

    assert asyncio.run(turns(Server())) < count / 4
