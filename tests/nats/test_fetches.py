"""Accounts that are fetched: who asks for very many keeps nobody else waiting."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from mq_shards.acceptor.protocols.nats.fetches import LOOKED_AT, MAX_WAIT_S, MAX_WAITING, Fetches

AT_ONCE = 16


class Slow:
    """Whoever has the accounts: answers when it is told to."""

    def __init__(self) -> None:
        self.asked: dict[str, Callable[[str], None]] = {}
        self.now_s = 0.0
        self.pokes = 0
        self.fetches = Fetches(self._fetch, AT_ONCE, self._poke, lambda: self.now_s)
        self.heard: list[tuple[str, str]] = []

    def _fetch(self, account: str, found: Callable[[str], None]) -> None:
        assert account not in self.asked, "one fetch is enough"
        self.asked[account] = found

    def _poke(self) -> None:
        self.pokes += 1

    def settle(self) -> bool:
        """A turn, if one was asked for."""
        asked, self.pokes = self.pokes > 0, 0
        if asked:
            self.fetches.settle()
        return asked

    def want(self, account: str, host: str) -> None:
        self.fetches.fetch(account, host, lambda jwt: self.heard.append((account, jwt)))

    def answer(self, account: str, jwt: str = "jwt") -> None:
        self.asked.pop(account)(jwt)


def test_a_stranger_leaves_places_for_others() -> None:
    slow = Slow()
    for number in range(10_000):
        slow.want(f"A{number}", "192.0.2.1")
    assert len(slow.asked) == AT_ONCE // 4, "half of what there is for strangers"
    assert len(slow.heard) == 10_000 - MAX_WAITING // 2 - AT_ONCE // 4, "its line has an end"
    slow.want("B", "192.0.2.2")
    assert "B" in slow.asked
    slow.answer("B")
    assert slow.heard[-1] == ("B", "jwt")


def test_strangers_with_many_addresses_leave_places_to_who_has_come_before() -> None:
    slow = Slow()
    slow.fetches.met("192.0.2.7")
    for number in range(1000):
        slow.want(f"A{number}", f"198.51.{number >> 8}.{number & 255}")
    assert len(slow.asked) == AT_ONCE // 2
    slow.want("B", "192.0.2.7")
    assert "B" in slow.asked


def test_who_waits_for_what_a_stranger_wants_too_does_not_wait_behind_it() -> None:
    slow = Slow()
    for number in range(100):
        slow.want(f"A{number}", "192.0.2.1")
    slow.want("A99", "192.0.2.2")
    assert "A99" in slow.asked
    slow.answer("A99")
    assert slow.heard == [("A99", "jwt")] * 2


def test_who_has_waited_too_long_is_told_so_and_nobody_is_asked() -> None:
    slow = Slow()
    for number in range(AT_ONCE):
        slow.want(f"A{number}", "192.0.2.1")
    under_way = list(slow.asked)
    slow.now_s = MAX_WAIT_S + 1
    slow.answer(under_way[0], "")
    assert len(slow.asked) == len(under_way) - 1
    assert len(slow.heard) == AT_ONCE - len(under_way) + 1 and {jwt for _, jwt in slow.heard} == {""}


def test_very_many_who_waited_too_long_are_told_so_in_pieces() -> None:
    slow = Slow()
    many = MAX_WAITING // 2
    for number in range(many):
        slow.want(f"A{number}", "192.0.2.1")
    under_way = list(slow.asked)
    slow.now_s = MAX_WAIT_S + 1
    slow.answer(under_way[0], "")
    longest, turns = len(slow.heard), 1
    while True:
        before = len(slow.heard)
        if not slow.settle():
            break
        longest, turns = max(longest, len(slow.heard) - before), turns + 1
    assert longest <= LOOKED_AT + 1 and turns >= many // (LOOKED_AT + 1)
    assert len(slow.heard) == many - len(under_way) + 1
    slow.want("B", "192.0.2.1")
    assert "B" in slow.asked, "its line is empty again"


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6), st.booleans()), max_size=200))
def test_each_who_asks_is_answered_once(steps: list[tuple[int, int, bool]]) -> None:
    """And no place is lost, whatever order things happen in."""
    slow = Slow()
    wanted = 0
    for account, host, answers in steps:
        if answers and slow.asked:
            slow.answer(next(iter(slow.asked)))
        else:
            slow.want(f"A{account}", f"192.0.2.{host}")
            wanted += 1
        assert len(slow.asked) <= AT_ONCE
    while slow.asked:
        slow.answer(next(iter(slow.asked)))
    assert len(slow.heard) == wanted
    for number in range(AT_ONCE):
        slow.want(f"B{number}", f"192.0.3.{number}")
    assert len(slow.asked) == AT_ONCE // 2
