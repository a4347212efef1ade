"""Strangers who connect to an encrypted HTTP listener and never end their handshake."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import pytest
from mq_shards.gateway import http_server
from mq_shards.gateway.http_answers import Answer, json_answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_server import HttpServer, Request

from tests.nsq import certificates

HOST = "127.0.0.1"
MOST = 8
TIMEOUT_S = 60.0


async def serve(request: Request) -> Answer:
    return json_answer("served")


async def ended(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        assert await reader.read(1) == b""


def test_they_have_the_places_that_there_are_and_keep_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificates.make(tmp_path)
    monkeypatch.setattr(http_server, "SHAKE_S", 1.0)

    async def ask(port: int) -> bytes:
        reader, writer = await asyncio.open_connection(HOST, port, ssl=made.context(), server_hostname="localhost")
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await reader.readuntil(b'"served"')
        writer.close()
        return answer

    async def run() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.server.cert, made.server.key)
        server = HttpServer(serve, Bodies(), MOST)
        listener = socket.create_server((HOST, 0), backlog=64)
        port = listener.getsockname()[1]
        await server.listen(listener, 64, lambda: context)
        assert b"served" in await ask(port)
        strangers = [await asyncio.open_connection(HOST, port) for _ in range(3 * MOST)]
        waiting = [asyncio.ensure_future(ended(reader)) for reader, _ in strangers]
        async with asyncio.timeout(TIMEOUT_S):
            # Those that came first are closed for those that came later, the others when their time is up.
            await asyncio.gather(*waiting[: 2 * MOST])
            assert len(server._beginning) <= MOST
            assert b"served" in await ask(port)
            await asyncio.gather(*waiting)
        for _, writer in strangers:
            writer.close()
        await server.close(1)

    asyncio.run(run())
