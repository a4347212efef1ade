"""What a stop says and kills while it is under way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mq_shards.supervisor.child import Child
from mq_shards.supervisor.stopping import SAID_S, Stop


@pytest.fixture
def worker() -> Iterator[Child]:
    child = Child("worker", 0, "nothing.main")
    yield child
    child.close()


def test_it_says_once_in_a_while_what_it_waits_for(worker: Child) -> None:
    stop = Stop(0.0, 60.0)
    assert stop.look([worker], [worker], SAID_S - 0.1) == ""
    assert stop.look([worker], [worker], SAID_S) == "mq-worker-0"
    assert stop.look([worker], [worker], SAID_S + 0.1) == ""


def test_when_the_last_has_just_ended_nothing_is_said_or_killed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    stop = Stop(0.0, 60.0)
    assert stop.look([], [], SAID_S) == ""
    assert stop.look([], [], 60.0) == ""
    assert not stop.failed and not caplog.records
