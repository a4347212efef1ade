"""Asks all acceptors, in pieces, for clients that publish by nsqd's protocol (acceptor/protocols/nsq/producers.py)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson
from mq_shards.gateway.calls import AcceptorCalls

MOST: Final = 10_000  # producers that are listed of each acceptor


class Producers:
    def __init__(self, calls: AcceptorCalls, acceptors: int) -> None:
        self._calls = calls
        self._acceptors = acceptors

    async def all(self) -> list[dict[str, Any]]:
        """Producers as acceptors describe them, with `pub_counts` by topic. Skips acceptors that do not answer."""
        found = await asyncio.gather(*(self._of(acceptor) for acceptor in range(self._acceptors)))
        return [one for some in found for one in some]

    async def _of(self, acceptor: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        place = 0
        while len(found) < MOST:
            asked = orjson.dumps({"from": place})
            reply = await self._calls.ask(acceptor, "nsq.producers", asked, again=True)
            if not reply.ok:
                break
            said = orjson.loads(reply.body)
            found += said["producers"]
            place = said["next"]
            if not place:
                break
        return found[:MOST]
