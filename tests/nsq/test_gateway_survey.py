"""A survey of all workers waits for none of them for long, and asks none a second time before it has answered."""

from __future__ import annotations

import asyncio

from mq_shards.gateway.catalog import Topic
from mq_shards.gateway.survey import KEPT_S, Surveys
from mq_shards.gateway.workers import WorkersError

WITHIN_S = 0.01


class Two:
    """Workers 0 and 1; the second answers when the test says so."""

    def __init__(self) -> None:
        self.asked = [0, 0]
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def ask(self, worker: int) -> bytes:
        self.asked[worker] += 1
        return f"of-{worker}".encode() if worker == 0 else await asyncio.shield(self.answer)


async def read(catalog: bytes) -> list[Topic]:
    """Here a catalog is the name of the one topic there is."""
    return [Topic(catalog.decode(), 0, 0, 0, 0, 0)]


def names(topics: list[Topic]) -> list[str]:
    return [one.name for one in topics]


def test_who_is_silent_is_named_and_asked_once() -> None:
    async def play() -> None:
        surveys = Surveys((workers := Two()).ask, read)
        for _ in range(3):
            found, beside = await asyncio.gather(surveys.take((0, 1), 0.01), surveys.take((0, 1), 0.01))
            assert names(found.topics) == names(beside.topics) == ["of-0"] and found.silent == {1}
            assert surveys.silent == {1} and found.took_s < 5
        assert workers.asked[0] == 6
        assert workers.asked[1] == 2, "two at once have asked before either knew; none after that"
        workers.answer.set_result(b"late")
        found = await surveys.take((0, 1))
        assert names(found.topics) == ["late", "of-0"] and not found.silent and not surveys.silent
        assert workers.asked[1] == 2, "it is the answer to what was asked before"
        assert names((await surveys.take((1,))).topics) == ["late"] and workers.asked[1] == 3

    asyncio.run(play())


def test_an_answer_that_is_old_is_not_used() -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        surveys = Surveys((workers := Two()).ask, read)
        assert (await surveys.take((1,), 0.01)).silent == {1}
        workers.answer.set_result(b"old")
        await asyncio.sleep(0.01)
        now = loop.time
        loop.time = lambda: now() + 2 * KEPT_S  # type: ignore[method-assign]
        await surveys.take((1,))
        assert workers.asked[1] == 2

    asyncio.run(play())


def test_who_dies_while_it_is_asked_is_among_the_silent() -> None:
    async def gone(worker: int) -> bytes:
        raise WorkersError("a worker died while it was asked")

    async def play() -> None:
        surveys = Surveys(gone, read)
        found = await surveys.take((0, 1))
        assert found.silent == {0, 1} and not found.topics and not surveys.silent

    asyncio.run(play())


def test_who_has_answered_is_not_silent_however_long_that_takes_to_read() -> None:
    async def slowly(catalog: bytes) -> list[Topic]:
        await asyncio.sleep(5 * WITHIN_S)
        return await read(catalog)

    async def play() -> None:
        found = await Surveys(Two().ask, slowly).take((0, 1), WITHIN_S)
        assert names(found.topics) == ["of-0"] and found.silent == {1}
        assert found.took_s >= 5 * WITHIN_S

    asyncio.run(play())
