"""Asks acceptors what they know of NATS clients, piece by piece. acceptor/protocols/nats/monitor.py answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
from mq_shards.acceptor.protocols.nats import orders
from mq_shards.acceptor.protocols.nats.monitor import (
    CLIENTS_AT_ONCE,
    CLOSED_AT_ONCE,
    FIGURES_AT_ONCE,
    INDEX_BITS,
    SHARED,
    SHARED_AT_ONCE,
    Figures,
    Kept,
    figures_of,
)
from mq_shards.gateway.calls import AcceptorCalls

ROUTING_ACCEPTOR: Final = 0  # NATS_ROUTING_ACCEPTOR, csrc/acceptor/protocols/nats/nats_route_state.h


class Located(NamedTuple):
    """The figures of a connection, the acceptor that serves it, and its account's name."""

    acceptor: int
    figures: Figures
    account: str


class UnavailableError(Exception):
    """No acceptor answers."""


class Acceptors:
    def __init__(self, calls: AcceptorCalls, count: int) -> None:
        self._calls = calls
        self.count: Final = count

    async def server(self, *, brief: bool = False) -> dict[str, Any]:
        """What an acceptor says of the whole server: any will do, all say the same. brief: without accounts. Raises
        UnavailableError."""
        for acceptor in range(self.count):
            if (said := await self._ask(acceptor, "server", {"brief": brief})) is not None:
                found: dict[str, Any] = orjson.loads(said)
                return found
        raise UnavailableError

    async def order(self, what: str, cid: int) -> bytes:
        """Passes an order about a client to its acceptor, and returns the answer: acceptor/protocols/nats/orders.py."""
        for acceptor in range(self.count):
            if (said := await self._ask(acceptor, what, {"cid": cid})) not in (None, orders.NOBODY):
                return said
        return orders.NOBODY

    async def figures(self) -> list[Located]:
        """The figures of all connections."""
        found = await asyncio.gather(*(self._located(acceptor) for acceptor in range(self.count)))
        return [one for some in found for one in some]

    async def _located(self, acceptor: int) -> list[Located]:
        figures = await self._figures_of(acceptor)
        names = {one["number"]: name for name, one in (await self._accounts_of(acceptor)).items()}
        return [Located(acceptor, one, names.get(one.account, "")) for one in figures]

    async def _figures_of(self, acceptor: int) -> list[Figures]:
        found: list[Figures] = []
        place = 0
        while (said := await self._ask(acceptor, "figures", {"from": place})) is not None:
            piece = figures_of(said)
            found += piece
            if len(piece) < FIGURES_AT_ONCE:
                break
            place = (piece[-1].conn & ((1 << INDEX_BITS) - 1)) + 1
        return found

    async def clients(self, wanted: Sequence[Located], *, subs: bool) -> AsyncIterator[tuple[Figures, dict[str, Any]]]:
        """Yields what Python knows of connections besides figures, in the order of `wanted`; skips closed ones."""
        known: dict[tuple[int, int], dict[str, Any]] = {}
        for acceptor in {one.acceptor for one in wanted}:
            conns = [one.figures.conn for one in wanted if one.acceptor == acceptor]
            for start in range(0, len(conns), CLIENTS_AT_ONCE):
                piece = conns[start : start + CLIENTS_AT_ONCE]
                said = await self._ask(acceptor, "clients", {"conns": piece, "subs": subs})
                rows = orjson.loads(said)["clients"] if said is not None else []
                known.update({(acceptor, conn): row for conn, row in zip(piece, rows, strict=False) if row})
        for one in wanted:
            if (row := known.get((one.acceptor, one.figures.conn))) is not None:
                yield one.figures, row

    async def closed(self) -> list[dict[str, Any]]:
        """The closed connections that acceptors still remember."""
        found: list[dict[str, Any]] = []
        for acceptor in range(self.count):
            number = 0
            while (said := await self._ask(acceptor, "closed", {"from": number})) is not None:
                piece = orjson.loads(said)
                found += (one["closed"] for one in piece)
                if len(piece) < CLOSED_AT_ONCE:
                    break
                number = piece[-1]["number"] + 1
        return found

    async def subscriptions(self, most: int) -> list[dict[str, Any]]:
        """The subscriptions of all connections, up to about `most`."""
        found: list[dict[str, Any]] = []
        for one in await self.figures():
            place = 0
            while one.figures.subscriptions and len(found) < most:
                said = await self._ask(one.acceptor, "subscriptions", {"conn": one.figures.conn, "from": place})
                piece = orjson.loads(said or b"[]")
                if not piece:
                    break
                found += piece
                place = piece[-1]["place"] + 1
        return found

    async def wanted(self, route: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The subscriptions of the server behind a route, and how many messages all acceptors have sent to each. Lists
        no more than for a client."""
        asked = {"rid": route["rid"], "route": route["number"], "named": not route.get("account")}
        found: list[dict[str, Any]] = orjson.loads(await self._ask(ROUTING_ACCEPTOR, "wanted", asked) or b"[]")
        by_sid = {one["sid"]: one for one in found}
        for acceptor in range(self.count):
            if acceptor == ROUTING_ACCEPTOR:
                continue
            for one in orjson.loads(await self._ask(acceptor, "wanted", asked) or b"[]"):
                if one["sid"] in by_sid:
                    by_sid[one["sid"]]["msgs"] += one["msgs"]
        return found

    async def accounts(self) -> dict[str, dict[str, int]]:
        """Figures by account, added up over all acceptors."""
        return _summed([await self._accounts_of(acceptor) for acceptor in range(self.count)])

    async def kept(self, account: str) -> Kept:
        """Figures of the caches of matches of all acceptors, for one account; "": for all accounts."""
        found: list[Kept] = []
        for acceptor in range(self.count):
            asked: dict[str, Any] = {"name": account}
            while (said := await self._ask(acceptor, "kept", asked)) is not None:
                piece = Kept(**orjson.loads(said))
                found.append(piece)
                if piece.account == 0:
                    break
                asked |= {"account": piece.account, "place": piece.place}
        return Kept(
            account=0,
            place=0,
            subjects=sum(one.subjects for one in found),
            fanout=sum(one.fanout for one in found),
            max_fanout=max((one.max_fanout for one in found), default=0),
        )

    async def figures_of_account(self, name: str) -> dict[str, int]:
        """Figures of one account, without listing the others."""
        said = [await self._ask(acceptor, "accounts", {"name": name}) for acceptor in range(self.count)]
        return _summed([orjson.loads(one) for one in said if one]).get(name, {})

    async def account(self, name: str) -> dict[str, Any]:
        """What an acceptor says of an account: any will do, all know the same."""
        for acceptor in range(self.count):
            found: dict[str, Any] = {}
            number = 0
            while (said := await self._ask(acceptor, "account", {"name": name, "from": number})) is not None:
                piece = orjson.loads(said)
                for what, value in piece.items():
                    if what not in SHARED or what not in found:
                        found[what] = value
                    elif isinstance(value, dict):
                        found[what] |= value
                    else:
                        found[what] += value
                if all(len(piece.get(what, ())) < SHARED_AT_ONCE for what in SHARED):
                    return found
                number += SHARED_AT_ONCE
        return {}

    async def _accounts_of(self, acceptor: int) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        number = 0
        while said := orjson.loads(await self._ask(acceptor, "accounts", {"from": number}) or b"{}"):
            found |= said
            number = max(one["number"] for one in said.values()) + 1
        return found

    async def _ask(self, acceptor: int, what: str, question: Mapping[str, Any]) -> bytes | None:
        reply = await self._calls.ask(acceptor, f"nats.{what}", orjson.dumps(question), again=True)
        return reply.body if reply.ok else None


def _summed(of_acceptors: list[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for accounts in of_acceptors:
        for account, figures in accounts.items():
            sums = found.setdefault(account, {})
            for name, value in figures.items():
                sums[name] = sums.get(name, 0) + value
    return found
