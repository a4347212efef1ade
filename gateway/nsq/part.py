"""The gateway's part for NSQ's clients."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from mq_shards.gateway.browsers import Browsers
from mq_shards.gateway.nsq.elsewhere import Timeouts
from mq_shards.gateway.nsq.from_acceptors import FromAcceptors
from mq_shards.gateway.nsq.http import NsqHttp, Surroundings
from mq_shards.gateway.nsq.lookupd import Lookupd, identity
from mq_shards.gateway.nsq.memory import memory_figures
from mq_shards.gateway.nsq.names import is_valid_name
from mq_shards.gateway.nsq.options import GatewayOptions
from mq_shards.gateway.nsq.producers import Producers
from mq_shards.gateway.nsq.statsd import Statsd, StatsdOptions
from mq_shards.gateway.part import Part, Shared
from mq_shards.gateway.unread import Unread
from mq_shards.ringbuf.handover import Handover
from mq_shards.ringbuf.time_units import SECOND_NS


class NsqPart(Part):
    name = "nsq"
    takes = "nsq-http"

    def __init__(self, shared: Shared) -> None:
        options = GatewayOptions.from_start(shared.start)
        self._say = shared.say
        self._pipeline: Part | None = None
        self._lookupd = Lookupd(
            shared.broker,
            shared.engine.catalog_versions,
            identity(options),
            options.nsq["lookupd-tcp-address"],
            Timeouts(
                total=options.nsq["http-client-request-timeout"] / SECOND_NS,
                connect=options.nsq["http-client-connect-timeout"] / SECOND_NS,
            ),
        )
        self._statsd = _make_statsd(options, shared)
        around = Surroundings(
            lookupd_addresses=lambda: self._lookupd.addresses,
            set_lookupd_addresses=self._set_lookupds,
            prepare_topic=shared.prepare_topic,
            unread=self._unread,
            producers=Producers(shared.calls, shared.start["acceptors"]).all,
            supervisor=shared.supervisor,
            version=shared.version,
        )
        self._server = NsqHttp(options, shared.broker, shared.bodies, around).server
        self._server.refusal = Browsers(shared.start["settings"]["http"]["hosts"], reading_from_anywhere=False).refusal
        shared.access.gate(self._server, "nsq-http", "/ping")
        self._from_acceptors = FromAcceptors(self._server)
        self.prepare_topic = self._prepare
        shared.calls.serve("nsq.prepare", self._prepare_for)
        if shared.start["again"]:
            self._tell_of_lookupds()

    def meet(self, others: Mapping[str, Part]) -> None:
        self._pipeline = others["pipeline"]

    async def _unread(self) -> Mapping[str, Sequence[Unread]]:
        return {} if self._pipeline is None else await self._pipeline.unread()

    def _set_lookupds(self, addresses: Sequence[str] | None) -> None:
        self._lookupd.set_addresses(addresses)
        self._tell_of_lookupds()

    def _tell_of_lookupds(self) -> None:
        """Tells acceptors whether there are nsqlookupds: then they call `nsq.prepare` before a topic's first
        message."""
        told = {"any": bool(self._lookupd.addresses)}
        self._say({"did": "share", "protocol": "nsq-http", "what": "lookupds", "message": told})

    async def _prepare(self, topic: str) -> None:
        if is_valid_name(topic):
            await self._lookupd.elsewhere.prepare(topic)

    async def _prepare_for(self, acceptor: int, topic: bytes) -> bytes:
        await self._lookupd.elsewhere.prepare(topic.decode())
        return b""

    def work(self) -> Sequence[Coroutine[Any, Any, None]]:
        return [self._lookupd.run(), *([] if self._statsd is None else [self._statsd.run()])]

    def worker_came(self) -> None:
        self._lookupd.refresh()

    def attach(self, handover: Handover) -> None:
        self._from_acceptors.attach(handover)

    async def close(self, timeout_s: float) -> None:
        self._from_acceptors.close()
        await self._server.close(timeout_s)


def _make_statsd(options: GatewayOptions, shared: Shared) -> Statsd | None:
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
    memory = (lambda: memory_figures(shared.supervisor)) if nsq["statsd-mem-stats"] else None
    return Statsd(wanted, shared.broker, memory)
