"""What clients say of their producers and consumers, and what is noted of them, is kept up to a limit over all
connections of an acceptor together, and goes with them."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from unittest.mock import MagicMock

import pytest
from mq_shards.acceptor.engine import FULL, NOT_FOUND, OK
from mq_shards.acceptor.protocols.pulsar import clients
from mq_shards.acceptor.protocols.pulsar.clients import (
    MAX_NOTES,
    METADATA_ERROR,
    NOT_ALLOWED,
    Client,
    PulsarError,
    bytes_of,
    note_bytes,
    pairs_of,
)
from mq_shards.acceptor.protocols.pulsar.consumers import Consumers, Limits
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.acceptor.protocols.pulsar.start import Start
from mq_shards.acceptor.protocols.pulsar.subscribe import EXCLUSIVE, KEY_SHARED, SHARED, STICKY
from mq_shards.acceptor.protocols.pulsar.topics import Topics, consumer_fields

from tests.pulsar.scripted import ScriptedDesk
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import Wire

WHY = "There are as many metadata and hash ranges of producers and consumers as there may be"
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
    kept = desk.kept_bytes
    assert kept > 25_000
    monkeypatch.setattr(clients, "MAX_KEPT_BYTES", kept + kept // 4)
    subscribe(*done)
    assert desk.said == [("success", None)] * 2 + [("error", METADATA_ERROR)]
    consumers.close(desk.request(client, "close_consumer", consumer_id=first))
    assert desk.kept_bytes == kept // 2
    subscribe((FULL, b""))
    assert desk.kept_bytes == kept // 2, "a consumer that was refused keeps nothing"
    consumers.gone(client, second, client.consumers[second].number)
    assert desk.kept_bytes == 0
    subscribe()
    assert desk.kept_bytes == kept // 2
    consumers.forget_some(client, 1)
    assert desk.kept_bytes == 0, "its client left before it was answered"
    number = subscribe(*done)
    desk.answers[:] = [(NOT_FOUND, b"")]
    consumers.unsubscribe(desk.request(client, "unsubscribe", consumer_id=number))
    assert desk.kept_bytes == 0


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


@pytest.mark.parametrize("durable", [True, False])
def test_properties_that_are_too_many_are_refused_before_the_gateway_is_asked(durable: bool) -> None:
    desk, catalog = ScriptedDesk(), MagicMock()
    topics = Topics(desk, catalog, None, MagicMock(), authorizes=lambda: False)
    for number, wanted in enumerate((pairs(65), pairs(1, 4096), pairs(64))):
        request = desk.request(
            Client(number), "subscribe", topic="t", subscription="s", subType=0, consumer_id=1, durable=durable,
            subscription_properties=wanted,
        )  # fmt: skip
        topics.open(request, TOPIC, create=True, consumer=True, then=MagicMock())
    assert desk.said == [("error", NOT_ALLOWED)] * 2
    assert catalog.ask.call_count == 1


def named(kind: int, count: int) -> dict[str, object]:
    ranges = [{"start": 1000 * i + 300, "end": 1000 * i + 999} for i in range(count)]
    return {"subType": kind, "keySharedMeta": {"keySharedMode": STICKY, "hashRanges": ranges}}


def test_hash_ranges_count_where_they_are_kept_and_are_refused_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, client = ScriptedDesk(), Client(1)
    consumers = Consumers(desk, MagicMock(), MagicMock(), lambda *_: Limits(), MagicMock())
    monkeypatch.setattr(clients, "MAX_KEPT_BYTES", 15_000)
    kept = []
    for number, (kind, count) in enumerate([(SHARED, 500), (EXCLUSIVE, 50), (KEY_SHARED, 50), (KEY_SHARED, 50)]):
        desk.answers[:] = [(OK, b""), (NOT_FOUND, b"")]
        request = desk.request(
            client, "subscribe", topic="t", subscription="s", consumer_id=number, durable=True, **named(kind, count)
        )
        consumers.open(request, TOPIC)
        kept.append(desk.kept_bytes)
    assert desk.said == [("success", None)] * 3 + [("error", METADATA_ERROR)]
    assert kept[0] == 0, "a Shared consumer's ranges mean nothing"
    assert 5_000 < kept[1] == kept[2] // 2 == kept[3] // 2
    consumers.forget_some(client, 3)
    assert desk.kept_bytes == 0


def there(desk: ScriptedDesk, conn: int) -> Client:
    client = desk.clients[conn] = Client(conn)
    return client


def test_notes_make_room_for_others_of_their_kind_and_go_with_their_client(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = ScriptedDesk()
    one, other = there(desk, 1), there(desk, 2)
    cost = note_bytes(("t0000", "n", 0))
    monkeypatch.setattr(clients, "MAX_KEPT_BYTES", 10 * cost)
    keys = [(f"t{i:04}", "n", i) for i in range(2000)]
    for key in keys[:8]:
        desk.note(one, one.subscribed, key, (0.0, 1))
    desk.note(other, other.sought, ("t0008", "n"), Start(0))
    for key in keys[8:12]:
        desk.note(one, one.subscribed, key, (0.0, 1))
    assert list(one.subscribed.found) == keys[3:12], "the oldest are forgotten"
    assert list(other.sought.found) == [("t0008", "n")]
    desk.note(one, one.subscribed, keys[3], (0.0, 2))
    assert list(one.subscribed.found) == [*keys[4:12], keys[3]], "one that is noted again takes no more"
    with pytest.raises(PulsarError):
        desk.room_for({"k": "v" * 10 * cost})
    desk.note(other, other.subscribed, keys[0], (0.0, 1))
    assert not other.subscribed.found, "there is no room, and none of its own to forget"
    desk.leave(1)
    assert desk.kept_bytes == other.sought.kept_bytes > 0
    desk.note(one, one.subscribed, keys[0], (0.0, 1))
    desk.drop(one.subscribed, keys[11])
    assert desk.kept_bytes == other.sought.kept_bytes, "a client that has left has no notes"
    monkeypatch.setattr(clients, "MAX_KEPT_BYTES", 1 << 30)
    for key in keys:
        desk.note(other, other.subscribed, key, (0.0, 1))
    assert list(other.subscribed.found) == keys[-MAX_NOTES:]
    for key in keys:
        desk.drop(other.subscribed, key)
    desk.drop(other.sought, ("t0008", "n"))
    assert desk.kept_bytes == 0


def test_readers_that_were_moved_and_limited_subscribes_are_noted() -> None:
    desk = ScriptedDesk()
    client = there(desk, 1)
    consumers = Consumers(desk, MagicMock(), MagicMock(), lambda *_: Limits(subscribes=1, within_s=30), MagicMock())

    def subscribe() -> None:
        desk.answers[:] = [(OK, b""), (NOT_FOUND, b"")]
        wanted = {"topic": "t", "subscription": "s", "subType": 0, "consumer_id": 1, "durable": False}
        consumers.open(desk.request(client, "subscribe", **wanted), TOPIC)

    subscribe()
    noted = desk.kept_bytes
    assert noted == client.subscribed.kept_bytes > 0
    where = {"ledgerId": 0, "entryId": 1}
    consumers.seek(desk.request(client, "seek", consumer_id=1, message_id=where))
    assert desk.kept_bytes == noted + client.sought.kept_bytes > noted
    consumers.gone(client, 1, client.consumers[1].number)
    subscribe()
    assert desk.said == [("success", None), ("error", NOT_ALLOWED)]
    desk.leave(1)
    assert desk.kept_bytes == 0


def test_what_notes_and_ranges_count_is_what_they_take_in_memory() -> None:
    desk = ScriptedDesk()
    client = there(desk, 1)
    gc.collect()  # else tuples would be made of such as tests before this one had
    tracemalloc.start()
    for i in range(900):
        desk.note(client, client.subscribed, (f"persistent://a/b/{i}", f"consumer-{i}", i), (i / 7, i + 300))
        desk.note(client, client.sought, (f"persistent://a/b/{i}", f"reader-{i}"), Start(i, i << 40))
    noted, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.8 < noted / desk.kept_bytes < 1.2
    gc.collect()
    tracemalloc.start()
    ranges = [tuple((first, first + 300) for first in range(300, 30_000, 500)) for _ in range(20)]
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.8 < taken / sum(map(bytes_of, ranges)) < 1.2
