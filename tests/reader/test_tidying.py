"""What is staged and never published, and writers of one batch, go after a while, whatever becomes of the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from mq_shards.gateway.pipeline import decisions
from mq_shards.gateway.pipeline.decisions import PUBLISHED, Decision
from mq_shards.gateway.pipeline.staging import UNTOUCHED_S, Staging
from mq_shards.gateway.pipeline.writers import ONCE_S, Writers

NOW_S = 1_700_000_000.0
BACK_S = 400 * 24 * 3600.0
MINUTE_S = 60.0


Tidy = Callable[[], Awaitable[None]]


class Clock:
    now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


def tidied(root: Path, clock: Clock, after: Callable[[Staging, Tidy], Awaitable[None]]) -> None:
    """`after`: gets what is staged and what tidies up."""

    async def run() -> None:
        with ThreadPoolExecutor(1) as threads:
            staging = Staging(root, 1 << 20, 1 << 10, threads, clock)
            found = Writers(root, staging, cast(Any, None), cast(Any, None), threads, clock)
            await after(staging, found._tidy)
            await found.close()

    asyncio.run(run())


@pytest.mark.parametrize("set_back_s", [0.0, BACK_S])
def test_what_nobody_touches_goes_after_a_day(tmp_path: Path, set_back_s: float) -> None:
    clock = Clock()

    async def check(staging: Staging, tidy: Tidy) -> None:
        await staging.put("left", 0, b"")
        clock.now_s -= set_back_s
        await tidy()
        clock.now_s += UNTOUCHED_S - MINUTE_S
        await tidy()
        assert [file.name for file in staging.shown("", "", 10)] == ["left"]
        clock.now_s += 2 * MINUTE_S
        await tidy()
        assert staging.shown("", "", 10) == []

    tidied(tmp_path, clock, check)


@pytest.mark.parametrize("set_back_s", [0.0, BACK_S])
def test_a_writer_of_one_batch_is_forgotten_after_an_hour(tmp_path: Path, set_back_s: float) -> None:
    clock = Clock()
    for name, once in (("batch", True), ("stream", False)):
        decisions.save(tmp_path, Decision(name, 1, 1, PUBLISHED, 0, once, int(NOW_S * 1e9), ()))
    files = tmp_path / "writers"

    async def check(staging: Staging, tidy: Tidy) -> None:
        clock.now_s -= set_back_s
        await tidy()
        clock.now_s += ONCE_S - MINUTE_S
        await tidy()
        assert sorted(path.name for path in files.iterdir()) == ["batch.json", "stream.json"]
        clock.now_s += 2 * MINUTE_S
        await tidy()
        assert [path.name for path in files.iterdir()] == ["stream.json"]

    tidied(tmp_path, clock, check)
