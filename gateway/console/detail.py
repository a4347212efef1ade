"""One topic in detail: its figures, its channels and their consumers, its tube."""

from __future__ import annotations

from typing import Any

from mq_shards.acceptor import engine as engine_module
from mq_shards.acceptor.engine import Engine, WorkerRequest
from mq_shards.csrc._core import ffi, lib
from mq_shards.gateway.ages import waits_in_channel
from mq_shards.gateway.broker import Broker
from mq_shards.gateway.catalog import Channel, Topic
from mq_shards.gateway.console.figures import Figures, places
from mq_shards.gateway.console.waits import Waits
from mq_shards.gateway.http_answers import HttpError
from mq_shards.gateway.names import shown
from mq_shards.gateway.nsq.stats import client_json
from mq_shards.gateway.nsq.topics import is_visible
from mq_shards.gateway.workers import LOOK_S, Workers

MAX_CONSUMERS = 500  # of one channel, that are shown
_OF_CLIENTS = ("client_id", "hostname", "remote_address", "user_agent", "connect_ts", "tls")


class Detail:
    def __init__(self, engine: Engine, workers: Workers, broker: Broker, figures: Figures, waits: Waits) -> None:
        self._engine = engine
        self._workers = workers
        self._broker = broker
        self._figures = figures
        self._waits = waits

    async def json(self, name: str) -> dict[str, Any]:
        """What the console shows of a topic. Raises HttpError, WorkersError."""
        found = await self._broker.topic(name, consumers=True, within_s=LOOK_S)
        if not found:
            raise HttpError(404, f"there is no topic {name}")
        topic = found[0]
        published, backlog = self._figures.history(name)
        shown_waits = {one[1:]: one for one in places(topic)}
        ages = await self._waits.of([[one] for one in shown_waits.values()])
        oldest_s = dict(zip(shown_waits, ages, strict=True))
        return {
            "name": shown(topic.name),
            "shard": self._engine.shard_of_name(name.encode()),
            "worker": self._engine.worker_of_name(name.encode()),
            "published": topic.messages,
            "bytes": topic.message_bytes,
            "waiting": topic.depth,
            "jobs": topic.jobs,
            "paused": topic.paused,
            "is_nsq": is_visible(topic),
            "rates": self._figures.rates(name),
            "history": {"in": published, "backlog": backlog},
            "oldest_s": oldest_s.get((), 0.0),
            "channels": [
                _channel_json(channel, oldest_s.get((channel.name,), None if waits_in_channel(channel) else 0.0))
                for channel in topic.channels
            ],
            "tube": await self._tube(topic, name),
        }

    async def _tube(self, topic: Topic, name: str) -> dict[str, int] | None:
        """The figures of its tube. None: no beanstalkd client has used it."""
        worker = self._engine.worker_of_name(name.encode())
        request = WorkerRequest(lib.MSG_STATS_TOPIC, body=name.encode())
        answer = await self._workers.ask(worker, request, within_s=LOOK_S, looks=True)
        stats = ffi.new("struct topic_stats *")
        if answer.status != engine_module.OK or len(answer.body) < ffi.sizeof(stats[0]):
            return None
        ffi.memmove(stats, answer.body, ffi.sizeof(stats[0]))
        tube = {
            field: int(getattr(stats, field))
            for field in (
                "urgent", "ready", "reserved", "delayed", "buried", "total", "using", "watching", "waiting", "deletes"
            )
        }  # fmt: skip
        tube["pause_left_s"] = int(stats.pause_left_ns) // 1_000_000_000
        is_one = topic.jobs or any(tube[field] for field in ("total", "using", "watching", "waiting"))
        return tube if is_one else None


def _channel_json(channel: Channel, oldest_s: float | None) -> dict[str, Any]:
    return {
        "name": shown(channel.name),
        "backlog": channel.depth,
        "in_flight": channel.in_flight,
        "deferred": channel.deferred,
        "messages": channel.messages,
        "oldest_s": oldest_s,
        "delivered": channel.delivered,
        "finished_since_start": channel.finished,
        "finished": max(0, channel.messages - channel.depth - channel.in_flight - channel.deferred),
        "requeued": channel.requeues,
        "timed_out": channel.timeouts,
        "paused": channel.paused,
        "consumers": channel.consumer_count,
        "clients": [
            {
                **{name: value for name, value in client_json(consumer).items() if name in _OF_CLIENTS},
                "ready": consumer.credit,
                "in_flight": consumer.in_flight,
                "messages": consumer.messages,
                "finished": consumer.finishes,
                "requeued": consumer.requeues,
                "leaving": consumer.is_leaving,
            }
            for consumer in channel.consumers[:MAX_CONSUMERS]
        ],
    }
