"""Requests from one account to another, with the official client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from tests.nats.conftest import server_of, serving
from tests.nats.servers import NatsServer
from tests.nats.wire import Wire
from tests.servers import children, comm_of, wait_until


async def known(client: Client) -> None:
    """What it has subscribed to is known at every acceptor. This client may send a PING ahead of what it was told to
    send before; a second one comes behind it."""
    await client.flush()
    await client.flush()


server = server_of("who.conf")


async def client(server: NatsServer, user: str) -> Client:
    return await nats.connect(server.url, user=user, password=user, allow_reconnect=False)


def play(server: NatsServer, scene: Callable[[Client, Client], Awaitable[None]]) -> None:
    """The one who gives, and the one who takes."""

    async def run() -> None:
        giver, taker = await client(server, "giver"), await client(server, "taker")
        try:
            await asyncio.wait_for(scene(giver, taker), 20)
        finally:
            await giver.close()
            await taker.close()

    asyncio.run(run())


def test_a_request_is_answered_from_another_account(server: NatsServer) -> None:
    async def scene(giver: Client, taker: Client) -> None:
        seen: list[str] = []

        async def answer(message: Msg) -> None:
            seen.append(message.reply)
            await message.respond(b"re: " + message.data)

        await giver.subscribe("ask.single", cb=answer)
        await known(giver)
        for n in range(200):
            reply = await taker.request("ask.single", b"%d" % n, timeout=30)
            assert reply.data == b"re: %d" % n
        assert all(reply.startswith("_R_.") for reply in seen)
        assert len(set(seen)) == 200

    play(server, scene)


def test_many_answers_come_where_the_export_says_so(server: NatsServer) -> None:
    async def scene(giver: Client, taker: Client) -> None:
        async def answer(message: Msg) -> None:
            for n in range(5):
                await giver.publish(message.reply, b"%d" % n)

        await giver.subscribe("ask.many.*", cb=answer)
        await known(giver)
        inbox = taker.new_inbox()
        answers = await taker.subscribe(inbox)
        await taker.publish("many.a", b"", reply=inbox)
        assert [(await answers.next_msg(timeout=30)).data for _ in range(5)] == [b"%d" % n for n in range(5)]

    play(server, scene)


def test_a_service_of_a_service_answers(server: NatsServer) -> None:
    async def scene(giver: Client, taker: Client) -> None:
        async def answer(message: Msg) -> None:
            await message.respond(b"from afar")

        await giver.subscribe("ask.chain", cb=answer)
        await known(giver)
        chained = await client(server, "chained")
        assert (await chained.request("far", b"", timeout=30)).data == b"from afar"
        await chained.close()

    play(server, scene)


def test_a_service_that_is_not_there_is_said_not_to_be(server: NatsServer) -> None:
    async def scene(giver: Client, taker: Client) -> None:
        with pytest.raises(NoRespondersError):
            await taker.request("ask.single", b"", timeout=30)

    play(server, scene)


def test_a_service_is_told_who_asks(server: NatsServer) -> None:
    async def scene(giver: Client, taker: Client) -> None:
        asked = await giver.subscribe("ask.told")
        await known(giver)
        named = await nats.connect(server.url, user="taker", password="taker", name="me", allow_reconnect=False)
        await named.publish("told", b"x", reply="in.1", headers={"A": "b"})
        message = await asked.next_msg(timeout=30)
        assert message.data == b"x"
        assert message.headers is not None
        assert message.headers["A"] == "b"
        info = json.loads(message.headers["Nats-Request-Info"])
        assert info["start"].endswith("Z")
        assert {key: info[key] for key in ("host", "acc", "user", "name", "lang", "kind", "client_type")} == {
            "host": "127.0.0.1", "acc": "IMPORTER", "user": "taker", "name": "me", "lang": "python3",
            "kind": "Client", "client_type": "nats",
        }  # fmt: skip
        await named.close()

    play(server, scene)


def test_members_of_a_service_share_requests(server: NatsServer) -> None:
    async def scene(giver: Client, taker: Client) -> None:
        other = await client(server, "giver")
        counts = [0, 0]

        def member(number: int) -> Callable[[Msg], Awaitable[None]]:
            async def answer(message: Msg) -> None:
                counts[number] += 1
                await message.respond(b"")

            return answer

        for number, each in enumerate((giver, other)):
            await each.subscribe("ask.single", "workers", cb=member(number))
            await known(each)
        for _ in range(100):
            await taker.request("ask.single", b"", timeout=30)
        assert sum(counts) == 100
        assert min(counts) > 5
        await other.close()

    play(server, scene)


def test_a_limit_of_an_account_holds_over_all_acceptors_and_after_one_has_died() -> None:
    with serving(3, "who.conf") as server:
        line = b'CONNECT {"verbose":false,"user":"c","pass":"c"}\r\n'

        def held() -> Wire | None:
            """One of the one that there may be."""
            wire = Wire(server.port)
            wire.send(line)
            wire.barrier()
            if b"PONG" in wire.heard.data:
                return wire
            assert b"-ERR 'maximum account active connections exceeded'" in wire.heard.data
            return None

        first = held()
        assert first is not None
        for _ in range(20):
            assert held() is None
        for pid in [pid for pid in children(server.process.pid) if "acceptor" in comm_of(pid)]:
            os.kill(pid, signal.SIGKILL)
        found: list[Wire] = []

        def is_there() -> bool:
            with contextlib.suppress(OSError, AssertionError):
                if (one := held()) is not None:
                    found.append(one)
            return bool(found)

        wait_until(is_there, "the place of one that was at an acceptor that died is free")
        assert all(held() is None for _ in range(10))
