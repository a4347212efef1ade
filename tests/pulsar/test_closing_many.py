"""Clients of many topics are told to close without anybody having to wait for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import orjson
import pytest
from mq_shards.acceptor.protocols.pulsar.answers import Answers
from mq_shards.acceptor.protocols.pulsar.clients import Client, Consumer, Producer
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.gateway.pulsar.clients import MAX_TOPICS_ASKED, Clients
from mq_shards.ringbuf.calls import Status

from tests.pulsar.scripted import ScriptedDesk

MANY = 2500
NAMES = [f"persistent://public/default/t{i}" for i in range(MANY)]


class Looked(dict[int, Any]):
    """Counts how often all of it is looked at."""

    times = 0

    def values(self) -> Any:  # noqa: ANN401
        self.times += 1
        return super().values()


@pytest.mark.parametrize(
    ("which", "calls"),
    [
        ({"subscription": None}, {"lose-consumer": MANY, "lose-producer": MANY}),
        ({"subscription": "even"}, {"lose-consumer": MANY // 2}),
        ({"subscription": None, "producers_only": True}, {"lose-producer": MANY}),
    ],
)
def test_an_acceptor_looks_once_at_each_client(which: dict[str, Any], calls: dict[str, int]) -> None:
    desk, client = ScriptedDesk(), Client(7, producers=Looked(), consumers=Looked())
    for i, name in enumerate(map(topic_name, [*NAMES, "persistent://public/default/another"])):
        client.producers[i] = Producer(i, f"p{i}", name, 0, i + 1)
        subscription = "odd" if i % 2 else "even"
        client.consumers[i] = Consumer(i, i + 1, name, subscription, 0, f"c{i}", durable=True, open=True)
        desk.use(name, 2)
    desk.clients[7] = client
    engine, asked = cast(Any, desk.engine), MagicMock(body=orjson.dumps({"topics": NAMES, **which}))
    Answers(desk, None)._close(asked)
    asked.answer.assert_called_once_with(orjson.dumps({"closed": sum(calls.values())}))
    told = [call.args[1] for call in engine.call.call_args_list]
    assert {what: told.count(what) for what in told} == calls
    assert {call.args[2] for call in engine.call.call_args_list} <= set(range(MANY))
    assert max(client.producers.times, client.consumers.times) == 1
    Answers(desk, None)._close(MagicMock(body=orjson.dumps({"topics": ["unused"], **which})))
    assert max(client.producers.times, client.consumers.times) == 1, "nobody uses that topic"


def test_the_gateway_asks_for_some_at_a_time() -> None:
    sizes = list[int]()

    async def ask_all(what: str, body: bytes, *, again: bool) -> list[Any]:
        sizes.append(len(orjson.loads(body)["topics"]))
        return [SimpleNamespace(status=Status.OK, ok=True, body=b'{"closed":1}')] * 2

    clients = Clients(cast(Any, SimpleNamespace(ask_all=ask_all)))
    assert asyncio.run(clients.close(NAMES)) == 6
    asyncio.run(clients.close_producers(NAMES))
    assert sizes == [MAX_TOPICS_ASKED, MAX_TOPICS_ASKED, 500] * 2
