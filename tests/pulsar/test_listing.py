"""Lists of topics and who watches them: nothing of it is one long turn, and nothing is missed between two."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.csrc._core import ffi
from mq_shards.gateway import turns
from mq_shards.gateway.catalog import DURABLE
from mq_shards.gateway.pulsar import core as core_module
from mq_shards.gateway.pulsar import listing, questions, watches
from mq_shards.gateway.pulsar.core import Core
from mq_shards.gateway.pulsar.listing import topics_hash
from mq_shards.gateway.pulsar.store import StoreError
from mq_shards.gateway.turns import sorted_in_turns

from tests.pulsar.control_side import Side, T, around

NAMESPACE = "public/default"


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.005)


class Counting:
    """Turns that others have meanwhile."""

    def __init__(self) -> None:
        self.count = 0

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1

    async def during(self, work: Awaitable[Any]) -> Any:  # noqa: ANN401
        task = asyncio.create_task(self._run())
        try:
            return await work
        finally:
            task.cancel()


def test_others_have_their_turn_while_many_topics_are_listed_and_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0.0)  # as if the clock of each turn had run out
    monkeypatch.setattr(questions, "MAX_TOPICS_BYTES", 1 << 30)
    names = [f"t{i}" for i in range(20_000)]

    async def test(side: Side) -> None:
        side.core.topics.update(names)
        whole = sorted(T + name for name in names)
        counting = Counting()
        listed = await counting.during(side.ask("topics", namespace=NAMESPACE))
        assert listed["topics"] == whole
        assert counting.count > 80, "some names in each turn"
        counting.count = 0
        watched = await counting.during(side.ask("watch", watcher=1, namespace=NAMESPACE, pattern=".*7"))
        assert watched["topics"] == [name for name in whole if name.endswith("7")]
        assert counting.count > 80

    around(test, None)


def test_a_list_is_made_once_for_all_who_ask_until_something_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    names_of = listing._names

    async def counted(name: str, *more: Any) -> list[str]:  # noqa: ANN401
        made.append(name)
        return await names_of(name, *more)

    monkeypatch.setattr(listing, "_names", counted)

    async def test(side: Side) -> None:
        core: list[str] = ["of-another-protocol"]

        async def names(*, tubes: bool = True) -> list[str]:
            await asyncio.sleep(0)
            return core

        side.core.names = names  # type: ignore[method-assign]
        asked = [side.ask("topics", namespace=NAMESPACE) for _ in range(20)]
        assert [one["topics"] for one in await asyncio.gather(*asked)] == [[T + core[0]]] * 20
        assert len(made) == 1
        for change, there in (
            (side.control.create_new(topic_name(T + "p"), 2), ["p-partition-0", "p-partition-1"]),
            (side.control.delete(topic_name(T + "p-partition-1"), force=False), ["p-partition-0"]),
            (side.control.delete_partitioned(topic_name(T + "p"), force=False), []),
        ):
            await change
            for _ in range(2):
                listed = await side.ask("topics", namespace=NAMESPACE)
                assert listed["topics"] == [T + name for name in (*core, *there)]
        assert len(made) == 4

    around(test, None)


def test_what_workers_had_once_is_not_kept_beside_each_list() -> None:
    class Names(list[str]):
        """One of which can be told whether anybody has it."""

    async def test(side: Side) -> None:
        told: list[weakref.ref[Names]] = []

        async def names(*, tubes: bool = True) -> list[str]:
            found = Names(["of-another-protocol"])
            told.append(weakref.ref(found))
            return found

        side.core.names = names  # type: ignore[method-assign]
        namespaces = [f"public/{i}" for i in range(20)]
        for name in namespaces:
            await side.store.commit({"do": "namespace", "name": name, "policies": {}})
            assert (await side.ask("topics", namespace=name))["topics"] == []
        gc.collect()
        assert sum(one() is not None for one in told) <= 1

    around(test, None)


def test_a_topic_that_comes_or_goes_while_a_watcher_is_told_what_there_is_is_not_missed() -> None:
    async def test(side: Side) -> None:
        await side.control.create_new(topic_name(T + "stays"), 0)
        await side.control.create_new(topic_name(T + "goes"), 0)
        asked, go_on = asyncio.Event(), asyncio.Event()
        names_of = side.control.topics_of_mode

        async def slow(namespace: str, mode: str) -> list[str]:
            found = await names_of(namespace, mode)
            asked.set()
            await go_on.wait()
            return found

        side.control.topics_of_mode = slow  # type: ignore[method-assign]
        watching = asyncio.create_task(side.ask("watch", watcher=1, namespace=NAMESPACE, pattern=".*"))
        await asked.wait()
        await side.control.create_new(topic_name(T + "comes"), 0)
        await side.control.delete(topic_name(T + "goes"), force=False)
        await until(lambda: side.watches._telling is None)
        go_on.set()
        there = [T + "comes", T + "stays"]
        assert await watching == {"topics": there, "hash": await topics_hash(there)}
        assert side.calls.told == [], "it has heard all of that"

    around(test, None)


def test_a_watcher_that_asked_anew_is_told_though_its_first_question_is_refused_later() -> None:
    async def test(side: Side) -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()
        names_of = side.control.topics_of_mode

        async def fails(namespace: str, mode: str) -> list[str]:
            side.control.topics_of_mode = names_of  # type: ignore[method-assign]
            asked.set()
            await go_on.wait()
            raise StoreError("the disk is full")

        side.control.topics_of_mode = fails  # type: ignore[method-assign]
        wanted = {"watcher": 1, "namespace": NAMESPACE, "pattern": ".*"}
        first = asyncio.create_task(side.ask("watch", **wanted))
        await asked.wait()
        assert (await side.ask("watch", **wanted))["topics"] == []
        go_on.set()
        assert (await first)["error"] == "ServiceNotReady"
        await side.control.create_new(topic_name(T + "t"), 0)
        await until(lambda: side.calls.told)
        assert side.calls.told[0][1]["new"] == [T + "t"]
        await side.ask("unwatch", watcher=1)
        assert (side.watches._names, side.watches._size, dict(side.watches._watched)) == (0, 0, {})

    around(test, None)


def catalog_of(names: list[str]) -> bytes:
    """As a worker says it."""
    said = b""
    for name in names:
        figures = ffi.new("struct topic_figures *", {"name_bytes": len(name), "flags": DURABLE})
        said += bytes(ffi.buffer(figures)) + name.encode()
    return said


@pytest.mark.parametrize(
    "then", [["a", "b", "c"], ["a", "b"], ["a", "b", "c", "d"], ["a", "x", "c"], ["x", "b", "c"], []]
)
def test_what_workers_say_again_is_the_list_that_it_was_unless_any_name_is_another(
    then: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since other lists are made of it."""
    first = ["a", "b", "c"]
    monkeypatch.setattr(core_module, "NAMES_S", 0.0)
    versions = iter([(1, 1), (1, 2)])
    workers = cast(Any, SimpleNamespace(attachments=2))

    async def test() -> None:
        engine = SimpleNamespace(workers=2, names_versions=lambda: next(versions), catalog_versions=lambda: (0, 0))
        core = Core(cast(Any, engine), workers)
        says = [first[:2], first[2:]]

        async def ask(worker: int, _kind: int) -> SimpleNamespace:
            return SimpleNamespace(body=catalog_of(says[worker]))

        core._ask = ask  # type: ignore[method-assign, assignment]
        before = await core.names()
        assert before == first
        says = [then[:2], then[2:]]
        found = await core.names()
        assert found == then and (found is before) == (then == first)

    asyncio.run(test())


def test_workers_are_not_asked_again_until_a_version_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "NAMES_S", 0.0)

    async def test() -> None:
        versions, catalogs, asked = [1, 1], [1, 1], 0
        engine = SimpleNamespace(
            workers=2, names_versions=lambda: tuple(versions), catalog_versions=lambda: tuple(catalogs)
        )
        workers = SimpleNamespace(attachments=2)
        core = Core(cast(Any, engine), cast(Any, workers))

        async def ask(worker: int, _kind: int) -> SimpleNamespace:
            nonlocal asked
            asked += 1
            return SimpleNamespace(body=catalog_of([f"{worker}"]))

        async def asks(*, tubes: bool = True) -> bool:
            nonlocal asked
            asked = 0
            assert await core.names(tubes=tubes) == ["0", "1"]
            return asked > 0

        core._ask = ask  # type: ignore[method-assign, assignment]
        assert await asks() and not await asks() and not await asks()
        versions[1] += 1
        assert await asks() and not await asks()
        workers.attachments += 1
        assert await asks() and not await asks(), "who begins anew may come to the same version"
        versions[0] += 1
        assert not await asks(tubes=False), "a tube has come, and nobody asks for tubes"
        assert await asks()
        versions[0] += 1
        catalogs[0] += 1
        assert await asks(tubes=False) and not await asks(tubes=False) and not await asks()

    asyncio.run(test())


def test_what_is_longer_than_a_frame_is_refused_unless_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(side: Side) -> None:
        for i in range(20):
            await side.control.create_new(topic_name(T + f"topic-{i}"), 0)
        whole = await side.ask("topics", namespace=NAMESPACE)
        monkeypatch.setattr(questions, "MAX_TOPICS_BYTES", 500)
        for what in ({"do": "topics"}, {"do": "watch", "watcher": 1, "pattern": ".*"}):
            name = str(what.pop("do"))
            refused = await side.ask(name, namespace=NAMESPACE, **what)
            assert refused["error"] == "NotAllowedError" and "ask for some of them" in refused["reason"]
            known = await side.ask(name, namespace=NAMESPACE, hash=whole["hash"], **what)
            assert known["hash"] == whole["hash"] and known["topics"] == []
            await side.ask("unwatch", watcher=1)
        some = await side.ask("topics", namespace=NAMESPACE, pattern=".*-1")
        assert some["topics"] == [T + "topic-1"]

    around(test, None)


def test_a_watcher_of_more_topics_than_are_kept_is_told_of_them_without_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it asks for the whole list when it comes again."""
    monkeypatch.setattr(watches, "MAX_WATCHED_NAMES", 3)

    async def test(side: Side) -> None:
        wanted = {"namespace": NAMESPACE, "pattern": ".*"}
        await side.ask("watch", watcher=1, **wanted)
        for i in range(5):
            await side.control.create_new(topic_name(T + f"t{i}"), 0)
        await side.control.delete(topic_name(T + "t0"), force=False)
        await until(lambda: side.watches._telling is None)
        new = [name for _, said in side.calls.told for name in said["new"]]
        assert set(new) - {T + "t0"} == {T + f"t{i}" for i in range(1, 5)}
        assert side.calls.told[-1][1]["hash"] == ""
        assert (await side.ask("watch", watcher=2, **wanted))["error"] == "NotAllowedError", "four are too many"
        assert side.watches._names == 0
        await side.ask("unwatch", watcher=1)
        assert not side.watches._watchers and not side.watches._watched

    around(test, None)


def test_many_changes_are_told_in_messages_of_a_size_of_which_the_last_has_the_hash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watches, "TOLD_NAMES", 3)
    monkeypatch.setattr(watches, "MAX_NEWS", 4)  # beyond which topics are made as quickly as it is told
    monkeypatch.setattr(watches, "TOLD_AFTER_S", 0.01)

    async def test(side: Side) -> None:
        await side.ask("watch", watcher=1, namespace=NAMESPACE, pattern="public/default/p")
        await side.control.create_new(topic_name(T + "p"), 8)
        await side.control.create_new(topic_name(T + "q"), 8)
        await until(lambda: side.watches._telling is None)
        said = [one for _, one in side.calls.told]
        parts = sorted(T + f"p-partition-{i}" for i in range(8))
        assert [one["new"] for one in said] == [parts[:3], parts[3:6], parts[6:]]
        assert [one["hash"] for one in said] == ["", "", await topics_hash(parts)]
        side.calls.told.clear()
        for i in range(20):
            await side.control.create_new(topic_name(T + f"p-partition-{i + 8}"), 0)
            assert side.watches._news_names <= 4 + 1
        await until(lambda: side.watches._telling is None)
        assert len([name for _, one in side.calls.told for name in one["new"]]) == 20

    around(test, None)


def test_a_change_is_told_at_once_and_those_that_come_right_behind_it_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "TOLD_AFTER_S", 3600)

    async def test(side: Side) -> None:
        await side.ask("watch", watcher=1, namespace=NAMESPACE, pattern=".*")
        await side.control.create_new(topic_name(T + "first"), 0)
        await until(lambda: side.calls.told)
        for name in ("second", "third"):
            await side.control.create_new(topic_name(T + name), 0)
        assert [said["new"] for _, said in side.calls.told] == [[T + "first"]]
        assert [news.new for news in side.watches._news] == [[T + "second"], [T + "third"]]

    around(test, None)


def test_who_has_waited_to_tell_of_a_change_is_not_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "MAX_NEWS", 0)

    async def test(side: Side) -> None:
        changed, heard = side.watches.changed, side.watches._heard
        await side.control.create_new(topic_name(T + "t"), 0)
        await side.ask("watch", watcher=1, namespace=NAMESPACE, pattern=".*")
        await changed(NAMESPACE, [T + "other"], [])
        told = [asyncio.create_task(changed(NAMESPACE, [], [T + "t"]))]
        await asyncio.sleep(0)
        there_is_room = heard.set

        def just_then() -> None:
            if len(told) == 1:
                told.append(asyncio.create_task(changed(NAMESPACE, [T + "t"], [])))
            there_is_room()

        monkeypatch.setattr(heard, "set", just_then)
        await until(lambda: len(told) == 2)
        await asyncio.gather(*told)
        await until(lambda: side.watches._telling is None)
        assert side.watches._watchers[0, 1].names == {T + "t", T + "other"}

    around(test, None)


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 5000])
def test_names_are_sorted_in_turns_as_at_once(count: int) -> None:
    names = [f"{i * 7919 % 10007:x}" for i in range(count)]
    assert asyncio.run(sorted_in_turns(names)) == sorted(names)


PATTERNS = """
import os, random
from mq_shards.gateway.pulsar.watches import Matcher

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")

names = ["public/default/" + "".join(random.Random(i).choices("ab", k=150)) for i in range(60)]

def used(first, last):
    found = [Matcher(f"public/default/.*a[ab]{{12}}x{i}") for i in range(first, last)]
    for matches in found:
        assert not any(map(matches.base, names))
    return found

kept = [used(0, 20)]
before = resident()
kept.append(used(20, 276))
print((resident() - before) // 256)
"""


def test_what_watched_patterns_remember_of_names_has_a_limit() -> None:
    """Patterns of which RE2 would make states without end, and keep them: four thousand of them are watched at most."""
    ran = subprocess.run([sys.executable, "-c", PATTERNS], capture_output=True, text=True, check=True, timeout=120)
    assert 4 << 10 < int(ran.stdout) < 28 << 10, "bytes of each; of a program and nothing else it would be less"
