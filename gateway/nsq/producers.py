"""Who publishes, by nsqd's protocol: asked of all acceptors, in pieces (acceptor/protocols/nsq/producers.py)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson
from mq_shards.gateway.calls import AcceptorCalls

MOST: Final = 10_000  # of each acceptor's that are listed


class Producers:
    def __init__(self, calls: AcceptorCalls, acceptors: int) -> None:
        self._calls = calls
        self._acceptors = acceptors

    async def all(self) -> list[dict[str, Any]]:
        """As acceptors describe them, `pub_counts` by topic. Of an acceptor that does not answer there are none."""
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
