"""What strangers may describe in the catalog has one limit, whatever of it is large; what goes makes room."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.gateway.pulsar import store
from mq_shards.gateway.pulsar.catalog import Catalog, OutOfPlaceError, Topic, encode, topic_record
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.store import Store

from tests.pulsar.control_side import Run, Side, T

KINDS = ("cluster", "tenant", "namespace", "topic", "no-partition")


def described(catalog: Catalog) -> int:
    return sum(len(encode(record)) for record in catalog.records() if record["do"] in KINDS)


def any_record(chance: random.Random) -> dict[str, Any]:
    namespace, topic = f"public/{chance.randrange(2)}", f"persistent://public/0/{chance.randrange(4)}"
    some = {"p" * chance.randrange(9): "v" * chance.randrange(200)}
    records: list[dict[str, Any]] = [
        {"do": "cluster", "name": "c", "data": some},
        {"do": "no-cluster", "name": "c"},
        {"do": "tenant", "name": "t", "data": some},
        {"do": "no-tenant", "name": "t"},
        {"do": "namespace", "name": namespace, "policies": some},
        {"do": "no-namespace", "name": namespace},
        {"do": "no-topic", "namespace": namespace, "name": topic},
        *(topic_record(namespace, topic, Topic(chance.randrange(3), some)) for _ in range(3)),
        *(
            {"do": do, "namespace": namespace, "name": f"{topic}-partition-{chance.randrange(2)}"}
            for do in ("no-partition", "no-partition", "partition")
        ),
    ]
    return chance.choice(records)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_counted_whatever_comes_and_goes(seed: int) -> None:
    chance, catalog = random.Random(seed), Catalog.new()
    refused = 0
    for _ in range(600):
        try:
            catalog.apply(any_record(chance))
        except OutOfPlaceError:
            refused += 1
        assert catalog.described_bytes == described(catalog)
    assert 0 < refused < 500


def test_beyond_the_limit_nothing_more_is_described_until_something_has_gone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(side: Side) -> None:
        control, most = side.control, side.store.catalog.described_bytes + 10_000
        monkeypatch.setattr(store, "MAX_DESCRIBED_BYTES", most)
        large = {"p": "x" * 3900}
        for name in "ab":
            await control.create_new(topic_name(T + name), 0, large)
        with pytest.raises(RefusedError, match="is more than"):
            await control.create_new(topic_name(T + "c"), 0, large)
        await control.create_new(topic_name(T + "c"), 0)
        for change in (
            lambda: control.set_properties(topic_name(T + "c"), large),
            lambda: control.set_policies("public/default", {"properties": large}),
            lambda: side.store.commit({"do": "tenant", "name": "t", "data": large}),
        ):
            with pytest.raises(RefusedError, match="is more than"):
                await change()
        await control.set_properties(topic_name(T + "a"), {})
        await control.set_properties(topic_name(T + "c"), large)
        assert side.store.catalog.described_bytes == described(side.store.catalog) <= most

    run(test)


def test_what_is_on_disk_is_served_in_any_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        first = Store(tmp_path)
        await first.open()
        await first.commit(topic_record("public/default", T + "a", Topic(0, {"p": "x" * 4000})))
        await first.close()
        monkeypatch.setattr(store, "MAX_DESCRIBED_BYTES", 1000)
        again = Store(tmp_path)
        await again.open()
        assert again.catalog.described_bytes == described(again.catalog) > 4000
        with pytest.raises(RefusedError):
            await again.commit(topic_record("public/default", T + "b", Topic()))
        await again.commit({"do": "no-topic", "namespace": "public/default", "name": T + "a"})
        await again.commit(topic_record("public/default", T + "b", Topic()))
        await again.close()

    asyncio.run(test())
