"""Permissions that are none, in what others have signed: who comes with them is refused, and nobody else notices."""

from __future__ import annotations

from typing import Final

import pytest

from tests.nats import test_callout as callout
from tests.nats.jwts import Account
from tests.nats.operators import KINDS, OPERATOR, SYSTEM, VIOLATION, conf, connect, heard, resolver, serving
from tests.nats.wire import Wire
from tests.servers import wait_until

BAD: Final = ("a..b", " ")
TENANT, OTHER, WRONG = Account("tenant"), Account("other tenant"), Account("wrong")
ONLY: Final = {"pub": {"allow": ["only.this"]}, "sub": {"allow": ["only.this"]}}
BEYOND: Final = b"PUB secret 1\r\nx\r\nSUB secret 1\r\n"


def settled(wire: Wire) -> Wire:
    wire.send(b"PING\r\n")
    wire.barrier()
    return wire


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_set_leaves_everybody_their_own_rights(kind: int) -> None:
    known = {one.public: OPERATOR.account(one) for one in (TENANT, OTHER, SYSTEM)}
    with serving(kind, conf(preload=known)) as server:
        wires = [settled(connect(server, TENANT.user(name, sub={"allow": [name]}))) for name in ("one", "two")]
        wires.append(settled(connect(server, OTHER.user("stays", **ONLY))))
        limited = heard(server, OTHER.user("limited", **ONLY), BEYOND)
        wires.pop(0).close()
        wait_until(lambda: heard(server, OTHER.user("limited", **ONLY), BEYOND) == limited, "what is allowed")
        for bad in (*BAD, "one\nsa >") if kind != 0 else BAD:
            assert VIOLATION in heard(server, TENANT.user("bad", sub={"allow": [bad]}))
        wires += [settled(connect(server, TENANT.user(f"wide{n}", pub={"allow": [f"w{n}", ">"]}))) for n in range(4)]
        assert heard(server, OTHER.user("limited", **ONLY), BEYOND) == limited
        for wire in wires:
            wire.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_account_that_is_fetched_cannot_end_the_server(kind: int) -> None:
    known = {one.public: OPERATOR.account(one) for one in (TENANT, OTHER, SYSTEM)}
    known[WRONG.public] = OPERATOR.account(WRONG, default_permissions={"pub": {"deny": ["a..b"]}})
    with resolver(known) as (url, _), serving(kind, conf(resolver=f"URL({url})", preload={})) as server:
        bystander = settled(connect(server, OTHER.user("good")))
        for bad in BAD:
            assert VIOLATION in heard(server, TENANT.user("bad", sub={"allow": [bad]}))
        if kind != 0:
            assert VIOLATION in heard(server, WRONG.user("any"))
        settled(bystander)
        assert not bystander.heard.closed
        bystander.close()
        assert "unexpected" not in server.said()


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_that_lets_in_with_none_lets_nobody_in(kind: int) -> None:
    answers = {bad: lambda r, bad=bad: callout.answer(r, jwt=callout.user(r, sub={"allow": [bad]})) for bad in BAD}
    with callout.serving(kind) as (server, _):
        service = callout.Service(server.port, answers=answers)
        for bad in BAD:
            wire = callout.heard(server.port, callout.connect(bad))
            assert (wire.heard.data, wire.heard.closed) == (VIOLATION, True)
            wire.close()
        service.close()
