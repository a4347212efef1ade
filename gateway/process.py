"""The gateway process: its event loop, and the messages of the supervisor (described in supervisor/supervisor.py).

Owns: the HTTP sockets, the connections to nsqlookupd and statsd, staged files, and an engine without client sockets, by
which it sends requests to workers. It keeps no message longer than the request that brings it, except in staged files.
When it dies, acceptors and their clients notice nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor import named_files
from mq_shards.acceptor.access.arrival import Arrival
from mq_shards.acceptor.access.attempts import Attempts
from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.secure import SecureContexts
from mq_shards.gateway.access import HttpAccess, HttpLogin
from mq_shards.gateway.broker import Broker
from mq_shards.gateway.browsers import Browsers
from mq_shards.gateway.calls import AcceptorCalls
from mq_shards.gateway.console.overview import Identity
from mq_shards.gateway.console.service import Console, address_text
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_server import HttpServer
from mq_shards.gateway.idle_memory import IdleMemory
from mq_shards.gateway.live import Live
from mq_shards.gateway.metrics import Metrics
from mq_shards.gateway.nats.http import MonitoringHttp
from mq_shards.gateway.nats.monitoring import Monitoring
from mq_shards.gateway.nats.system import System as NatsSystem
from mq_shards.gateway.nsq.elsewhere import Timeouts
from mq_shards.gateway.nsq.from_acceptors import FromAcceptors
from mq_shards.gateway.nsq.http import NsqHttp
from mq_shards.gateway.nsq.lookupd import Lookupd, identity
from mq_shards.gateway.nsq.memory import memory_figures
from mq_shards.gateway.nsq.options import GatewayOptions
from mq_shards.gateway.nsq.producers import Producers
from mq_shards.gateway.nsq.statsd import Statsd, StatsdOptions
from mq_shards.gateway.pipeline.http import PipelineHttp
from mq_shards.gateway.processes import own_bytes
from mq_shards.gateway.pulsar import offer as pulsar_offer
from mq_shards.gateway.reloads import Reloads
from mq_shards.gateway.standby import Told
from mq_shards.gateway.workers import Workers
from mq_shards.ringbuf.control import STDERR, Control, Message
from mq_shards.ringbuf.handover import Handover
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.store import read_meta

if TYPE_CHECKING:
    from mq_shards.gateway.pulsar.service import PulsarService

# How often at most it is logged that no connection can be accepted.
FULL_SAID_S: Final = 60.0
SECOND_NS: Final = 1_000_000_000
# At a stop: how long to wait for requests that are being served.
FINISH_S: Final = 1.0

log = logging.getLogger(__name__)


class GatewayProcess:
    def __init__(self, control: Control, start: Message, engine: Engine, told: Told) -> None:
        """To be made while the event loop runs. `told`: messages of the supervisor that were received already."""
        options = GatewayOptions.from_start(start)
        supervisor = os.getppid()
        self._control = control
        self._told = told
        self._engine = engine
        self._stop = asyncio.Event()
        self._full_said_at = -FULL_SAID_S
        self._contexts = SecureContexts(start["settings"]["tls"])
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._workers = Workers(engine)
        self._calls = AcceptorCalls(start["acceptors"])
        patterns = start["settings"]["nats"]["topics"]
        live = Live(self._calls, patterns) if patterns else None
        self._access = HttpAccess(self._calls, _broker_id(start, supervisor), Attempts(self._engine.login_attempts()))
        self._broker = Broker(engine, self._workers, options.nsq["msg-timeout"], live)
        self._lookupd = Lookupd(
            self._broker,
            engine.catalog_versions,
            identity(options),
            options.nsq["lookupd-tcp-address"],
            Timeouts(
                total=options.nsq["http-client-request-timeout"] / SECOND_NS,
                connect=options.nsq["http-client-connect-timeout"] / SECOND_NS,
            ),
        )
        bodies = Bodies(options.nsq["max-body-size"], start["settings"]["broker"]["max-buffered-bytes"] // 2)
        self._http = NsqHttp(
            options,
            self._broker,
            bodies,
            lookupd_addresses=lambda: self._lookupd.addresses,
            set_lookupd_addresses=self._set_lookupds,
            prepare_topic=self._lookupd.elsewhere.prepare,
            unread=lambda: self._pipeline_http.unread(),
            producers=Producers(self._calls, start["acceptors"]).all,
            supervisor=supervisor,
            version=metadata.version("mq-shards"),
        )
        self._staging_dir = _staging_dir(start, supervisor)
        self._on_disk = start["data_dir"] is not None
        metrics = self._metrics(start, supervisor)
        self._pipeline_http = PipelineHttp(
            self._broker,
            bodies,
            _broker_id(start, supervisor),
            None if start["data_dir"] is None else Path(start["data_dir"]),
            self._staging_dir,
            start["shards"],
            options.nsq["max-msg-size"],
            start["settings"]["http"]["staged-bytes"],
            self._lookupd.elsewhere.prepare,
            engine.records_written,
        )
        self._statsd = self._make_statsd(options, supervisor)
        self._serve_more(start, bodies, metrics, supervisor)

    def _set_lookupds(self, addresses: Sequence[str] | None) -> None:
        self._lookupd.set_addresses(addresses)
        self._tell_of_lookupds()

    def _tell_of_lookupds(self) -> None:
        """Tells acceptors whether there are nsqlookupds: then they call `nsq.prepare` before a topic's first
        message."""
        told = {"any": bool(self._lookupd.addresses)}
        self._control.send({"did": "share", "protocol": "nsq-http", "what": "lookupds", "message": told})

    async def _prepare(self, acceptor: int, topic: bytes) -> bytes:
        await self._lookupd.elsewhere.prepare(topic.decode())
        return b""

    def _serve_more(self, start: Message, bodies: Bodies, metrics: Metrics, supervisor: int) -> None:
        self._reloads = Reloads(self._control.send)
        self._console = self._make_console(start, bodies, supervisor)
        self._pipeline_http.serve_too({"/metrics": {"GET": metrics.answer}, **self._console.http.routes})
        self._from_acceptors = FromAcceptors(self._http.server)
        self._calls.serve("nsq.prepare", self._prepare)
        if start["again"]:
            self._tell_of_lookupds()
        self._monitoring = Monitoring(start, self._engine, self._calls, supervisor, self._reloads.order)
        self._monitoring_http = self._make_monitoring_http(start, bodies)
        self._pulsar = self._make_pulsar(start, bodies, metrics)
        self._pipeline_http.serve_too(HttpLogin(self._access, bodies).routes)
        self._guard_from_pages(start["settings"]["http"]["hosts"])
        self._ask_who()

    def _make_console(self, start: Message, bodies: Bodies, supervisor: int) -> Console:
        identity = Identity(
            version=metadata.version("mq-shards"),
            broker=_broker_id(start, supervisor),
            started_wall_ns=start["started_wall_ns"],
            data_dir=start["data_dir"] or "",
            sync=start["sync"] if start["data_dir"] else "never",
            addresses=[address_text(address) for address in start["addresses"]],
            supervisor=supervisor,
        )
        return Console(
            self._engine, self._workers, self._broker, bodies, identity,
            view=self._pipeline_http.view, reading=self._pipeline_http.reading,
            prepare_topic=self._lookupd.elsewhere.prepare,
            max_message_bytes=start["settings"]["nsq"]["max-msg-size"],
        )  # fmt: skip

    def _guard_from_pages(self, hosts: list[str]) -> None:
        """Protects the APIs from web pages, except NATS monitoring: any page may read that, as with nats-server."""
        self._pipeline_http.server.refusal = Browsers(hosts, reading=True).refusal
        for server in (self._http.server, *([] if self._pulsar is None else [self._pulsar.server])):
            server.refusal = Browsers(hosts, reading=False).refusal

    def _ask_who(self) -> None:
        """Makes the servers admit only users, where users are configured."""
        for_people = ("/", "/console/", "/v1/health", "/v1/login")
        access = self._access
        access.gate(self._pipeline_http.server, "http", *for_people, cookies=True)
        access.gate(self._http.server, "nsq-http", "/ping")
        access.gate(self._monitoring_http.server, "nats-http", "/healthz")
        if self._pulsar is not None:  # it refuses in its own way, and may know clients that are not users
            pulsar = self._pulsar
            access.gate(pulsar.server, "pulsar-http", others=lambda: pulsar.knows_others)

    def _make_monitoring_http(self, start: Message, bodies: Bodies) -> MonitoringHttp:
        self._calls.serve("nats.system", NatsSystem(self._monitoring).answer)
        return MonitoringHttp(self._monitoring, bodies, start["settings"]["nats"]["http-base-path"])

    def _make_pulsar(self, start: Message, bodies: Bodies, metrics: Metrics) -> PulsarService | None:
        """None when nothing listens for Pulsar's clients and they have left nothing. What they have left goes on
        without listeners: policies, and ending transactions, for which consumers may wait."""
        listening = {address["protocol"] for address in start["addresses"]}
        if not pulsar_offer.is_wanted(listening, start["data_dir"]):
            return None
        from mq_shards.gateway.pulsar.service import PulsarService  # slow to load

        data_dir = None if start["data_dir"] is None else Path(start["data_dir"])
        return PulsarService(
            self._engine, self._workers, self._calls, data_dir, start["addresses"], bodies,
            lambda: self._broker.health, metrics, start["settings"]["pulsar"], self._access,
        )  # fmt: skip

    def _metrics(self, start: Message, supervisor: int) -> Metrics:
        data_dir = None if start["data_dir"] is None else Path(start["data_dir"])
        most = start["settings"]["http"]["metrics-topics"]
        acceptors = start["acceptors"]
        return Metrics(self._engine, self._broker, supervisor, acceptors, data_dir, most, self._access.counts)

    def _make_statsd(self, options: GatewayOptions, supervisor: int) -> Statsd | None:
        nsq = options.nsq
        if not nsq["statsd-address"]:
            return None
        wanted = StatsdOptions(
            address=nsq["statsd-address"],
            prefix=options.statsd_prefix,
            interval_s=nsq["statsd-interval"] / SECOND_NS,
            packet_bytes=nsq["statsd-udp-packet-size"],
            exclude_ephemeral=nsq["statsd-exclude-ephemeral"],
            on_disk=options.data_dir,
        )
        return Statsd(wanted, self._broker, (lambda: memory_figures(supervisor)) if nsq["statsd-mem-stats"] else None)

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
        self._from_acceptors.close()
        await asyncio.gather(
            self._http.server.close(FINISH_S),
            self._monitoring_http.server.close(FINISH_S),
            self._pipeline_http.close(FINISH_S),
        )
        await self._pipeline_http.end_threads()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pulsar is not None:
            await self._pulsar.close(FINISH_S)
        self._access.close()
        self._calls.close()
        self._workers.close()
        if not self._on_disk:
            shutil.rmtree(self._staging_dir, ignore_errors=True)

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
                    self._lookupd.refresh()
                    log.debug("worker %d is attached (epoch %d)", message["worker"], message["epoch"])
                case "gone":
                    self._workers.detach(message["worker"])
                    log.debug("worker %d is gone", message["worker"])
                case "listen":
                    server = self._server_of(message["protocol"])
                    tls = partial(self._contexts.of, message["cert"], message["key"]) if message["secure"] else None
                    listened = Arrival(message["user"], message["open"])
                    self._go_on(server.listen(socket.socket(fileno=fds.pop()), message["backlog"], tls, listened))
                case "users":
                    with open(fds[0], "rb", closefd=False) as content:
                        self._access.learn(content.read())
                case "handover":
                    self._from_acceptors.attach(Handover(socket.socket(fileno=fds.pop())))
                case "calls":
                    self._calls.attach(message["acceptor"], fds.pop())
                    if self._pulsar is not None:
                        self._pulsar.acceptor_came(message["acceptor"])
                case "reloaded":
                    self._reloads.heard(message["error"])
                case "reload":
                    named_files.keep_what_came(fds)
                    self._monitoring.reload(message["settings"]["nats"])
                    self._reload(message["settings"])
                case "lame-duck" | "shared":  # "shared" is our own message
                    pass
                case "go":
                    self._go_on(self._lookupd.run())
                    self._go_on(self._pipeline_http.run())
                    self._go_on(self._console.figures.run())
                    self._go_on(IdleMemory(own_bytes, self._engine.trim).run())
                    if self._pulsar is not None:
                        self._go_on(self._pulsar.open())
                    if self._statsd is not None:
                        self._go_on(self._statsd.run())
                    if not message.get("answered"):
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

    def _reload(self, settings: Mapping[str, Any]) -> None:
        """Applies settings that the supervisor has checked. A file may have changed since, so errors are only
        logged."""
        if self._pulsar is not None:
            try:
                self._pulsar.reload(settings["pulsar"])
            except ValueError as error:
                log.error("pulsar goes on as before: %s", error)
        self._contexts.reload(settings["tls"])

    def _server_of(self, protocol: str) -> HttpServer:
        if protocol == "pulsar-http":
            assert self._pulsar is not None
            return self._pulsar.server
        others = {"http": self._pipeline_http.server, "nats-http": self._monitoring_http.server}
        return others.get(protocol, self._http.server)

    def _go_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` as a task; if it fails, the process ends with its error."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._done)
        self._tasks.append(task)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)


def _staging_dir(start: Message, supervisor: int) -> Path:
    """The data directory; with --memory a directory of this broker, which is made when needed and found by a restarted
    gateway."""
    if start["data_dir"] is not None:
        return Path(start["data_dir"])
    path = Path(tempfile.gettempdir()) / f"mq-shards-{supervisor}-{start['started_wall_ns']}"
    if os.path.lexists(path) and path.lstat().st_uid != os.geteuid():
        raise PermissionError(f"{path} is not ours")
    return path


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
    asyncio.run(_run(control, start, engine, told))
    engine.close()
    control.send({"did": "stopped"})
