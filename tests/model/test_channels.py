"""The engine against the model of topics with a job queue and channels."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import pytest

from tests.engine import Engine
from tests.model.channel_scripts import Scene, Script, Stage, smallest
from tests.model.channels import Broker
from tests.model.scripts import Command
from tests.nsq import frames

SCRIPTS = int(os.environ.get("EXAMPLES", "16"))
FIRST = int(os.environ.get("SEED", "0"))
ACTS = 60


@dataclass(frozen=True)
class Shape:
    workers: int
    shards: int
    ring_bytes: int
    piece: int = 0  # what a worker touches in a turn at most

    def failure(self, script: Script) -> AssertionError | None:
        scene = Scene(script, self.workers, self.shards, self.ring_bytes, self.piece)
        try:
            scene.play()
        except AssertionError as error:
            for line in scene.stage.transcript:
                error.add_note(line)
            return error
        finally:
            scene.close_all()
        return None


# One with small rings: most messages go through them in pieces. And in every other script what grows with a backlog is
# done a message or three a turn.
@pytest.mark.parametrize("shape", [Shape(1, 4, 1 << 16), Shape(3, 16, 1 << 13)], ids=["one", "three"])
def test_channels_and_tubes_are_as_the_model_says(shape: Shape) -> None:
    for seed in range(FIRST, FIRST + SCRIPTS):
        script = Script.at_random(seed, ACTS)
        of_script = replace(shape, piece=seed % 4 if seed % 2 else 0)
        if of_script.failure(script) is None:
            continue
        script = smallest(script, lambda shorter, of_script=of_script: of_script.failure(shorter) is not None)
        error = of_script.failure(script)
        assert error is not None
        raise error


@pytest.mark.parametrize("workers", [1, 3])
def test_a_reserve_that_does_not_wait_gets_what_nsq_published(workers: int) -> None:
    """Wherever what it watches lies: it reserves, and so it wants all of that."""
    stage = Stage(Broker(), Engine(workers, 16))
    try:
        worker_of = stage.engine.worker_of
        away = next(tube for tube in (b"a", b"b", b"c") if workers == 1 or worker_of(tube) != worker_of(b"default"))
        conn, client = stage.connect(), stage.connect_nsq()
        stage.run(conn, Command(b"watch %s\r\n" % away))
        stage.model.publish(client, b"default", [b"published"])
        stage.say(client, frames.pub("default", b"published"))
        stage.check(conn)
        assert not stage.model.jobs, "the watch that every connection begins with does not want the tube"
        stage.run(conn, Command(b"reserve-with-timeout 0\r\n"))
        assert [job.body for job in stage.model.conns[conn].reserved] == [b"published"]
        stage.check(conn)
    finally:
        stage.engine.dispose()
