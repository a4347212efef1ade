"""Accounts with very many imports: they are replaced in time that grows with them and no faster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from mq_shards.acceptor.protocols.nats.admission import Admission
from mq_shards.acceptor.protocols.nats.shares import Account, Lines, ShareError, stream_line

from tests.nats.engine_client import NATS, opened


def imports_of(importer: int, count: int, to: str) -> bytes:
    """The lines of an account that gives `importer` so many streams."""
    return "".join(stream_line(importer, {"subject": f"s.{n}", "to": f"{to}.{n}"}) for n in range(count)).encode()


def cost_of_replacing(count: int) -> float:
    """CPU seconds for other imports in place of as many."""
    with opened() as engine:
        exporter, importer = engine.configure(NATS, "account", 0, b"A"), engine.configure(NATS, "account", 0, b"B")
        before, after = imports_of(importer, count, "x"), imports_of(importer, count, "y")
        engine.configure(NATS, "shares", exporter, before)
        began = time.thread_time()
        engine.configure(NATS, "shares", exporter, after)
        return time.thread_time() - began


def test_ten_times_the_imports_take_no_hundred_times_as_long() -> None:
    few, many = 2000, 20_000
    assert min(cost_of_replacing(many) for _ in range(2)) < 40 * max(cost_of_replacing(few) for _ in range(2))


def account(name: str, *imports: str, exports: str = "s.>") -> dict[str, Any]:
    taken = [{"kind": "stream", "account": one, "subject": "s.x", "to": f"{one}.x"} for one in imports]
    return {"name": name, "exports": [{"kind": "stream", "subject": exports}], "imports": taken}


def test_accounts_are_looked_at_again_if_they_changed_or_import_from_those_that_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: set[str] = set()
    learn = Lines.learn

    def noted(lines: Lines, one: Account, by_name: Mapping[str, Account]) -> set[str]:
        looked.add(one["name"])
        return learn(lines, one, by_name)

    monkeypatch.setattr(Lines, "learn", noted)
    with opened() as engine:
        admission = Admission(engine, NATS)

        def shared(*accounts: Account) -> set[str]:
            looked.clear()
            admission.share("", accounts)
            return set(looked)

        a, b, c = account("A"), account("B", "A"), account("C", "B")
        assert shared(a, b, c) == {"A", "B", "C"}
        assert shared(account("A"), account("B", "A"), account("C", "B")) == set()
        assert shared(a, account("B"), c) == {"B"}
        assert shared(account("A", exports="s.*"), account("B"), c) == {"A"}
        assert shared(a, account("B", exports="s.x"), c) == {"A", "B", "C"}
        assert shared(a, b) == {"A", "B"}  # one is gone
        with pytest.raises(ShareError):
            shared(account("A", exports="t"), b)
