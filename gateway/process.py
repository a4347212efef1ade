"""The gateway process: its event loop, and the messages of the supervisor (described in supervisor/supervisor.py).

Owns: what its parts own (part.py), which are HTTP sockets, connections to other servers and staged files, and an engine
without client sockets, by which it sends requests to workers. It keeps no message longer than the request that brings
it, except in staged files.
When it dies, acceptors and their clients notice nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypeAlias

from mq_shards.acceptor import named_files
from mq_shards.acceptor.access.arrival import Arrival
from mq_shards.acceptor.access.attempts import Attempts
from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.secure import SecureContexts
from mq_shards.gateway import services
from mq_shards.gateway.access import HttpAccess
from mq_shards.gateway.broker import Broker, acceptor_title
from mq_shards.gateway.calls import AcceptorCalls
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.idle_memory import IdleMemory
from mq_shards.gateway.live import Live
from mq_shards.gateway.metrics import Metrics
from mq_shards.gateway.part import Shared
from mq_shards.gateway.processes import own_bytes
from mq_shards.gateway.reloads import Reloads
from mq_shards.gateway.terms import Terms
from mq_shards.gateway.workers import Workers
from mq_shards.ringbuf.control import STDERR, Control, Message
from mq_shards.ringbuf.handover import Handover
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.meta import read_meta
from mq_shards.shards.store_error import StoreError

Told: TypeAlias = list[tuple[Message, list[int]]]

VERSION: Final = metadata.version("mq-shards")  # to find it takes longer than all else in a gateway's start
# How often at most it is logged that no connection can be accepted.
FULL_SAID_S: Final = 60.0
# At a stop: how long to wait for requests that are being served.
FINISH_S: Final = 1.0

log = logging.getLogger(__name__)


class GatewayProcess:
    def __init__(self, control: Control, start: Message, engine: Engine, told: Told) -> None:
        """To be made while the event loop runs. `told`: messages of the supervisor that were received already."""
        settings = start["settings"]
        self._control = control
        self._told = told
        self._engine = engine
        self._stop = asyncio.Event()
        self._full_said_at = -FULL_SAID_S
        self._contexts = SecureContexts(settings["tls"])
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._workers = Workers(engine)
        self._calls = AcceptorCalls(start["acceptors"])
        self._reloads = Reloads(control.send)
        shared = self._share(start, services.terms(settings), os.getppid())
        self._access = shared.access
        self._broker = shared.broker
        self._parts = services.parts(shared)
        self._servers = {scheme: server for part in self._parts for scheme, server in part.servers.items()}
        self._preparing = [part.prepare_topic for part in self._parts if part.prepare_topic is not None]

    def _share(self, start: Message, terms: Terms, supervisor: int) -> Shared:
        settings, engine, calls = start["settings"], self._engine, self._calls
        data_dir = None if start["data_dir"] is None else Path(start["data_dir"])
        broker_id = _broker_id(start, supervisor)
        access = HttpAccess(calls, broker_id, Attempts(engine.login_attempts()))
        patterns = services.live_topics(settings)
        live = Live(calls, patterns) if patterns else None
        broker = Broker(engine, self._workers, terms.message_timeout_ns, live)
        return Shared(
            start=start,
            say=self._control.send,
            supervisor=supervisor,
            version=VERSION,
            broker_id=broker_id,
            data_dir=data_dir,
            terms=terms,
            engine=engine,
            workers=self._workers,
            calls=calls,
            broker=broker,
            bodies=Bodies(terms.max_body_bytes, settings["broker"]["max-buffered-bytes"] // 2),
            access=access,
            metrics=Metrics(
                engine, broker, supervisor, start["acceptors"], data_dir, settings["http"]["metrics-topics"],
                access.counts,
            ),
            reloads=self._reloads,
            prepare_topic=self._prepare_topic,
        )  # fmt: skip

    async def _prepare_topic(self, topic: str) -> None:
        for prepare in self._preparing:
            await prepare(topic)

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handles the event loop's own errors. It repeats that it cannot accept, so that is logged once a minute."""
        error = context.get("exception")
        if not isinstance(error, OSError) or "accept" not in context.get("message", ""):
            loop.default_exception_handler(context)
        elif loop.time() >= self._full_said_at + FULL_SAID_S:
            self._full_said_at = loop.time()
            log.warning("new connections wait: %s", error.strerror)

    async def run(self) -> None:
        """Serves until told to stop. EOFError when the supervisor is gone."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._report)
        loop.add_reader(self._control.fileno(), self._hear)
        self._hear()  # the messages that came before the loop watched for them
        stopping = loop.create_task(self._stop.wait())
        failures = self._failed, self._workers.broken
        ends: list[asyncio.Future[Any]] = [stopping, *failures]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for failure in failures:
            if failure.done():
                failure.result()
        loop.remove_reader(self._control.fileno())
        await asyncio.gather(*(part.close(FINISH_S) for part in self._parts))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for part in self._parts:
            await part.end(FINISH_S)
        self._access.close()
        self._calls.close()
        self._workers.close()

    # --- messages of the supervisor ---------------------------------------------------------------------------------

    def _hear(self) -> None:
        try:
            while self._told:
                self._do(*self._told.pop(0))
            while (arrived := self._control.receive_now()) is not None:
                self._do(*arrived)
        except Exception as error:  # if a callback raised it, asyncio would only log it
            if not self._failed.done():
                self._failed.set_exception(error)

    def _do(self, message: Message, fds: list[int]) -> None:
        try:
            match message["do"]:
                case "peer":
                    self._workers.attach(message["worker"], fds[0], fds[1], fds[2])
                    for part in self._parts:
                        part.worker_came()
                    log.debug("worker %d is attached (epoch %d)", message["worker"], message["epoch"])
                case "gone":
                    self._workers.detach(message["worker"])
                    log.debug("worker %d is gone", message["worker"])
                case "listen":
                    server = self._servers[message["protocol"]]
                    tls = partial(self._contexts.of, message["cert"], message["key"]) if message["secure"] else None
                    listened = Arrival(message["user"], message["open"])
                    self._go_on(server.listen(socket.socket(fileno=fds.pop()), message["backlog"], tls, listened))
                case "users":
                    with open(fds[0], "rb", closefd=False) as content:
                        self._access.learn(content.read())
                case "handover":
                    taker = next(part for part in self._parts if part.takes == message["protocol"])
                    taker.attach(Handover(socket.socket(fileno=fds.pop())))
                case "calls":
                    self._calls.attach(message["acceptor"], fds.pop())
                    for part in self._parts:
                        part.acceptor_came(message["acceptor"])
                case "reloaded":
                    self._reloads.heard(message["error"])
                case "reload":
                    named_files.keep_what_came(fds)
                    self._reload(message["settings"])
                case "trouble":
                    self._hear_trouble(message)
                case "lame-duck" | "shared":  # "shared" is our own message
                    pass
                case "go":
                    for work in (work for part in self._parts for work in part.work()):
                        self._go_on(work)
                    self._go_on(IdleMemory(own_bytes, self._engine.trim).run())
                    self._control.send({"did": "ready"})
                case "stderr":
                    os.dup2(fds[0], STDERR)
                case "ping":
                    self._control.send({"did": "pong"})
                case "stop":
                    self._stop.set()
                case other:
                    raise ValueError(f"the supervisor wants {other!r} of a gateway")
        finally:
            for fd in fds:
                os.close(fd)

    def _hear_trouble(self, message: Message) -> None:
        hanging = message["hanging"]
        self._broker.hear(hanging, message["hangs"], dict(message["refusing"]))
        self._calls.hang([n for n in range(len(self._calls.ends)) if acceptor_title(n) in hanging])

    def _reload(self, settings: Mapping[str, Any]) -> None:
        """Applies settings that the supervisor has checked. A file may have changed since, so errors are only
        logged."""
        for part in self._parts:
            try:
                part.reload(settings)
            except ValueError as error:
                log.error("%s goes on as before: %s", part.name, error)
        self._contexts.reload(settings["tls"])

    def _go_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` as a task; if it fails, the process ends with its error."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._done)
        self._tasks.append(task)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)


def _broker_id(start: Message, supervisor: int) -> str:
    """The broker's unique id: that of its data directory, if it has one, not of its address. Raises StoreError."""
    if start["data_dir"] is not None:
        return read_meta(Path(start["data_dir"])).id
    host = crc32c(socket.gethostname().encode())
    return f"{start['started_wall_ns']:016x}{supervisor:08x}{host:08x}"


async def _run(control: Control, start: Message, engine: Engine, told: Told) -> None:
    await GatewayProcess(control, start, engine, told).run()


def main(control: Control, told: Told) -> None:
    """`told`: the supervisor's messages so far, its "start" first."""
    start, (board_fd, wake_fd, *files) = told.pop(0)
    named_files.keep_what_came(files)
    engine = Engine(start["index"], start["workers"], start["shards"], board_fd, wake_fd)
    for fd in (board_fd, *files):
        os.close(fd)
    try:
        asyncio.run(_run(control, start, engine, told))
    except StoreError as error:
        control.send({"did": "refused", "reason": str(error)})
        return
    engine.close()
    control.send({"did": "stopped"})
