"""REST: which message is where in a topic, and what is finished up to one. Statuses and reasons are a 4.0.7's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.pulsar.record_roles import request
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import Wire, batch_of, entry_of, metadata, send_frame

MANY: Final = 6
NAMESPACE: Final = "persistent/public/default"


@dataclass
class Filled:
    """A topic with MANY messages, and a subscription at its beginning."""

    server: PulsarServer
    topic: str
    ledger: int

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        return request(self.server.http, "", "", method, f"{NAMESPACE}/{path}", body)

    def expire(self, entry: int, *, ledger: int | None = None, **more: object) -> int:
        body = {"ledgerId": self.ledger if ledger is None else ledger, "entryId": entry, **more}
        return int(self.ask("POST", f"{self.topic}/subscription/s/expireMessages", body)["status"])

    def backlog(self, subscription: str = "s") -> int:
        return int(self.ask("GET", f"{self.topic}/stats")["json"]["subscriptions"][subscription]["msgBacklog"])


@pytest.fixture
def filled(server: PulsarServer, wire: Wire, topic: str) -> Filled:
    wire.subscribe(topic)
    wire.producer(topic)
    found = Filled(server, topic, 0)
    for n in range(MANY):
        wire.send(b"%d" % n, sequence=n)
        found.ledger = wire.expect("send_receipt").message_id.ledgerId
    return found


def test_messages_up_to_an_id_are_finished(filled: Filled) -> None:
    assert (filled.expire(1, partitionIndex=-1), filled.backlog()) == (204, 4)
    assert (filled.expire(0), filled.backlog()) == (204, 4)
    assert (filled.expire(3, ledger=0), filled.backlog()) == (204, 4)
    assert (filled.expire(MANY), filled.backlog()) == (409, 4)
    assert (filled.expire(4, partitionIndex=3), filled.backlog()) == (412, 4)
    assert (filled.expire(MANY - 1), filled.backlog()) == (204, 0)
    other = filled.ask("POST", f"{filled.topic}/subscription/other/expireMessages", {"ledgerId": 1, "entryId": 1})
    assert other["status"] == 404


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("earliest", MANY),
        ("latest", 0),
        ({}, MANY),
        ({"ledgerId": None, "entryId": 3}, MANY),
        ({"ledgerId": 0, "entryId": 3}, MANY),
        ({"ledgerId": "its", "entryId": 4}, MANY - 4),
        ({"ledgerId": "its"}, MANY),
        ({"ledgerId": "its", "entryId": 4, "excluded": True}, MANY - 5),
        ({"ledgerId": "later", "entryId": 0}, 0),
        ({"ledgerId": "later", "entryId": -1}, 0),
    ],
)
def test_a_cursor_begins_and_is_moved_where_an_id_points(filled: Filled, body: Any, left: int) -> None:  # noqa: ANN401
    """An id of an earlier topic of this name is the beginning, a later one the end, and what a body lacks is 0."""
    if isinstance(body, dict):
        named = {"its": filled.ledger, "later": filled.ledger + 1}
        body = body | ({"ledgerId": named.get(body["ledgerId"], body["ledgerId"])} if "ledgerId" in body else {})
    before = "earliest" if left == 0 else "latest"
    for at in (before, body):
        assert filled.ask("POST", f"{filled.topic}/subscription/s/resetcursor", at)["status"] == 204
    assert filled.backlog() == left
    assert filled.ask("PUT", f"{filled.topic}/subscription/new", body)["status"] == 204
    # To begin at a message, unlike to go back to one, does not know of "excluded".
    begins = left + 1 if "excluded" in body else left
    assert filled.backlog("new") == begins


def test_a_cursor_that_is_moved_behind_a_message_of_a_batch_loses_none_of_those_behind_it(
    server: PulsarServer, wire: Wire, topic: str
) -> None:
    wire.subscribe(topic)
    wire.producer(topic)
    head = metadata(num_messages_in_batch=3, sequence_id=0)
    wire.raw(send_frame(1, 0, entry_of(head, batch_of(b"a", b"b", b"c"))))
    filled = Filled(server, topic, wire.expect("send_receipt").message_id.ledgerId)

    def left_behind(index: int) -> int:
        at = {"ledgerId": filled.ledger, "entryId": 0, "batchIndex": index, "excluded": True}
        assert filled.ask("POST", f"{topic}/subscription/s/resetcursor", at)["status"] == 204
        return filled.backlog()

    assert [left_behind(index) for index in (0, 1, 2, -1)] == [1, 1, 0, 0]  # entries


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", 5), ("?initialPosition=earliest", 0), ("?initialPosition=earliest&messagePosition=3", 2),
        ("?messagePosition=2", 4), ("?messagePosition=0", 5), ("?initialPosition=earliest&messagePosition=99", 5),
    ],
)  # fmt: skip
def test_a_message_is_examined_by_its_place(filled: Filled, query: str, found: int) -> None:
    assert filled.ask("GET", f"{filled.topic}/examinemessage{query}")["json"] == found


def test_a_subscription_that_is_not_there_is_made_by_who_peeks_into_it(filled: Filled) -> None:
    assert filled.ask("GET", f"{filled.topic}/subscription/peeks/position/1")["json"] == 0  # its payload
    assert filled.backlog("peeks") == MANY
    assert filled.ask("POST", f"{filled.topic}/subscription/skips/skip/1")["status"] == 404


def test_a_message_is_found_by_its_time(filled: Filled) -> None:
    def found(at_ms: int) -> tuple[int, int]:
        one = filled.ask("GET", f"{filled.topic}/messageid/{at_ms}")["json"]
        return one["ledgerId"], one["entryId"]

    assert found(0) == (filled.ledger, 0)
    assert found(1 << 50) == (filled.ledger, MANY)


def test_the_size_of_what_is_behind_an_id(filled: Filled) -> None:
    def size(**id: int) -> int:
        return int(filled.ask("PUT", f"{filled.topic}/backlogSize", id)["json"])

    each, rest = divmod(size(), MANY)
    assert rest == 0
    assert each > 10, "an entry is more than the byte that was published"
    assert size(ledgerId=-1, entryId=-1) == MANY * each
    assert [size(ledgerId=filled.ledger, entryId=n) for n in (1, 5, 50)] == [4 * each, 0, 0]


def test_of_a_partitioned_topic_a_partition_is_to_be_asked(filled: Filled) -> None:
    name = f"{filled.topic}-parts"
    assert filled.ask("PUT", f"{name}/partitions", 2)["status"] == 204
    id = {"ledgerId": 0, "entryId": 0}
    assert filled.ask("GET", f"{name}/examinemessage")["status"] == 405
    assert filled.ask("GET", f"{name}/messageid/0")["status"] == 405
    assert filled.ask("PUT", f"{name}/backlogSize", id)["status"] == 405
    assert filled.ask("POST", f"{name}/subscription/s/expireMessages", id)["status"] == 405
    assert filled.ask("GET", f"{name}-partition-0/examinemessage")["status"] == 412, "no message"
    assert filled.ask("GET", f"{name}-partition-1/messageid/0")["json"]["partitionIndex"] == 1
    assert filled.ask("POST", f"{name}/createMissedPartitions")["status"] == 204
    assert filled.ask("POST", f"{filled.topic}/createMissedPartitions")["status"] == 404
