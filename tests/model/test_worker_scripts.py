"""A worker does what it promises whatever meets at once: scripts at random, and what is owed to whom."""

from __future__ import annotations

import os

import pytest

from tests.model.worker_scripts import Play, Script

SCRIPTS = int(os.environ.get("EXAMPLES", "20"))
FIRST = int(os.environ.get("SEED", "0"))


def play(seed: int) -> int:
    """Returns of how many segments the start at its end has read the heads only."""
    of_seed = Play(Script.at_random(seed))
    try:
        of_seed.run()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    of_seed.bench.dispose()
    return of_seed.headed


def test_nothing_is_lost_or_comes_again_and_figures_say_what_there_is() -> None:
    headed = [play(seed) for seed in range(FIRST, FIRST + SCRIPTS)]
    assert any(headed) or SCRIPTS < 20


@pytest.mark.long
def test_nor_in_many_scripts() -> None:
    for seed in range(FIRST + SCRIPTS, FIRST + SCRIPTS + 1000):
        play(seed)


def test_an_ephemeral_channel_is_joined_by_who_wants_an_order_though_much_comes_again() -> None:
    """It is put in order piece by piece: meanwhile the channel, handed the tube's jobs, has nobody."""
    acts = [("consume", 1, 0, 3), ("put", 1, 9, 2), ("delete_channel", 1, 0, 0), ("one_turn", 0, 0, 0)]
    acts += [("pass_time", 1, 0, 0), ("settle", 0, 0, 0), ("consume_for_now", 1, 0, 5)]
    of_acts = Play(Script(4, tuple(acts)))
    of_acts.run()
    of_acts.bench.dispose()


def test_what_a_topic_has_kept_and_a_job_still_is_counts_once_for_who_goes_back_to_it() -> None:
    acts = [("consume_from", 1, 0, 0), ("pause", 1, 0, 0), ("delete_channel", 1, 0, 0), ("publish", 1, 1, 1)]
    acts += [("put_batch", 1, 0, 0), ("compact_all", 0, 0, 0), ("pause", 1, 0, 2), ("look", 1, 10427, 2)]
    of_acts = Play(Script(64, tuple(acts)))
    of_acts.run()
    of_acts.bench.dispose()


def test_a_job_may_be_deleted_by_who_asked_before_it_was_there() -> None:
    acts = [("reserve", 0, 0, 7153), ("delete", 0, 0, 0), ("put", 0, 0, 0), ("one_turn", 0, 0, 0)]
    of_acts = Play(Script(4, (*acts, ("pass_time", 0, 0, 0))))
    of_acts.run()
    of_acts.bench.dispose()


def test_what_comes_to_be_due_while_a_channel_is_handed_a_tubes_jobs_is_finished_once() -> None:
    acts = [("reserve", 0, 0, 0), ("publish_delayed", 0, 15, 1), ("one_turn", 0, 0, 0), ("publish_many", 0, 28696, 0)]
    acts += [("pass_time", 1, 0, 0), ("consume", 0, 22381, 62746), ("one_turn", 0, 0, 0)]
    acts += [("publish_delayed", 1, 2, 1), ("one_turn", 0, 0, 0), ("pass_time", 3, 0, 0), ("settle", 0, 0, 0)]
    acts += [("credit", 0, 9, 2), ("pass_time", 2, 0, 0), ("consume", 1, 0, 2), ("settle", 0, 0, 0)]
    acts += [("pass_time", 2, 0, 0), ("compact_all", 0, 0, 0), ("finish", 0, 2, 2)]
    of_acts = Play(Script(64, tuple(acts)))
    of_acts.run()
    of_acts.bench.dispose()


def test_jobs_that_are_reserved_when_their_topic_is_deleted_go_with_it_each_time() -> None:
    acts = [("put_batch", 1, 0, 0), ("reserve", 0, 0, 41398), ("delete_topic", 1, 0, 0), ("reserve", 1, 0, 63124)]
    acts += [("put_batch", 1, 0, 0), ("delete_topic", 1, 0, 0)]
    of_acts = Play(Script(64, tuple(acts)))
    of_acts.run()
    of_acts.bench.dispose()


@pytest.mark.parametrize("piece", [4, 64])
@pytest.mark.parametrize("put", [("put", 1, 0, 0), ("put", 1, 19, 0), ("put_batch", 1, 0, 0)])
def test_jobs_of_an_ephemeral_first_channel_are_there_for_who_goes_back_to_them(
    piece: int, put: tuple[str, int, int, int]
) -> None:
    acts = [put, ("one_turn", 0, 0, 0), ("stage", 1, 0, 0), ("consume_for_now", 1, 0, 0), ("consume_from", 1, 1, 0)]
    of_acts = Play(Script(piece, tuple(acts)))
    of_acts.run()
    of_acts.bench.dispose()


def test_what_goes_together_by_key_is_delivered_once() -> None:
    acts = [("publish_batch", 0, 1, 1), ("consume", 0, 1, 19819), ("one_turn", 0, 0, 0), ("one_turn", 0, 0, 0)]
    of_acts = Play(Script(64, (*acts, ("finish", 0, 1, 1))))
    of_acts.run()
    assert len(of_acts.flying) == 3
    of_acts.bench.dispose()


def test_what_is_finished_up_to_a_seq_by_a_channel_that_a_tube_was_handed_to_does_not_come_again() -> None:
    acts = [("publish_delayed", 0, 0, 1), ("stage", 0, 0, 0), ("settle", 0, 0, 0), ("pass_time", 0, 0, 0)]
    acts += [("put", 0, 0, 0), ("compact_all", 0, 0, 0), ("publish_many", 0, 9, 0), ("consume", 0, 54063, 0)]
    of_acts = Play(Script(8, (*acts, ("finish_upto", 0, 4947, 0))))
    of_acts.run()
    of_acts.bench.dispose()


def test_a_job_that_is_deleted_while_a_channel_is_handed_the_tubes_jobs_is_not_retained() -> None:
    acts = [("put", 1, 5, 0), ("publish", 1, 2, 0), ("consume", 1, 0, 0), ("one_turn", 0, 0, 0), ("delete", 0, 0, 0)]
    of_acts = Play(Script(8, (*acts, ("consume_from", 1, 1, 0))))
    of_acts.run()
    of_acts.bench.dispose()
