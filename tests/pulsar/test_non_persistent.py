"""Topics that are not persistent: their messages are for who is there."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from mq_shards.acceptor.engine import NOT_FOUND, OK
from mq_shards.acceptor.protocols.pulsar.clients import CONSUMER_ASSIGN_ERROR, Client
from mq_shards.acceptor.protocols.pulsar.consumers import Consumers, Limits
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.csrc._core import lib
from mq_shards.csrc.structs import packed

from tests.pulsar.record_admin import play
from tests.pulsar.scripted import ScriptedDesk
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import Wire, payload_of


def path(topic: str) -> str:
    return f"non-persistent/public/default/{topic}"


def test_a_message_is_for_those_who_are_there(wire: Wire, server: PulsarServer, topic: str) -> None:
    name = f"non-persistent://public/default/{topic}"
    wire.producer(name)
    wire.send(b"too early")
    wire.until(lambda frame: frame.name == "send_receipt")
    wire.subscribe(name, initialPosition=1)
    wire.flow(10)
    wire.send(b"a", sequence=1)
    assert payload_of(wire.message()) == b"a"
    stats = play(server.http, ("GET", f"{path(topic)}/stats"))["json"]
    assert stats["msgInCounter"] == 2 and stats["publishers"]
    assert stats["subscriptions"]["s"]["msgOutCounter"] == 1 and stats["subscriptions"]["s"]["consumers"]
    assert play(server.http, ("GET", f"{path(topic)}/subscriptions"))["json"] == ["s"]
    wire.ask("close_consumer", consumer_id=1)
    wire.send(b"nobody is there", sequence=2)
    wire.until(lambda frame: frame.name == "send_receipt" and frame.body.sequence_id == 2)
    wire.subscribe(name, consumer=2, initialPosition=1)
    wire.flow(10, consumer=2)
    wire.send(b"b", sequence=3)
    assert payload_of(wire.message(2)) == b"b"


def test_there_is_nothing_to_go_back_to(wire: Wire, server: PulsarServer, topic: str) -> None:
    name = f"non-persistent://public/default/{topic}"
    wire.producer(name)
    wire.subscribe(name, start_message_id={"ledgerId": (1 << 64) - 1, "entryId": (1 << 64) - 1})
    wire.flow(10)
    wire.send(b"a")
    assert payload_of(wire.message()) == b"a"
    wire.ask("seek", consumer_id=1, message_publish_time=1)
    refused = wire.ask("getLastMessageId", "error", consumer_id=1)
    assert refused.message == "GetLastMessageId on a non-persistent topic is not allowed"
    assert play(server.http, ("POST", f"{path(topic)}/subscription/s/resetcursor/1"))["status"] == 204
    wire.send(b"b", sequence=1)
    assert payload_of(wire.message()) == b"b"


@pytest.mark.parametrize(
    ("method", "what", "status", "reason"),
    [
        ("POST", "terminate", 406, "Need to provide a persistent topic name"),
        ("GET", "lastMessageId", 405, "GetLastMessageId on a non-persistent topic is not allowed"),
        ("GET", "subscription/s/position/1", 405, "Peek messages on a non-persistent topic is not allowed"),
        ("POST", "subscription/s/expireMessages/1", 405, "Expire messages on a non-persistent topic is not allowed"),
        ("DELETE", "truncate", 412, "unsupport truncate"),
        (
            "PUT", "subscription/q", 400,
            "Create subscription on non-persistent topic can only be done through client",
        ),
    ],
)  # fmt: skip
def test_what_a_real_broker_refuses(
    wire: Wire, server: PulsarServer, topic: str, method: str, what: str, status: int, reason: str
) -> None:
    wire.subscribe(f"non-persistent://public/default/{topic}")
    answer = play(server.http, (method, f"{path(topic)}/{what}"))
    assert (answer["status"], answer["json"]) == (status, {"reason": reason})


def catalog_of(flags: int) -> bytes:
    """Of a topic with the subscription "s"."""
    return packed("topic_figures", channels=1) + packed("channel_figures", name_bytes=1, flags=flags) + b"s"


@pytest.mark.parametrize(
    ("catalog", "goes_on"),
    [((NOT_FOUND, b""), False), ((OK, catalog_of(lib.FIGURES_EPHEMERAL)), False), ((OK, catalog_of(0)), True)],
)
def test_a_durable_subscription_is_used_but_not_made(catalog: tuple[int, bytes], goes_on: bool) -> None:
    """The answer to SUBSCRIBE is the same when its ranges are another's, who may be gone when it is asked again."""
    desk = ScriptedDesk((lib.STATUS_INVALID, b""), catalog)
    consumers = Consumers(desk, MagicMock(), MagicMock(), lambda *_: Limits(), MagicMock())
    ranges = {"keySharedMode": 1, "hashRanges": [{"start": 0, "end": 9}]}
    request = desk.request(
        Client(1), "subscribe", topic="t", subscription="s", subType=3, consumer_id=1, keySharedMeta=ranges,
        durable=False,
    )  # fmt: skip
    consumers.open(request, topic_name("non-persistent://public/default/t"))
    assert desk.asked.count(lib.MSG_SUBSCRIBE) == 1 + goes_on
    assert desk.said == ([] if goes_on else [("error", CONSUMER_ASSIGN_ERROR)])
