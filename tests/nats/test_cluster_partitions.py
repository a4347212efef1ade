"""The network between two servers fails: connections are cut, or nothing passes any more and nobody says so."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nats.clusters import ACCEPTORS, NEW_REAL, OLD_REAL, OURS, OURS_3, Member, bodies, meshed, mixtures, settled
from tests.nats.test_cluster_failures import QUICK, has_responder
from tests.servers import wait_until


class Network:
    """A relay to a port, on a thread of its own. While it is `cut` it takes nobody; while `silent`, nothing passes."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._cut, self._flows = False, asyncio.Event()
        self._flows.set()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._server = self._run(asyncio.start_server(self._relay, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def _run(self, coroutine):  # noqa: ANN001, ANN202
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def cut(self) -> None:
        async def cut() -> None:
            self._cut = True
            for writer in self._writers:
                writer.transport.abort()

        self._run(cut())

    def silence(self) -> None:
        async def silence() -> None:
            self._flows.clear()

        self._run(silence())

    def heal(self) -> None:
        async def heal() -> None:
            self._cut = False
            self._flows.set()

        self._run(heal())

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers |= {writer, other_writer}
        await asyncio.gather(self._pump(reader, other_writer), self._pump(other_reader, writer))
        self._writers -= {writer, other_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.contextmanager
def apart(kinds: tuple[str, str]) -> Iterator[tuple[Member, Member, Network]]:
    """The second has a route to the first, through a network; the first tells nobody where it is."""
    directory = Path(tempfile.mkdtemp(prefix="nats-cluster-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        first = Member(kinds[0], directory, extra=QUICK if kinds[0] in ACCEPTORS else ())
        network = Network(first.route_port)
        stack.callback(network.close)
        route = f"nats-route://127.0.0.1:{network.port}"
        second = Member(kinds[1], directory, [route], extra=QUICK if kinds[1] in ACCEPTORS else ())
        for member in (first, second):
            stack.callback(member.stop)
            member.start()
            member.wait()
        meshed([first, second])
        yield first, second, network


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS), (OURS, NEW_REAL), (OLD_REAL, OURS), (OURS_3, OURS)))
def test_servers_whose_connections_are_cut_go_on_alone_and_are_one_again(kinds: tuple[str, str]) -> None:
    with apart(kinds) as (first, second, network):
        listeners = [member.client(b"SUB news 1\r\nSUB at.%d q 2\r\n" % n) for n, member in enumerate((first, second))]
        meshed([first, second])
        asking = [member.client() for member in (first, second)]
        assert has_responder(asking[0], b"at.1") and has_responder(asking[1], b"at.0")
        for _ in range(2):
            network.cut()
            wait_until(lambda: not has_responder(asking[0], b"at.1"), "the first has forgotten")
            wait_until(lambda: not has_responder(asking[1], b"at.0"), "the second has forgotten")
            for number, wire in enumerate(listeners):
                # What was asked while it was not known yet came too.
                wire.asked = 0
                wire.heard.data = b""
                wire.barrier()
                wire.heard.data = b""
                asking[number].send(b"PUB news 4\r\nhere\r\nPUB at.%d 4\r\nhere\r\n" % number)
            settled([first, second], listeners, 4)
            assert all(bodies(wire) == [b"here", b"here"] for wire in listeners)
            network.heal()
            meshed([first, second])
            assert has_responder(asking[0], b"at.1") and has_responder(asking[1], b"at.0")
        for wire in (*listeners, *asking):
            wire.close()


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS), (OURS, OURS)))
def test_a_connection_on_which_nothing_passes_is_found_out(kinds: tuple[str, str]) -> None:
    with apart(kinds) as (first, second, network):
        listener = first.client(b"SUB there 1\r\n")
        meshed([first, second])
        asking = second.client()
        assert has_responder(asking, b"there")
        network.silence()
        wait_until(lambda: not has_responder(asking, b"there"), "it is forgotten")
        network.cut()
        network.heal()
        meshed([first, second])
        assert has_responder(asking, b"there")
        listener.close()
        asking.close()
