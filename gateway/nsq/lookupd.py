"""Registration with nsqlookupd: tells every daemon which topics and channels are here, and that this node is alive.

A peer is a task with one connection (protocol V1: each command is answered with a size and that many bytes). It keeps
the difference between what it has told its daemon and what the daemon should know, so a new or lost connection is no
special case, and a change costs the same however many topics there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import Callable, Container, Sequence
from typing import Any, Final

import orjson
from mq_shards.acceptor.protocols.nsq.options import NSQD_VERSION
from mq_shards.gateway.broker import Broker
from mq_shards.gateway.nsq.elsewhere import ChannelsElsewhere, Timeouts
from mq_shards.gateway.nsq.options import GatewayOptions
from mq_shards.gateway.nsq.registrations import Registration, Registrations
from mq_shards.gateway.parted_set import PartedSet
from mq_shards.gateway.turns import sorted_by_name
from mq_shards.gateway.workers import WorkersError

MAGIC: Final = b"  V1"
REPLY_S: Final = 1.0  # timeout of connecting, and of a reply
HEARTBEAT_S: Final = 15.0
RETRY_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
MAX_REPLY_BYTES: Final = 64 << 10
# How often it checks whether a topic or channel was made or deleted; and how often all are listed anyway, since a
# beanstalk tube is shown to NSQ only while it has jobs.
WATCH_S: Final = 0.05
REFRESH_S: Final = 15.0
# The rest after all have been listed, for each topic and channel: 20 times what it costs the gateway, so that at most
# about 5 % of a core goes there.
REST_S: Final = 75e-6
LAST: Final = "\x7f"  # sorts after all names of channels
_SIZE: Final = struct.Struct(">i")

log = logging.getLogger(__name__)


class LookupdError(Exception):
    """An invalid reply of a daemon."""


def topic_first(registration: Registration) -> str:
    """Sorts a topic before its channels."""
    return "\0".join(registration)


def topic_last(registration: Registration) -> str:
    topic, channel = registration
    return f"{topic}\0{channel or LAST}"


def identity(options: GatewayOptions) -> dict[str, object]:
    return {
        "version": NSQD_VERSION,
        "tcp_port": options.broadcast_tcp_port,
        "http_port": options.broadcast_http_port,
        "hostname": options.hostname,
        "broadcast_address": options.broadcast_address,
    }


class Peer:
    """One nsqlookupd. run() goes on until it is cancelled."""

    def __init__(
        self,
        address: str,
        identity: dict[str, object],
        wanted: Container[Registration],
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        """`wanted`: what the daemon should know. compare() is to be called for all of it, and for each that changes."""
        self.address: Final = address
        self.info: dict[str, Any] = {}  # what the daemon said of itself; empty: not connected
        self._identity = identity
        self._heartbeat_s = heartbeat_s
        self._wanted = wanted
        self._told: PartedSet[Registration] = PartedSet()
        self._differing: PartedSet[Registration] = PartedSet()  # only in one of the two
        self._changed = asyncio.Event()
        self._reply: asyncio.Future[bytes] | None = None  # the reply to the command that was sent last
        self._failure: Exception | None = None  # why no further reply will come

    @property
    def http_address(self) -> str | None:
        """The address of the daemon's HTTP API, as it says; None while it is not connected."""
        host, port = self.info.get("broadcast_address"), self.info.get("http_port")
        if not isinstance(host, str) or not host or not isinstance(port, int):
            return None
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def compare(self, registration: Registration) -> None:
        """To be called when it has become wanted, or is no longer."""
        if (registration in self._wanted) != (registration in self._told):
            self._differing.add(registration)
            self._changed.set()
        else:
            self._differing.discard(registration)

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            await self._told.clear()
            await self._differing.clear()

    async def _run(self) -> None:
        failures = 0
        while True:
            self.info = {}
            try:
                await self._session()
            except Exception as error:  # caused by the address (any text), the network, or a reply
                if self.info:
                    failures = 0
                level = logging.DEBUG if failures else logging.ERROR
                log.log(level, "nsqlookupd %s: %s", self.address, error or type(error).__name__)
            await self._forget_told()
            await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
            failures += 1

    async def _session(self) -> None:
        """Opens a connection, and tells the daemon everything, then all changes, as long as it lasts."""
        host, _, port = self.address.rpartition(":")
        async with asyncio.timeout(REPLY_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=MAX_REPLY_BYTES)
        self._reply = self._failure = None
        reading = asyncio.create_task(self._read_replies(reader))
        try:
            writer.write(MAGIC)
            body = orjson.dumps(self._identity)
            self.info = _peer_info(await self._command(writer, b"IDENTIFY\n" + _SIZE.pack(len(body)) + body))
            log.info("nsqlookupd %s: connected, it is %s", self.address, self.info)
            await self._keep_told(writer, reading)
        finally:
            writer.close()
            reading.cancel()
            await asyncio.wait([reading])
            if not reading.cancelled():
                reading.exception()  # marks it as seen: it ended the session, or came too late to

    async def _forget_told(self) -> None:
        async for piece in self._told.pieces():
            for registration in piece:
                self._told.discard(registration)
                self.compare(registration)

    async def _keep_told(self, writer: asyncio.StreamWriter, reading: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        heartbeat_at = loop.time() + self._heartbeat_s
        while True:
            self._changed.clear()
            await self._tell(writer)
            if loop.time() >= heartbeat_at:
                await self._command(writer, b"PING\n")
                heartbeat_at = loop.time() + self._heartbeat_s
            changed = asyncio.create_task(self._changed.wait())
            try:
                await asyncio.wait(
                    {changed, reading}, timeout=heartbeat_at - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                changed.cancel()
            if reading.done():
                reading.result()

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        # A topic is registered before its channels, and unregistered after them.
        await self._tell_of(writer, b"UNREGISTER", await sorted_by_name(await self._to_tell(told=True), topic_last))
        await self._tell_of(writer, b"REGISTER", await sorted_by_name(await self._to_tell(told=False), topic_first))

    async def _to_tell(self, told: bool) -> list[Registration]:
        """What differs and has been told, or has not."""
        pieces = self._differing.pieces()
        return [one async for piece in pieces for one in piece if (one in self._told) == told]

    async def _tell_of(self, writer: asyncio.StreamWriter, command: bytes, registrations: list[Registration]) -> None:
        registrations.reverse()
        while registrations:  # each is let go of when it is told, not all at the end
            registration = registrations.pop()
            if registration not in self._differing:
                continue  # changed back meanwhile
            await self._register(writer, command, registration)
            if registration in self._told:
                self._told.discard(registration)
            else:
                self._told.add(registration)
            self.compare(registration)

    async def _register(self, writer: asyncio.StreamWriter, command: bytes, registration: Registration) -> None:
        line = b" ".join([command, *(name.encode() for name in registration if name)])
        reply = await self._command(writer, line + b"\n")
        log.info("nsqlookupd %s: %s", self.address, line.decode())
        if reply != b"OK":
            raise LookupdError(f"it answers {line.decode()} with {reply[:200]!r}")

    async def _command(self, writer: asyncio.StreamWriter, command: bytes) -> bytes:
        if self._failure is not None:
            raise self._failure
        self._reply = asyncio.get_running_loop().create_future()
        writer.write(command)
        async with asyncio.timeout(REPLY_S):
            return await self._reply

    async def _read_replies(self, reader: asyncio.StreamReader) -> None:
        """Reads all the time, so that the end of the connection is noticed at once, even if no reply is awaited."""
        try:
            while True:
                (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
                if not 0 <= size <= MAX_REPLY_BYTES:
                    raise LookupdError(f"it sends a reply of {size} bytes")
                reply = await reader.readexactly(size)
                if self._reply is None or self._reply.done():
                    raise LookupdError("it replies to what it was not told")
                self._reply.set_result(reply)
        except Exception as error:
            self._failure = error
            if self._reply is not None and not self._reply.done():
                self._reply.set_exception(error)
            raise


def _peer_info(reply: bytes) -> dict[str, Any]:
    try:
        info = orjson.loads(reply)
    except orjson.JSONDecodeError:
        info = None
    if not isinstance(info, dict):
        raise LookupdError(f"it answers IDENTIFY with {reply[:200]!r}")
    return info


class Lookupd:
    """All daemons, and what they should know."""

    def __init__(
        self,
        broker: Broker,
        versions: Callable[[], tuple[int, ...]],
        identity: dict[str, object],
        addresses: Sequence[str],
        timeouts: Timeouts,
    ) -> None:
        """The result of `versions` changes when a topic or channel is made or deleted. `timeouts`: of HTTP requests."""
        self.addresses: Sequence[str] | None = addresses
        self._broker = broker
        self._versions = versions
        self._identity = identity
        self._peers: dict[str, tuple[Peer, asyncio.Task[None]]] = {}
        self._wanted = Registrations()
        self._refresh = False
        self.elsewhere: Final = ChannelsElsewhere(broker, self._http_addresses, timeouts)

    def _http_addresses(self) -> list[str]:
        return [address for peer, _ in self._peers.values() if (address := peer.http_address) is not None]

    def set_addresses(self, addresses: Sequence[str] | None) -> None:
        """Sets the daemons. Connections to those that were there before stay as they are."""
        self.addresses = addresses
        self._connect()

    def refresh(self) -> None:
        """Lists all topics again: a worker has been restarted, and its version began anew."""
        self._refresh = True

    async def run(self) -> None:
        """Goes on until it is cancelled. Then no daemon is told anything more; each forgets this node by itself."""
        self._connect()
        adopting = asyncio.create_task(self.elsewhere.run())
        try:
            await self._watch()
        finally:
            tasks = [adopting, *(task for _, task in self._peers.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _connect(self) -> None:
        wanted = dict.fromkeys(self.addresses or ())
        for address in [address for address in self._peers if address not in wanted]:
            log.info("nsqlookupd %s: let go", address)
            self._peers.pop(address)[1].cancel()
        for address in wanted:
            if address not in self._peers:
                peer = Peer(address, self._identity, self._wanted)
                self._peers[address] = peer, asyncio.create_task(self._introduce(peer))

    async def _introduce(self, peer: Peer) -> None:
        async for piece in self._wanted.pieces():
            for registration in piece:
                peer.compare(registration)
        await peer.run()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        seen: tuple[int, ...] = ()
        refresh_at = 0.0
        rest_s = rests_until = 0.0
        while True:
            versions = self._versions() if self._peers else seen
            is_due = versions != seen or self._refresh or loop.time() >= refresh_at
            if self._peers and is_due and loop.time() >= rests_until:
                self._refresh = False
                # Topics of a worker that does not answer stay registered: it will be back with them.
                with contextlib.suppress(WorkersError):
                    update = await self._wanted.update(self._broker.each_topic(), self._compare)
                    seen = versions
                    refresh_at = loop.time() + REFRESH_S
                    rest_s = update.listed * REST_S
                    await self.elsewhere.update(update.came, update.gone)
                rests_until = loop.time() + rest_s
            await asyncio.sleep(WATCH_S)

    def _compare(self, registration: Registration) -> None:
        for peer, _ in self._peers.values():
            peer.compare(registration)
