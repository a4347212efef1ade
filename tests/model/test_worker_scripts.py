"""A worker does what it promises whatever meets at once: scripts at random, and what is owed to whom."""

from __future__ import annotations

import os

import pytest

from tests.model.worker_scripts import Play, Script

SCRIPTS = int(os.environ.get("EXAMPLES", "80"))
FIRST = int(os.environ.get("SEED", "0"))


def play(seed: int) -> None:
    of_seed = Play(Script.at_random(seed))
    try:
        of_seed.run()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    of_seed.bench.dispose()


def test_nothing_is_lost_or_comes_again_and_figures_say_what_there_is() -> None:
    for seed in range(FIRST, FIRST + SCRIPTS):
        play(seed)


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
