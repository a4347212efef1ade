"""Of many changes in a row all acceptors are told the newest."""

from __future__ import annotations

from typing import Any

from mq_shards.acceptor.newest import Content, Newest


def made() -> tuple[Newest, list[Any]]:
    said: list[Any] = []

    def share(content: Content) -> None:
        said.append(content["n"])

    return Newest(share), said


def test_one_is_on_its_way_and_of_what_waits_the_last_is_told() -> None:
    newest, said = made()
    for n in range(100):
        newest.tell({"n": n})
    assert said == [0]
    newest.heard()
    assert said == [0, 99]
    newest.heard()
    assert said == [0, 99]


def test_what_has_not_changed_is_not_told_again() -> None:
    newest, said = made()
    for n in (1, 1, 2, 1):  # the last while the first is on its way
        newest.tell({"n": n})
    newest.heard()
    newest.tell({"n": 1})
    assert said == [1]
    newest.tell({"n": 2})
    newest.heard()
    assert said == [1, 2]


def test_what_comes_back_before_anything_was_told_is_of_one_that_was_here_before() -> None:
    newest, said = made()
    newest.heard()
    newest.tell({"n": 1})
    assert said == [1]
