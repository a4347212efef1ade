"""Who asks for large answers over HTTP and does not read them: they have a limit over all, and others are told."""

from __future__ import annotations

import asyncio
import socket

import pytest
from mq_shards.gateway.http_answers import TEXT, Answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_server import HttpServer, Request

HOST = "127.0.0.1"
LARGE = 8 << 20  # far more than kernels keep of an answer
LIMIT = 2 * LARGE
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
HEADERS = {"Content-Type": TEXT}


@pytest.mark.parametrize("in_parts", [False, True])
def test_answers_that_nobody_reads_have_a_limit_over_all(in_parts: bool) -> None:
    async def serve(request: Request) -> Answer | None:
        if not in_parts:
            return Answer(200, bytes(LARGE), HEADERS)
        await request.send(200, HEADERS, [bytes(LARGE // 8)] * 8)
        return None

    async def begun(port: int) -> tuple[asyncio.StreamReader, bytes]:
        """Somebody who has read the first line, and reads no more for now."""
        reader, writer = await asyncio.open_connection(HOST, port, limit=1024)
        streams.append(writer)
        writer.write(HEAD)
        return reader, (await reader.readline()).split()[1]

    async def play() -> None:
        listener = socket.create_server((HOST, 0))
        port = listener.getsockname()[1]
        server = HttpServer(serve, Bodies(limit_bytes=LIMIT), 16)
        await server.listen(listener, 16)
        asked = [await begun(port) for _ in range(6)]
        assert [status for _, status in asked] == [b"200"] * 2 + [b"503"] * 4
        for reader, status in asked:
            body = (await reader.read(-1)).partition(b"\r\n\r\n")[2]
            assert len(body) == LARGE if status == b"200" else b"not been read" in body
        again, status = await begun(port)
        assert status == b"200", "what was read makes room"
        assert len(await again.read(-1)) > LARGE
        for writer in streams:
            writer.close()
        await server.close(1)

    streams: list[asyncio.StreamWriter] = []
    asyncio.run(play())


def test_one_that_is_alone_may_have_any_size() -> None:
    bodies = Bodies(limit_bytes=LARGE)
    with bodies.answering(2 * LARGE) as alone, bodies.answering(LARGE) as beside, bodies.answering(100) as small:
        assert (alone, beside, small) == (True, False, True)
    with bodies.answering(LARGE) as later:
        assert later
