"""A real cluster's servers are replaced one by one, while clients of the official library are at work."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, Member, cluster, meshed, mixtures

SERVERS = 3


@dataclass
class Work:
    """Requests that a group answers, one after the other, each until it is answered: wherever its clients are, and
    whichever server has just gone, they find others, and nothing that was answered is lost."""

    urls: list[str]
    done: Counter[int] = field(default_factory=Counter)
    asked: int = 0
    again: int = 0
    ended: bool = False  # nothing new is asked
    answered: bool = False  # all that was

    async def connect(self, first: int) -> Client:
        urls = self.urls[first:] + self.urls[:first]
        return await nats.connect(
            urls, dont_randomize=True, max_reconnect_attempts=-1, reconnect_time_wait=0.05, connect_timeout=1
        )

    async def answer(self, first: int) -> None:
        client = await self.connect(first)

        async def do(message: Msg) -> None:
            self.done[int(message.data)] += 1
            with contextlib.suppress(NatsError):
                await message.respond(b"done")

        await client.subscribe("work.*", queue="workers", cb=do)
        while not self.answered:
            await asyncio.sleep(0.05)
        await client.close()

    async def ask(self, first: int) -> None:
        client = await self.connect(first)
        while not self.ended:
            self.asked += 1
            number = self.asked
            while True:
                try:
                    await client.request(f"work.{first}", b"%d" % number, timeout=0.5)
                    break
                except NatsError:
                    self.again += 1
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.002)
        await client.close()


async def replace(members: list[Member], place: int, kind: str) -> None:
    """On the same ports, as if it had been upgraded."""
    old = members[place]
    others = [member for member in members if member is not old]
    await asyncio.to_thread(old.stop)
    new = Member(kind, old.directory, [member.route_url for member in others])
    new.port, new.route_port = old.port, old.route_port
    members[place] = new
    new.start()
    await asyncio.to_thread(new.wait)
    await asyncio.to_thread(meshed, members)


@pytest.mark.long
@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS), (OLD_REAL, OURS)))
def test_each_server_becomes_ours_and_real_again_and_no_work_is_lost(kinds: tuple[str, ...]) -> None:
    real, ours = kinds
    with cluster((real,) * SERVERS) as members:
        for member in members:
            member.routes = [other.route_url for other in members if other is not member]
        work = Work([member.url for member in members])

        async def run() -> None:
            answering = [asyncio.create_task(work.answer(n)) for n in range(SERVERS)]
            asking = [asyncio.create_task(work.ask(n)) for n in range(SERVERS)]
            for kind in (ours, real):
                for place in range(SERVERS):
                    before = work.asked
                    await replace(members, place, kind)
                    async with asyncio.timeout(10):
                        while work.asked < before + 30:
                            await asyncio.sleep(0.01)
            work.ended = True
            await asyncio.gather(*asking)
            work.answered = True
            await asyncio.gather(*answering)

        try:
            asyncio.run(asyncio.wait_for(run(), 150))
        finally:
            for member in members:
                member.stop()
        assert set(work.done) == set(range(1, work.asked + 1))
        # Only what was asked again may have been done again.
        assert sum(work.done.values()) - len(work.done) <= work.again
