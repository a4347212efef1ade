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
