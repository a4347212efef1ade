"""Strangers who have all places of an HTTP server and say nothing, or little by little, keep nobody out."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from mq_shards.acceptor.access.arrival import Arrival
from mq_shards.gateway.http_answers import Answer, json_answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_server import HttpServer, Request

HOST = "127.0.0.1"
MOST = 8
TIMEOUT_S = 30.0
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Served:
    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = 0
        self.bodies = Bodies()
        self.server = HttpServer(self._serve, self.bodies, MOST)
        self.port = 0
        self._streams: list[Stream] = []

    async def _serve(self, request: Request) -> Answer:
        self.asked += 1
        if request.method == "POST":
            async with self.bodies.read(request, 1 << 20):
                pass
        await self.may_answer.wait()
        return json_answer("served")

    async def connect(self, said: bytes = b"") -> Stream:
        stream = await asyncio.open_connection(HOST, self.port)
        self._streams.append(stream)
        stream[1].write(said)
        return stream

    async def close(self) -> None:
        for _, writer in self._streams:
            writer.close()
        await self.server.close(1)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    served = Served()
    listener = socket.create_server((HOST, 0), backlog=64)
    served.port = listener.getsockname()[1]
    await served.server.listen(listener, 64)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield served
    finally:
        await served.close()


async def answer(stream: Stream) -> bytes:
    return await stream[0].readuntil(b'"served"')


async def has_ended(stream: Stream) -> bool:
    with contextlib.suppress(ConnectionError):
        return await stream[0].read(1) == b""
    return True


def play(scene: Callable[[Served], Awaitable[None]]) -> None:
    async def run() -> None:
        async with serving() as served:
            await scene(served)

    asyncio.run(run())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHos"])
def test_who_has_asked_for_nothing_for_longest_goes_first(said: bytes) -> None:
    async def scene(served: Served) -> None:
        strangers = [await served.connect(said) for _ in range(MOST)]
        await until(lambda: len(served.server.connections) == MOST)
        for n in range(3):
            assert b"served" in await answer(await served.connect(HEAD))
            assert await has_ended(strangers[n])
        assert len(served.server.connections) == MOST

    play(scene)


def test_a_head_that_comes_byte_by_byte_is_waited_for_from_its_first_byte_on() -> None:
    async def scene(served: Served) -> None:
        slow = await served.connect(b"GET /")
        await until(lambda: len(served.server.connections) == 1)
        for _ in range(MOST - 1):
            await served.connect()
        await until(lambda: len(served.server.connections) == MOST)
        for byte in b" HTTP/1.1\r\nX":
            slow[1].write(bytes([byte]))
            await asyncio.sleep(0.002)
        assert b"served" in await answer(await served.connect(HEAD))
        assert await has_ended(slow)

    play(scene)


def test_who_has_asked_already_keeps_its_place_before_one_that_has_not() -> None:
    async def scene(served: Served) -> None:
        known = await served.connect(HEAD)
        await answer(known)
        for _ in range(5 * MOST):
            await served.connect()
        assert b"served" in await answer(await served.connect(HEAD))
        known[1].write(HEAD)
        assert b"served" in await answer(known)

    play(scene)


def test_bodies_that_do_not_come_keep_nobody_out() -> None:
    async def scene(served: Served) -> None:
        strangers = [
            await served.connect(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx")
            for _ in range(MOST)
        ]
        await until(lambda: served.asked == MOST)
        assert b"served" in await answer(await served.connect(HEAD))
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(has_ended(stranger)) for stranger in strangers],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert len(done) == 1

    play(scene)


def test_who_is_being_served_is_never_let_go() -> None:
    async def scene(served: Served) -> None:
        served.may_answer.clear()
        clients = [await served.connect(HEAD) for _ in range(MOST)]
        await until(lambda: served.asked == MOST)
        assert await has_ended(await served.connect(HEAD)), "all places are taken"
        served.may_answer.set()
        for client in clients:
            assert b"served" in await answer(client)
        assert b"served" in await answer(await served.connect(HEAD)), "by who has one of those that wait now"

    play(scene)


def test_a_flood_of_connections_takes_no_more_than_the_places() -> None:
    async def scene(served: Served) -> None:
        most = 0
        for _ in range(20):
            await asyncio.gather(*(served.connect() for _ in range(2 * MOST)))
            most = max(most, len(served.server.places))
        assert most <= MOST

    play(scene)


def test_who_waits_for_the_check_of_a_login_goes_before_who_has_asked_for_nothing() -> None:
    async def scene(served: Served) -> None:
        checked, doubted = asyncio.Event(), 0

        async def gate(request: Request) -> None:
            nonlocal doubted
            if "authorization" in request.headers:
                doubted += 1
                with request.unproven():
                    await checked.wait()

        served.server.gate = gate
        new = [await served.connect() for _ in range(MOST // 2)]
        await until(lambda: len(served.server.connections) == MOST // 2)
        wrong = HEAD[:-2] + b"Authorization: Bearer wrong\r\n\r\n"
        strangers = [await served.connect(wrong) for _ in range(MOST // 2)]
        await until(lambda: doubted == MOST // 2)
        for stranger in strangers[:-1]:
            assert b"served" in await answer(await served.connect(HEAD))
            assert await has_ended(stranger)
        for one in new:
            one[1].write(HEAD)
            assert b"served" in await answer(one)
        checked.set()
        assert b"served" in await answer(strangers[-1]), "who keeps its place is served when it is proven"

    play(scene)


def test_many_that_come_at_once_do_not_keep_out_the_last() -> None:
    """They are accepted in one turn, before anything is read from them."""

    async def scene(served: Served) -> None:
        crowd = [socket.create_connection((HOST, served.port)) for _ in range(3 * MOST)]
        with socket.create_connection((HOST, served.port)) as last:
            last.sendall(HEAD)
            last.setblocking(False)
            assert b"200" in await asyncio.get_running_loop().sock_recv(last, 1000)
        for one in crowd:
            one.close()

    play(scene)


def test_many_that_acceptors_hand_over_at_once_take_no_more_than_the_places() -> None:
    async def scene(served: Served) -> None:
        pairs = [socket.socketpair() for _ in range(3 * MOST)]
        await asyncio.gather(*(served.server.adopt(theirs, b"", Arrival(), None) for _, theirs in pairs))
        assert len(served.server.places) == MOST
        last = pairs[-1][0]
        last.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(last, HEAD)
        assert b"200" in await loop.sock_recv(last, 1000)
        for ours, _ in pairs:
            ours.close()

    play(scene)


def test_who_leaves_in_the_middle_of_a_body_that_nobody_wants_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(served: Served) -> None:
        served.may_answer.clear()
        sock = socket.create_connection((HOST, served.port))
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n")
        await until(lambda: served.asked == 1)
        await loop.sock_sendall(sock, bytes(512 << 10))  # more than is read ahead: the server does not see the end
        sock.close()
        served.may_answer.set()
        await until(lambda: not served.server.connections)

    play(scene)
    assert caplog.records == []


def test_where_no_descriptor_is_left_who_says_nothing_goes_for_who_asks() -> None:
    class Short(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            if len(served_here.server.connections) >= MOST // 2:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().accept()

    served_here: Served

    async def scene(served: Served) -> None:
        nonlocal served_here
        served_here = served
        listener = Short(fileno=socket.create_server((HOST, 0), backlog=64).detach())
        served.port = listener.getsockname()[1]
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await served.server.listen(listener, 64)
        for _ in range(20):
            await served.connect()
        assert b"served" in await answer(await served.connect(HEAD))

    play(scene)
