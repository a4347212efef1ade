"""What clients say of their producers and consumers is kept up to a limit over all connections of an acceptor together,
and goes with them."""

from __future__ import annotations

import itertools
import tracemalloc
from unittest.mock import MagicMock

import pytest
from mq_shards.acceptor.engine import FULL, NOT_FOUND, OK
from mq_shards.acceptor.protocols.pulsar import clients
from mq_shards.acceptor.protocols.pulsar.clients import METADATA_ERROR, Client, bytes_of, pairs_of
from mq_shards.acceptor.protocols.pulsar.consumers import Consumers, Limits
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.acceptor.protocols.pulsar.topics import consumer_fields

from tests.pulsar.scripted import ScriptedDesk
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import Wire

WHY = "There are as many metadata of producers and consumers as there may be"
TOPIC = topic_name("t")


def pairs(count: int, size: int = 0) -> list[dict[str, str]]:
    """Of keys of one character each, which take much more than that."""
    return [{"key": chr(0x4E00 + i), "value": "x" * size} for i in range(count)]


DEAR = pairs(4096)


def fill(wire: Wire, topic: str) -> int:
    """Makes producers until one is refused. Returns their number."""
    for number in range(200):
        answer = wire.ask("producer", None, topic=topic, producer_id=number, metadata=DEAR)
        if hasattr(answer, "message"):
            assert (answer.error, answer.message) == (METADATA_ERROR, WHY)
            return number
    raise AssertionError("there is no limit")


def test_all_connections_share_a_limit_and_what_goes_leaves_room(wire: Wire, server: PulsarServer, topic: str) -> None:
    with Wire(server.port).connect() as other:
        most = fill(other, topic)
        assert most > 100
        wanted = {"topic": topic, "producer_id": most, "metadata": DEAR}
        assert wire.ask("producer", "error", **wanted).message == WHY
        wire.ask("producer", "producer_success", topic=topic, producer_id=most)
        wire.ask("close_producer", producer_id=most)
        other.ask("close_producer", producer_id=0)
        wire.ask("producer", "producer_success", **wanted)
        wire.ask("close_producer", producer_id=most)
        other.ask("producer", "producer_success", **wanted)
        assert wire.ask("producer", "error", **wanted).message == WHY
    assert fill(wire, topic) == most
    for number in range(most):
        wire.ask("close_producer", producer_id=number)


def test_consumers_count_with_their_properties_until_they_go(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, client = ScriptedDesk(), Client(1)
    consumers = Consumers(desk, MagicMock(), MagicMock(), lambda *_: Limits(), MagicMock())
    monkeypatch.setattr(clients, "MAX_PAIRS_BYTES", 50_000)
    numbers = itertools.count(1)

    def subscribe(*answers: tuple[int, bytes]) -> int:
        number = next(numbers)
        desk.answers[:] = answers
        request = desk.request(
            client, "subscribe", topic="t", subscription="s", subType=0, consumer_id=number, durable=False,
            metadata=pairs(64), subscription_properties=pairs(64),
        )  # fmt: skip
        consumers.open(request, TOPIC)
        return number

    done = [(OK, b""), (NOT_FOUND, b"")]  # and it is not known where the topic ends
    first, second = subscribe(*done), subscribe(*done)
    kept = desk.pairs_bytes
    assert 25_000 < kept < 50_000
    subscribe(*done)
    assert desk.said == [("success", None)] * 2 + [("error", METADATA_ERROR)]
    consumers.close(desk.request(client, "close_consumer", consumer_id=first))
    assert desk.pairs_bytes == kept // 2
    subscribe((FULL, b""))
    assert desk.pairs_bytes == kept // 2, "a consumer that was refused keeps nothing"
    consumers.gone(client, second)
    assert desk.pairs_bytes == 0
    subscribe()
    assert desk.pairs_bytes == kept // 2
    consumers.forget_some(client, 1)
    assert desk.pairs_bytes == 0, "its client left before it was answered"
    number = subscribe(*done)
    desk.answers[:] = [(NOT_FOUND, b"")]
    consumers.unsubscribe(desk.request(client, "unsubscribe", consumer_id=number))
    assert desk.pairs_bytes == 0


@pytest.mark.parametrize(("count", "size"), [(1, 1000), (64, 60), (1024, 3)])
def test_what_metadata_count_is_what_they_take_in_memory(count: int, size: int) -> None:
    body = ScriptedDesk().request(Client(1), "producer", topic="t", producer_id=1, metadata=pairs(count, size)).body
    tracemalloc.start()
    kept = [pairs_of(body.metadata) for _ in range(20)]
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.8 < taken / sum(map(bytes_of, kept)) < 1.2


def test_the_gateway_is_told_only_properties_that_it_keeps() -> None:
    wanted = {"topic": "t", "subscription": "s", "subType": 0, "consumer_id": 1, "subscription_properties": pairs(1)}
    for durable in (True, False):
        request = ScriptedDesk().request(Client(1), "subscribe", durable=durable, **wanted)
        assert ("properties" in consumer_fields(request.body)) == durable
