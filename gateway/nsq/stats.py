"""The two forms of /stats: nsqd's JSON with all its keys, and its text, column for column."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson
from mq_shards.acceptor.protocols.nsq.options import HIDDEN, NSQD_VERSION
from mq_shards.gateway.catalog import Channel, Consumer, Topic
from mq_shards.gateway.unread import Unread
from mq_shards.ringbuf.time_units import SECOND_NS

# nsqd's numbers for the state of a connection that has subscribed, and of one that has sent CLS.
SUBSCRIBED: Final = 3
CLOSING: Final = 4
# Latencies are not measured: shown as by an nsqd without --e2e-processing-latency-percentile.
_LATENCY: Final[dict[str, object]] = {"count": 0, "percentiles": None}
# The fields of a client, in nsqd's order and of its types, with values for those that a description leaves out.
_CLIENT: Final[dict[str, Any]] = {
    "client_id": "", "hostname": "", "version": "V2", "remote_address": "", "state": SUBSCRIBED, "ready_count": 0,
    "in_flight_count": 0, "message_count": 0, "finish_count": 0, "requeue_count": 0, "connect_ts": 0,
    "sample_rate": 0, "deflate": False, "snappy": False, "user_agent": "", "tls": False, "tls_cipher_suite": "",
    "tls_version": "", "tls_negotiated_protocol": "", "tls_negotiated_protocol_is_mutual": False,
}  # fmt: skip
_ONLY_IF_AUTHED: Final = {"authed": False, "auth_identity": "", "auth_identity_url": ""}


def select(topics: Sequence[Topic], channel: str) -> list[Topic]:
    """The topics and channels that a request shows."""
    found = []
    for one in topics:
        channels = [c for c in one.channels if channel in ("", c.name) and c.name not in HIDDEN]
        if channels or not channel:
            found.append(one if len(channels) == len(one.channels) else replace(one, channels=channels))
    return found


def topics_json(topics: Sequence[Topic], *, on_disk: bool, clients: bool) -> list[dict[str, Any]]:
    """With a data directory every message is in the log, so backend_depth is the whole depth. A key `tube`, which nsqd
    does not have, is only added to a topic that has both channels and jobs."""
    return [
        {
            "topic_name": topic.name,
            "channels": [_channel_json(channel, on_disk=on_disk, clients=clients) for channel in topic.channels],
            "depth": topic.depth,
            "backend_depth": topic.depth if on_disk else 0,
            "message_count": topic.messages,
            "message_bytes": topic.message_bytes,
            "paused": topic.paused,
            "e2e_processing_latency": _LATENCY,
            **({"tube": {"jobs": topic.jobs}} if topic.jobs and topic.channels else {}),
        }
        for topic in topics
    ]


def add_readers(topics: Sequence[dict[str, Any]], unread: Mapping[str, Sequence[Unread]]) -> None:
    """Adds named readers to topics that have any, under a key that nsqd does not have."""
    for topic in topics:
        if found := unread.get(topic["topic_name"]):
            topic["readers"] = [
                {"reader_name": reader, "depth": messages, "next_seq": seq} for reader, messages, seq in found
            ]


def _channel_json(channel: Channel, *, on_disk: bool, clients: bool) -> dict[str, object]:
    return {
        "channel_name": channel.name,
        "depth": channel.depth,
        "backend_depth": channel.depth if on_disk else 0,
        "in_flight_count": channel.in_flight,
        "deferred_count": channel.deferred,
        "message_count": channel.messages,
        "requeue_count": channel.requeues,
        "timeout_count": channel.timeouts,
        "client_count": channel.consumer_count,
        "clients": [client_json(consumer) for consumer in channel.consumers] if clients else None,
        "paused": channel.paused,
        "e2e_processing_latency": _LATENCY,
    }


def client_json(consumer: Consumer) -> dict[str, Any]:
    """A consumer: the acceptor's description, with the worker's figures."""
    described = _described(consumer.description)
    client = {name: described.get(name, usual) for name, usual in _CLIENT.items()}
    client.update({name: described[name] for name, usual in _ONLY_IF_AUTHED.items() if described.get(name, usual)})
    if consumer.is_leaving:
        client["state"] = CLOSING
    client["ready_count"] = consumer.credit
    client["in_flight_count"] = consumer.in_flight
    client["message_count"] = consumer.messages
    client["finish_count"] = consumer.finishes
    client["requeue_count"] = consumer.requeues
    client["sample_rate"] = consumer.sample_percent
    return client


def producers_json(producers: Sequence[Mapping[str, Any]], topic: str) -> list[dict[str, Any]] | None:
    """Producers as acceptors describe them. With a topic, only its count is shown, and producers without one are listed
    too, as by nsqd. None if there are none: nsqd shows null."""
    found = []
    for one in producers:
        client = {name: one.get(name, usual) for name, usual in _CLIENT.items()}
        client.update({name: one[name] for name, usual in _ONLY_IF_AUTHED.items() if one.get(name, usual)})
        counts = [{"topic": to, "count": n} for to, n in one["pub_counts"].items() if topic in ("", to)]
        if counts:
            client["pub_counts"] = counts
        found.append(client)
    return found or None


def _described(description: bytes) -> dict[str, Any]:
    """The fields of a description that have the right type; others are left out."""
    try:
        fields = orjson.loads(description)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(fields, dict):
        return {}
    usual = _CLIENT | _ONLY_IF_AUTHED
    return {name: value for name, value in fields.items() if name in usual and type(value) is type(usual[name])}


def broker_text(
    memory: dict[str, int] | None, health: str, *, built_with: str, started_wall_ns: int, now_wall_ns: int
) -> Iterator[str]:
    """The text form: its beginning, which topics_text() and producers_text() follow."""
    yield f"nsqd v{NSQD_VERSION} (built w/{built_with})\n"
    yield f"start_time {_rfc3339(started_wall_ns)}\n"
    yield f"uptime {go_duration(now_wall_ns - started_wall_ns)}\n"
    yield f"\nHealth: {health}\n"
    if memory is not None:
        yield "\nMemory:\n"
        for name, value in memory.items():
            yield f"   {name:<25}\t{value}\n"


def topics_text(topics: Sequence[dict[str, Any]], now_wall_ns: int) -> Iterator[str]:
    """`topics`: the result of topics_json()."""
    for topic in topics:
        yield (
            f"\n{'*P ' if topic['paused'] else '   '}[{topic['topic_name']:<15}] depth: {topic['depth']:<5} "
            f"be-depth: {topic['backend_depth']:<5} msgs: {topic['message_count']:<8} e2e%: \n"
        )
        for channel in topic["channels"]:
            yield (
                f"{'   *P ' if channel['paused'] else '      '}[{channel['channel_name']:<25}] "
                f"depth: {channel['depth']:<5} be-depth: {channel['backend_depth']:<5} "
                f"inflt: {channel['in_flight_count']:<4} def: {channel['deferred_count']:<4} "
                f"re-q: {channel['requeue_count']:<5} timeout: {channel['timeout_count']:<5} "
                f"msgs: {channel['message_count']:<8} e2e%: \n"
            )
            for client in channel["clients"] or ():
                yield f"        {_client_text(client, now_wall_ns)}\n"
        if tube := topic.get("tube"):
            yield f"      <tube> jobs: {tube['jobs']}\n"
        for reader in topic.get("readers", ()):
            yield (
                f"      <reader {reader['reader_name']:<18}> depth: {reader['depth']:<5} "
                f"next-seq: {reader['next_seq']}\n"
            )


def producers_text(producers: Sequence[dict[str, Any]], now_wall_ns: int) -> Iterator[str]:
    """`producers`: the result of producers_json()."""
    yield "\nProducers:\n" if producers else "\nProducers: None\n"
    for client in producers:
        yield f"   {_client_text(client, now_wall_ns)}\n"


def _client_text(client: dict[str, Any], now_wall_ns: int) -> str:
    port = client["remote_address"].rpartition(":")[2]
    who = f"{client['hostname']}:{port} {client['user_agent']}"
    connected_ns = (now_wall_ns - client["connect_ts"] * SECOND_NS) // SECOND_NS * SECOND_NS
    if counts := client.get("pub_counts"):
        topics = ",".join(f"{one['topic']}={one['count']}" for one in counts)
        return (
            f"[{client['version']} {who:<21}] msgs: {sum(one['count'] for one in counts):<8} topics: {topics} "
            f"connected: {go_duration(connected_ns)}"
        )
    return (
        f"[{client['version']} {who:<21}] state: {client['state']} inflt: {client['in_flight_count']:<4} "
        f"rdy: {client['ready_count']:<4} fin: {client['finish_count']:<8} re-q: {client['requeue_count']:<8} "
        f"msgs: {client['message_count']:<8} connected: {go_duration(connected_ns)}"
    )


def _rfc3339(wall_ns: int) -> str:
    at = datetime.datetime.fromtimestamp(wall_ns // SECOND_NS).astimezone()
    return at.isoformat().replace("+00:00", "Z")


def go_duration(duration_ns: int) -> str:
    """A duration as Go prints a time.Duration.

    >>> [go_duration(ns) for ns in (0, 1500, 1_033_872_317, 3_600 * SECOND_NS)]
    ['0s', '1.5µs', '1.033872317s', '1h0m0s']
    """
    if duration_ns < 0:
        return "-" + go_duration(-duration_ns)
    if duration_ns == 0:
        return "0s"
    for unit, scale in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if duration_ns < scale * 1000:
            return _decimal(duration_ns, scale) + unit
    minutes, rest = divmod(duration_ns, 60 * SECOND_NS)
    hours, minutes = divmod(minutes, 60)
    seconds = _decimal(rest, SECOND_NS) + "s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def _decimal(value: int, scale: int) -> str:
    whole, fraction = divmod(value, scale)
    digits = f"{fraction:0{len(str(scale)) - 1}d}".rstrip("0") if fraction else ""
    return f"{whole}.{digits}" if digits else str(whole)
