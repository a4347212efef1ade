"""Figures of topics for /metrics: names that no two share, and ages in turn. See gateway/metrics_topics.py."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from mq_shards.gateway import metrics_topics
from mq_shards.gateway.broker import Broker
from mq_shards.gateway.catalog import Channel, Topic
from mq_shards.gateway.metrics import _metric
from mq_shards.gateway.metrics_topics import choose, families, look_at_ages


class SlowBroker:
    """Two workers; the first does not answer of `stuck`, and all else takes a while."""

    def __init__(self, takes_s: float, stuck: str = "") -> None:
        self._takes_s = takes_s
        self._stuck = stuck

    def worker_of(self, topic: str) -> int:
        return 0 if topic < "t5" else 1

    async def oldest_ns(self, topic: str, channel: str | None = None) -> int | None:
        await asyncio.sleep(60 if topic == self._stuck else self._takes_s)
        return None


TOPICS = [Topic(f"t{n}", 0, 1, 1, 1, 0) for n in range(10)]


def asked(broker: SlowBroker, begin: dict[int, tuple[str, ...]]) -> set[str]:
    chosen = choose(TOPICS, 10)
    asyncio.run(look_at_ages(cast(Broker, broker), chosen, begin))
    return {topic for topic, *_ in chosen.ages_s}


def test_each_scrape_asks_first_what_the_one_before_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_topics, "AGES_S", 0.3)
    begin: dict[int, tuple[str, ...]] = {}
    broker = SlowBroker(0.1)
    first = asked(broker, begin)
    assert len(first) < len(TOPICS)
    seen = set(first)
    for _ in range(20):
        seen |= asked(broker, begin)
    assert seen == {topic.name for topic in TOPICS}


def test_what_is_not_answered_does_not_keep_the_others_waiting() -> None:
    assert asked(SlowBroker(0.0, stuck="t0"), {}) == {f"t{n}" for n in range(1, 10)}


def test_a_series_is_there_once_whatever_bytes_a_name_has() -> None:
    names = ["caf\xc3\xa9", "caf\xe9", "caf\\xe9", "caf\\x5cxe9", "caf\\", "caf\xe9\\"]
    found = families(choose([Topic(name, 0, 0, 1, 1, 0) for name in names], 10), _metric)
    labels = [s.labels["topic"] for family in found for s in family.samples if family.name.endswith("topic_depth")]
    assert sorted(labels) == sorted(["café", r"caf\xe9", r"caf\x5cxe9", r"caf\x5cx5cxe9", "caf\\", r"caf\xe9\x5c"])


def test_topics_that_nobody_consumes_do_not_leave_out_those_in_use() -> None:
    channel = Channel("c", 0, 1, 0, 0, 0, 1, 0, 0)
    unread = [Topic(f"z{n}", 0, 1, 1, 1, 0) for n in range(10)]
    consumed = Topic("consumed", 0, 0, 1, 1, 0, [channel])
    waiting = Topic("waiting", 0, 1, 1, 1, 1)  # a tube with a job
    worked_off = Topic("worked-off", 0, 0, 1, 1, 0, reserves=1)
    found = choose([*unread, consumed, waiting, worked_off], 4)
    assert [topic.name for topic in found.topics] == ["consumed", "waiting", "worked-off", "z9"]
    assert found.channels == [("consumed", channel)]
    assert found.hidden_topics == 9
    assert [topic.name for topic in choose([consumed, Topic("more", 0, 2, 2, 2, 0)], 1).topics] == ["more"]
