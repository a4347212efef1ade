"""Retention: what a seek brings back of what everybody has finished."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator

import pytest

from tests.pulsar.record_roles import request
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire, payload_of
from tests.servers import wait_until

BODY = b"x" * 10_000
LARGE = b"y" * (4 << 20)
# Segments after which one that nothing keeps any more has gone.
MOST_FILLS = 5
_numbers = itertools.count()
SETTINGS = ["pulsar.policies-interval=50ms", "log.retention-bytes=0", "log.retention-hours=0"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarServer]:
    with running(shards=1, data_dir=tmp_path_factory.mktemp("kept") / "data", settings=SETTINGS) as server:
        assert request(server.http, "", "", "PUT", "namespaces/public/unkept")["status"] == 204
        yield server


@pytest.fixture
def namespace(server: PulsarServer) -> str:
    name = f"public/n{next(_numbers)}"
    assert request(server.http, "", "", "PUT", f"namespaces/{name}")["status"] == 204
    return name


def keep(server: PulsarServer, path: str, minutes: int, megabytes: int) -> None:
    body = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
    assert request(server.http, "", "", "POST", f"{path}/retention", body)["status"] == 204


def publish_and_finish(wire: Wire, topic: str, count: int, body: bytes = BODY) -> None:
    wire.producer(f"persistent://{topic}")
    wire.subscribe(f"persistent://{topic}", "s", 1)
    wire.flow(count)
    for i in range(count):
        wire.send(b"%d " % i + body, sequence=i)
        wire.expect("send_receipt")  # what it consumes is taken meanwhile: else it would be read no further
    wire.ack(*(frame.body.message_id for frame in wire.messages(count)))
    wire.ask("close_producer", producer_id=1)
    wire.ask("close_consumer", consumer_id=1)


def there(server: PulsarServer, topic: str) -> list[int]:
    """Which of its messages one who begins at the earliest gets."""
    with Wire(server.port).connect() as wire:
        start = {"ledgerId": (1 << 64) - 1, "entryId": 0}
        wire.subscribe(f"persistent://{topic}", "look", durable=False, start_message_id=start)
        wire.flow(10_000)
        wire.quiet()
        last = wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1).last_message_id.entryId
        found: list[int] = []
        at = request_first(server, topic) - 1 if last != (1 << 64) - 1 else last
        while at < last:
            frame = wire.message()
            at = frame.body.message_id.entryId
            found.append(int(payload_of(frame).split()[0]))
        return found


def request_first(server: PulsarServer, topic: str) -> int:
    stats = request(server.http, "", "", "GET", f"persistent/{topic}/internalStats")["json"]
    last = int(stats["lastConfirmedEntry"].split(":")[1])
    return last + 1 - int(stats["numberOfEntries"])


def fill(server: PulsarServer) -> None:
    """Another segment, so that the one before may go if nobody keeps what is in it. Where that is done nothing is."""
    with Wire(server.port).connect() as wire:
        publish_and_finish(wire, "public/unkept/other", 18, LARGE)


def test_what_is_to_be_kept_for_ever_outlives_the_segments_that_it_came_in(
    server: PulsarServer, namespace: str
) -> None:
    keep(server, f"namespaces/{namespace}", -1, -1)
    with Wire(server.port).connect() as wire:
        publish_and_finish(wire, f"{namespace}/t", 50)
    assert there(server, f"{namespace}/t") == list(range(50))
    fill(server)
    os.kill(server.pid_of("mq-worker-0"), signal.SIGKILL)
    wait_until(lambda: there(server, f"{namespace}/t") == list(range(50)), "all are there")
    # Whoever looked may still be leaving.
    subscriptions = f"persistent/{namespace}/t/subscriptions"
    what = "what keeps them is none"
    wait_until(lambda: request(server.http, "", "", "GET", subscriptions)["json"] == ["s"], what)
    stats = request(server.http, "", "", "GET", f"persistent/{namespace}/t/stats")["json"]
    assert (list(stats["subscriptions"]), stats["backlogSize"]) == (["s"], 0)


def test_no_more_is_kept_than_there_may_be(server: PulsarServer, namespace: str) -> None:
    """A topic's own policy goes before that of its namespace."""
    keep(server, f"namespaces/{namespace}", -1, -1)
    assert request(server.http, "", "", "PUT", f"persistent/{namespace}/t")["status"] == 204
    keep(server, f"persistent/{namespace}/t", -1, 1)
    with Wire(server.port).connect() as wire:
        publish_and_finish(wire, f"{namespace}/t", 200)
        wait_until(lambda: len(there(server, f"{namespace}/t")) <= 104, "what is more than a megabyte is gone")
        found = there(server, f"{namespace}/t")
        assert len(found) >= 100
        assert found == list(range(200 - len(found), 200))
        # Nobody gets behind that by an id or a time either, and who has not finished loses nothing.
        wire.subscribe(f"persistent://{namespace}/t", "sought", 1, 2)
        for where in ({"message_id": {"ledgerId": 1 << 40, "entryId": 3}}, {"message_publish_time": 1}):
            wire.ask("seek", consumer_id=2, **where)
            wire.expect("close_consumer")
            wire.subscribe(f"persistent://{namespace}/t", "sought", 1, 2)
        wire.flow(1, 2)
        assert int(payload_of(wire.message(2)).split()[0]) == found[0]
        # What it has been set back to would keep the segments that the next test wants to see go.
        wire.ask("unsubscribe", consumer_id=2)


def test_what_is_to_be_kept_no_more_goes(server: PulsarServer, namespace: str) -> None:
    keep(server, f"namespaces/{namespace}", -1, -1)
    with Wire(server.port).connect() as wire:
        publish_and_finish(wire, f"{namespace}/t", 50)
        fill(server)
        assert len(there(server, f"{namespace}/t")) == 50
        assert request(server.http, "", "", "DELETE", f"namespaces/{namespace}/retention")["status"] == 204
        # What the policy no longer keeps is let go of when the answer comes, whatever the clock says.
        assert request(server.http, "", "", "POST", f"persistent/{namespace}/t/trim")["status"] == 200
        fills = 0
        while there(server, f"{namespace}/t"):
            assert fills < MOST_FILLS
            fill(server)
            fills += 1


def test_nobody_consumes_what_is_only_kept(server: PulsarServer, namespace: str) -> None:
    keep(server, f"namespaces/{namespace}", -1, -1)
    with Wire(server.port).connect() as wire:
        publish_and_finish(wire, f"{namespace}/t", 1)
        refused = wire.ask(
            "subscribe",
            "error",
            topic=f"persistent://{namespace}/t",
            subscription="__retention",
            subType=1,
            consumer_id=9,
        )
        assert refused.error == 22
    for method in ("PUT", "DELETE"):
        answer = request(server.http, "", "", method, f"persistent/{namespace}/t/subscription/__retention")
        assert answer["status"] in (404, 412)


@pytest.mark.long
def test_what_is_older_than_it_may_be_goes(server: PulsarServer, namespace: str) -> None:
    keep(server, f"namespaces/{namespace}", 1, -1)
    with Wire(server.port).connect() as wire:
        publish_and_finish(wire, f"{namespace}/t", 50)
        fill(server)
        assert len(there(server, f"{namespace}/t")) == 50
        wait_until(lambda: not there(server, f"{namespace}/t"), "a minute is over", 90)
