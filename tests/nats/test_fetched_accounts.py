"""Accounts that are fetched, as an acceptor knows them: what they share, and those that others import from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from mq_shards.acceptor.protocols.nats.claims import Account
from mq_shards.acceptor.protocols.nats.operator import WANT_AGAIN_S, Operator

from tests.nats.operators import OPERATOR, SYSTEM, A, B, C

Row = Mapping[str, Any]
ASK = [{"name": "ask", "subject": "ask", "type": "service"}]
ASKING = [{**ASK[0], "account": A.public}]
STORING = {"mem_storage": -1, "disk_storage": -1}


class Known:
    """An operator, whoever has its accounts, and what these share."""

    def __init__(self) -> None:
        self.there = {SYSTEM.public: OPERATOR.account(SYSTEM)}
        self.asked: list[str] = []
        self.now_s = 1_800_000_000.0
        self.said: list[dict[str, Row]] = []
        content = {
            "system_account": SYSTEM.public, "trusted_keys": [OPERATOR.public], "strict": [], "pinned": [],
            "sentinel": "", "preload": {},
        }  # fmt: skip
        self.operator = Operator(content, self, self._changed, now_s=lambda: self.now_s)
        self.operator.start({})

    def _changed(self, rows: Mapping[str, dict[str, Any]], _: set[str] | None) -> None:
        self.said.append(copy.deepcopy(dict(rows)))

    def fetch(self, account: str, found: Callable[[str], None]) -> None:
        self.asked.append(account)
        found(self.there.get(account, ""))

    def find(self, name: str) -> Account | None:
        found: list[Account | None] = []
        self.operator.find(name, "192.0.2.1", found.append)
        return found[0]


def test_jetstream_is_shared_where_other_servers_have_it() -> None:
    known = Known()
    known.there |= {one.public: OPERATOR.account(one, STORING) for one in (A, B)}
    before = len(known.said)
    assert known.find(A.public) is not None
    assert len(known.said) == before, "nobody has it"
    known.operator.meet_jetstream()
    assert known.said[-1][A.public]["jetstream"]
    assert known.find(B.public) is not None
    assert known.said[-1][B.public]["jetstream"], "of who comes later, too"


def test_what_others_import_from_is_asked_for_until_it_is_there() -> None:
    known = Known()
    known.there[B.public] = OPERATOR.account(B, imports=ASKING)
    known.find(B.public)
    assert known.asked.count(A.public) == 1 and known.said[-1][B.public]["imports"] == []
    known.now_s += WANT_AGAIN_S - 1
    known.operator.expire()
    assert known.asked.count(A.public) == 1 and known.operator.wait_s() == 1
    known.now_s -= 1_000_000
    known.operator.expire()
    assert known.asked.count(A.public) == 2, "the clock was set back"
    known.there[A.public] = OPERATOR.account(A, exports=ASK)
    known.now_s += WANT_AGAIN_S
    known.operator.expire()
    assert len(known.said[-1][B.public]["imports"]) == 1
    assert known.operator.wait_s() == -1, "nothing is missing"


def test_what_nobody_imports_from_any_more_is_not_asked_for() -> None:
    known = Known()
    known.there[B.public] = OPERATOR.account(B, imports=ASKING)
    known.find(B.public)
    known.operator.update(B.public, OPERATOR.account(B))
    known.now_s += WANT_AGAIN_S
    known.operator.expire()
    assert known.asked.count(A.public) == 1 and known.operator.wait_s() == -1


def test_an_update_of_what_shares_nothing_costs_the_others_nothing() -> None:
    known = Known()
    known.there |= {A.public: OPERATOR.account(A), C.public: OPERATOR.account(C, exports=ASK)}
    for one in (A, C):
        assert known.find(one.public) is not None
    before = len(known.said)
    known.operator.update(A.public, OPERATOR.account(A, {"payload": 7}))
    assert len(known.said) == before
    known.operator.update(A.public, OPERATOR.account(A, authorization={"auth_users": []}))
    assert len(known.said) == before + 1, "who lets its users in is looked at again"
    known.operator.update(C.public, OPERATOR.account(C))
    assert known.said[-1][C.public]["exports"] == []
    before = len(known.said)
    known.operator.forget(C.public)
    assert len(known.said) == before
