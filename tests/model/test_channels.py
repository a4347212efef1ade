"""The engine against the model of topics with a job queue and channels."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from tests.model.channel_scripts import Scene, Script, smallest

SCRIPTS = int(os.environ.get("EXAMPLES", "150"))
FIRST = int(os.environ.get("SEED", "0"))
ACTS = 60


@dataclass(frozen=True)
class Shape:
    workers: int
    shards: int
    ring_bytes: int

    def failure(self, script: Script) -> AssertionError | None:
        scene = Scene(script, self.workers, self.shards, self.ring_bytes)
        try:
            scene.play()
        except AssertionError as error:
            for line in scene.stage.transcript:
                error.add_note(line)
            return error
        finally:
            scene.close_all()
        return None


# One with small rings: most messages go through them in pieces.
@pytest.mark.parametrize("shape", [Shape(1, 4, 1 << 16), Shape(3, 16, 1 << 13)], ids=["one", "three"])
def test_channels_and_tubes_are_as_the_model_says(shape: Shape) -> None:
    for seed in range(FIRST, FIRST + SCRIPTS):
        script = Script.at_random(seed, ACTS)
        if shape.failure(script) is None:
            continue
        script = smallest(script, lambda shorter: shape.failure(shorter) is not None)
        error = shape.failure(script)
        assert error is not None
        raise error
