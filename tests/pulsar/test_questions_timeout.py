"""How long a client's question waits for the gateway."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from mq_shards.acceptor.protocols.pulsar.catalog import LIST_NS, TIMEOUT_NS, Catalog

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("absent_ns", "answer_ns", "waits_ns"),
    [
        (0, TIMEOUT_NS, TIMEOUT_NS),
        (0, LIST_NS, LIST_NS),  # it is there, and makes a long list
        (SECOND_NS, TIMEOUT_NS, TIMEOUT_NS - SECOND_NS),
        (SECOND_NS, LIST_NS, TIMEOUT_NS - SECOND_NS),
        (TIMEOUT_NS + 1, LIST_NS, 0),
        (-SECOND_NS, TIMEOUT_NS, TIMEOUT_NS + SECOND_NS),  # it is started in a second
        (-TIMEOUT_NS, TIMEOUT_NS, 0),
    ],
)
def test_a_question_waits_as_long_as_something_may_come_of_it(absent_ns: int, answer_ns: int, waits_ns: int) -> None:
    waited: list[int] = []

    def ask(_what: str, _body: bytes, _heard: object, *, timeout_ns: int, again: bool) -> None:
        waited.append(timeout_ns)

    calls = SimpleNamespace(absent_ns=absent_ns, ask=ask, hear=lambda *_: None, on_lost=lambda _: None)
    catalog = Catalog(cast(Any, calls), lambda: None, tuple)
    catalog.ask("topics", lambda _found: None, answer_ns=answer_ns)
    assert waited == [waits_ns]
