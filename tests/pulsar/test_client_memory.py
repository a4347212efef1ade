"""A client that waits for nothing takes little memory: there may be tens of thousands of them."""

from __future__ import annotations

from sys import getsizeof
from typing import Any, cast
from unittest.mock import MagicMock

from mq_shards.acceptor.engine import Answer
from mq_shards.acceptor.protocols.pulsar.clients import PRODUCER, Client, Desk, Request
from mq_shards.acceptor.protocols.pulsar.names import TopicName

NAME = cast(TopicName, MagicMock())
KIND = 1


def test_a_client_gives_back_what_waiting_took() -> None:
    engine = MagicMock()
    desk, client = Desk(engine), Client(1)
    heard: list[int] = []
    for slot in (7, 8, -1, -1):  # the last two have to wait
        engine.request.return_value = slot
        assert desk.ask(client, KIND, NAME, lambda answer: heard.append(answer.slot))
    requests = [Request(desk, client, cast(Any, MagicMock())) for _ in range(2)]
    for number, request in enumerate(requests):
        request.opens(PRODUCER, number)

    engine.request.side_effect = [9, 10]
    for slot in (7, 8, 9, 10):
        desk.answered(client, Answer(KIND, 0, slot, 0, b""))
    for request in requests:
        request.done()

    assert heard == [7, 8, 9, 10]
    assert client.unasked is None
    assert [getsizeof(client.heard), getsizeof(client.opening)] == [getsizeof({})] * 2


def test_a_client_is_small() -> None:
    client = Client(1)
    notes = client.subscribed, client.sought
    assert not any(hasattr(each, "__dict__") for each in notes)
    parts = [getattr(client, name) for name in Client.__slots__]
    assert getsizeof(client) + sum(map(getsizeof, parts)) < 1400
