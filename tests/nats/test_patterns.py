"""Exports and imports found by their subjects: those that comparing each with each finds, in the same order."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from mq_shards.acceptor.protocols.nats.claims import account_of
from mq_shards.acceptor.protocols.nats.claims_shares import Shared
from mq_shards.acceptor.protocols.nats.cycles import covers
from mq_shards.acceptor.protocols.nats.patterns import Patterns
from mq_shards.acceptor.protocols.nats.shares import all_lines

from tests.nats.jwts import Account, Operator

IMPORTS: Final = 1000

tokens = st.sampled_from(["a", "b", "*", ">", ""])
subjects = st.lists(tokens, min_size=1, max_size=4).map(".".join)


def overlaps(one: str, other: str) -> bool:
    a, b = one.split("."), other.split(".")
    for mine, theirs in zip(a, b, strict=False):
        if ">" in (mine, theirs):
            return True
        if mine != theirs and "*" not in (mine, theirs):
            return False
    return len(a) == len(b)


@given(st.lists(subjects, max_size=12), subjects)
def test_all_are_found_that_comparing_finds(known: list[str], asked: str) -> None:
    patterns: Patterns[int] = Patterns()
    for number, pattern in enumerate(known):
        patterns.add(pattern, number)
    assert patterns.covering(asked) == [n for n, one in enumerate(known) if covers(one, asked)]
    assert patterns.overlapping(asked) == [n for n, one in enumerate(known) if overlaps(one, asked)]


def test_thousands_of_imports_are_not_compared_with_each_of_thousands_of_exports() -> None:
    operator, importer, exporter = Operator(), Account("many imports"), Account("many exports")
    kinds = ("stream", "service")
    exports = [{"name": f"{n}", "subject": f"e.{n}.*", "type": kinds[n % 2]} for n in range(IMPORTS)]
    imports = [{**one, "account": exporter.public, "local_subject": f"l.{one['name']}.$1"} for one in exports]
    given = (exporter, operator.account(exporter, exports=exports))
    jwts = (given, (importer, operator.account(importer, imports=imports)))
    accounts = {key.public: account_of(jwt, key.public, strict=frozenset()) for key, jwt in jwts}
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        shared = Shared()
        shared.look(accounts, 1_800_000_000.0)
        lines = all_lines(list(shared.rows.values()), lambda name: 1)
    finally:
        sys.setprofile(None)
    assert lines.of(exporter.public).count("\n") == lines.of(importer.public).count("\n") == IMPORTS // 2
    assert calls < 1000 * IMPORTS
