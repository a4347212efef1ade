"""The official client, nats-py, with ours and with a real nats-server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from tests.nats.servers import NatsServer


def with_client(server: NatsServer, scene: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        client = await nats.connect(server.url, allow_reconnect=False)
        try:
            await asyncio.wait_for(scene(client), 20)
        finally:
            await client.close()

    asyncio.run(run())


def test_what_is_published_is_heard(server: NatsServer) -> None:
    async def scene(client: Client) -> None:
        listener = await client.subscribe("greet.*")
        for n in range(100):
            await client.publish(f"greet.{n}", b"%d" % n, headers={"n": str(n)})
        for n in range(100):
            message = await listener.next_msg(timeout=30)
            assert (message.subject, message.data, message.headers) == (f"greet.{n}", b"%d" % n, {"n": str(n)})

    with_client(server, scene)


def test_a_request_is_answered(server: NatsServer) -> None:
    async def scene(client: Client) -> None:
        async def double(message: Msg) -> None:
            await message.respond(message.data * 2)

        await client.subscribe("double", cb=double)
        answers = await asyncio.gather(*(client.request("double", b"%d" % n, timeout=30) for n in range(50)))
        assert [answer.data for answer in answers] == [b"%d" % n * 2 for n in range(50)]

    with_client(server, scene)


def test_a_request_that_nobody_hears_says_so(server: NatsServer) -> None:
    async def scene(client: Client) -> None:
        with pytest.raises(NoRespondersError):
            await client.request("nobody.there", b"", timeout=30)

    with_client(server, scene)


def test_a_group_shares_the_work(server: NatsServer) -> None:
    async def scene(client: Client) -> None:
        heard: list[bytes] = []
        members: set[int] = set()
        done = asyncio.Event()

        def member(number: int) -> Callable[[Msg], Awaitable[None]]:
            async def note(message: Msg) -> None:
                heard.append(message.data)
                members.add(number)
                if len(heard) == 200:
                    done.set()

            return note

        for number in range(4):
            await client.subscribe("work", queue="crew", cb=member(number))
        for n in range(200):
            await client.publish("work", b"%d" % n)
        await asyncio.wait_for(done.wait(), 10)
        assert sorted(heard) == sorted(b"%d" % n for n in range(200))
        assert members == set(range(4))

    with_client(server, scene)


def test_it_drains(server: NatsServer) -> None:
    async def scene(client: Client) -> None:
        heard: list[bytes] = []

        async def note(message: Msg) -> None:
            heard.append(message.data)

        await client.subscribe("drain", cb=note)
        for n in range(100):
            await client.publish("drain", b"%d" % n)
        await client.drain()
        assert heard == [b"%d" % n for n in range(100)]

    with_client(server, scene)
