"""How often a worker looks after its shards."""

from __future__ import annotations

import pytest
from mq_shards.shards.ticks import BUSY_TICK_NS, TICK_NS, TIDIED_IN, Ticks


def wait_ns(ticks: Ticks, appended: int, *, is_more: bool = False, is_urgent: bool = False) -> int:
    return ticks.wait_ns(lambda: appended, is_more=is_more, is_urgent=is_urgent)


@pytest.mark.parametrize("shards", [1, 3, 7])
def test_few_shards_are_looked_after_often_while_they_are_written_to_and_seldom_otherwise(shards: int) -> None:
    ticks = Ticks(shards)
    often = TICK_NS * shards // TIDIED_IN
    assert [wait_ns(ticks, appended) for appended in (10, 20, 20, 20, 21)] == [often, often, TICK_NS, TICK_NS, often]


@pytest.mark.parametrize("shards", [1, 8, 9, 64, 65, 1000])
def test_all_are_looked_after_in_the_time_of_a_round_even_if_nothing_is_written(shards: int) -> None:
    ticks = Ticks(shards)
    in_a_round = -(-shards // ticks.at_once)
    assert in_a_round <= TIDIED_IN
    assert wait_ns(ticks, 0) * in_a_round <= TICK_NS


def test_what_is_left_or_a_full_disk_does_not_wait_for_something_to_be_written() -> None:
    ticks = Ticks(1)
    assert wait_ns(ticks, 0, is_more=True) == BUSY_TICK_NS
    assert wait_ns(ticks, 0, is_urgent=True) == ticks.usual_ns == TICK_NS // TIDIED_IN
