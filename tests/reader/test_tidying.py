"""What is staged and never published, and writers of one batch, go after a while, whatever becomes of the clock."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from mq_shards.gateway.pipeline import decisions
from mq_shards.gateway.pipeline.decisions import PUBLISHED, Decision
from mq_shards.gateway.pipeline.staging import UNTOUCHED_S, ConflictError, Staging
from mq_shards.gateway.pipeline.writers import ONCE_S, Writers

from tests.reader.broker import section

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


@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a start"])
def test_what_is_published_and_cannot_be_removed_keeps_its_name_no_longer_than_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    body, names = section("t", b"x"), ["other", "stuck"]
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == "stuck":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(path, missing_ok=missing_ok)

    async def publish(staging: Staging, tidy: Tidy) -> None:
        for name in reversed(names):
            await staging.put(name, 0, body)
        stamps = await staging.claim([(name, len(body)) for name in reversed(names)])
        decisions.save(tmp_path, Decision("w", 1, 1, PUBLISHED, 2, False, int(NOW_S * 1e9), tuple(stamps)))
        with pytest.raises(OSError, match="Input/output error"):
            await staging.remove(stamps)
        await check(staging, tidy)

    async def check(staging: Staging, tidy: Tidy) -> None:
        await tidy()
        assert [one.name for one in staging.shown("", "", 9)] == ["stuck"], "the others are gone"
        with pytest.raises(ConflictError, match="cannot be removed yet"):
            await staging.put("stuck", 0, body)
        if not again:
            monkeypatch.undo()
            await tidy()
            assert not (tmp_path / "staged" / "stuck").exists()
            assert await staging.put("stuck", 0, body) == len(body)

    monkeypatch.setattr(Path, "unlink", refuse)
    tidied(tmp_path, Clock(), publish)
    if again:
        again = False
        tidied(tmp_path, Clock(), check)
