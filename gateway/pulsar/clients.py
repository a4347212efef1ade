"""Asks acceptors which clients are connected to topics. An acceptor that does not serve Pulsar has no clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from mq_shards.gateway.calls import AcceptorCalls
from mq_shards.gateway.pulsar.refusals import unavailable
from mq_shards.ringbuf.calls import Status

MAX_TOPICS_ASKED: Final = 1000  # in one question


@dataclass(slots=True)
class Connected:
    """The clients of one topic, as docs/pulsar-catalog.md describes them."""

    producers: list[dict[str, Any]] = field(default_factory=list)
    consumers: list[dict[str, Any]] = field(default_factory=list)


class Clients:
    def __init__(self, calls: AcceptorCalls) -> None:
        self._calls = calls

    async def of(self, topics: list[str]) -> dict[str, Connected]:
        """The clients of each topic. Raises RefusedError if an acceptor does not answer."""
        found = {topic: Connected() for topic in topics}
        for begin in range(0, len(topics), MAX_TOPICS_ASKED):
            asked = {"topics": topics[begin : begin + MAX_TOPICS_ASKED]}
            for acceptor, answer in enumerate(await self._ask("pulsar.clients", asked, looks=True)):
                for topic, clients in answer.get("topics", {}).items():
                    if topic in found:
                        found[topic].producers += clients.get("producers", [])
                        mine = clients.get("consumers", [])
                        found[topic].consumers += [{**one, "acceptor": acceptor} for one in mine]
        return found

    async def close(self, topics: list[str], subscription: str | None = None) -> int:
        """Tells clients to close; they may come back. `subscription` None: all clients. Returns how many were told."""
        return await self._close(topics, {"subscription": subscription})

    async def close_producers(self, topics: list[str]) -> None:
        """Like close(), but consumers stay."""
        await self._close(topics, {"subscription": None, "producers_only": True})

    async def _close(self, topics: list[str], which: dict[str, Any]) -> int:
        closed = 0
        for begin in range(0, len(topics), MAX_TOPICS_ASKED):
            some = {"topics": topics[begin : begin + MAX_TOPICS_ASKED]}
            closed += sum(int(answer.get("closed", 0)) for answer in await self._ask("pulsar.close", some | which))
        return closed

    async def terminated(self, topic: str) -> None:
        await self._ask("pulsar.terminated", {"topic": topic})

    async def _ask(self, what: str, body: dict[str, Any], *, looks: bool = False) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        for acceptor, reply in enumerate(await self._calls.ask_all(what, orjson.dumps(body), again=looks)):
            if reply.status is Status.UNKNOWN:
                answers.append({})
                continue
            if not reply.ok:
                raise unavailable(f"acceptor {acceptor} does not answer ({reply.status.name})")
            answers.append(orjson.loads(reply.body))
        return answers
