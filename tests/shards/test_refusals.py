"""When a worker says that it refuses publishes, and when that it does so no more."""

from __future__ import annotations

from mq_shards.shards.refusals import SILENT_S, TAKEN_S, Refusals


def test_refusals_are_news_once_and_end_with_a_message_that_is_taken() -> None:
    refusals = Refusals()
    assert not refusals.ended(0.0, 7), "nothing was refused"
    assert refusals.refused(0.0, 7) and not refusals.refused(1.0, 7)
    assert not refusals.ended(1.0 + TAKEN_S, 7), "none was taken"
    assert not refusals.ended(0.9 + TAKEN_S, 8), "too soon"
    assert refusals.ended(1.0 + TAKEN_S, 8) and not refusals.ended(99.0, 9)
    assert refusals.refused(100.0, 9), "this is news again"


def test_small_messages_that_are_taken_do_not_hide_that_large_ones_are_refused() -> None:
    refusals = Refusals()
    assert [refusals.refused(at, int(at)) for at in (0.0, 1.0, 2.0, 3.0)].count(True) == 1
    assert not refusals.ended(3.1, 4)


def test_refusals_end_when_nobody_publishes() -> None:
    refusals = Refusals()
    refusals.refused(0.0, 7)
    assert not refusals.ended(SILENT_S - 0.1, 7)
    assert refusals.ended(SILENT_S, 7)
