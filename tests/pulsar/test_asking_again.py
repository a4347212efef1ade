"""The control side asks a worker again that has not done it, if that is harmless, and not at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mq_shards.acceptor.engine import FAILED, OK, Answer, WorkerRequest
from mq_shards.gateway.pulsar import core as core_module
from mq_shards.gateway.pulsar.core import PAUSES_S, Core
from mq_shards.gateway.pulsar.refusals import RefusedError


class Said:
    """A worker that fails so many times, and what was done in which order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
        self.failures = failures
        self.done: list[str | float] = []
        engine = SimpleNamespace(shard_of_name=lambda name: 0, worker_of_name=lambda name: 0)
        self.core = Core(cast(Any, engine), cast(Any, self))
        monkeypatch.setattr(core_module.asyncio, "sleep", self._sleep)

    async def ask(self, worker: int, request: WorkerRequest, *, looks: bool = False) -> Answer:
        self.done.append("asked")
        self.failures -= 1
        return Answer(request.kind, FAILED if self.failures >= 0 else OK, 0, 0, b"", incarnation=7)

    async def _sleep(self, seconds: float) -> None:
        self.done.append(seconds)


def test_what_changes_nothing_the_second_time_is_asked_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said(monkeypatch, 2)
    assert asyncio.run(said.core.make("t")) == 7
    assert said.done == ["asked", PAUSES_S[0], "asked", PAUSES_S[1], "asked"]


def test_in_the_end_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said(monkeypatch, 100)
    with pytest.raises(RefusedError):
        asyncio.run(said.core.make("t"))
    assert said.done.count("asked") == len(PAUSES_S) + 1


def test_what_could_be_done_twice_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said(monkeypatch, 1)
    with pytest.raises(RefusedError):
        asyncio.run(said.core.terminate("t"))
    assert said.done == ["asked"]
