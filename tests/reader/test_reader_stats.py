"""Named readers in NSQ's /stats, which is nsqd's own where there are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.nsq.api import call
from tests.reader.broker import Broker, started


def stats(broker: Broker, query: str = "") -> list[dict[str, Any]]:
    reply = call(broker.server.http_port, "GET", f"/stats?format=json&include_mem=false{query}")
    assert reply.status == 200, reply
    topics: list[dict[str, Any]] = reply.json["topics"]
    return topics


def text(broker: Broker) -> str:
    return call(broker.server.http_port, "GET", "/stats?include_mem=false").body.decode()


def test_what_readers_have_not_read_is_in_the_stats(tmp_path: Path) -> None:
    with started(tmp_path / "data") as broker:
        broker.publish(*(("orders", b"%d" % n) for n in range(10)), ("notes", b"x"))
        before = stats(broker)
        assert [topic["topic_name"] for topic in before] == ["notes", "orders"]
        assert not any("readers" in topic for topic in before) and "<" not in text(broker)
        for name, seqs in (("spark", {"orders": 7, "gone": 3}), ("late", {"orders": 0})):
            broker.json(f"/v1/readers/{name}", "PUT", json.dumps(seqs).encode())
        both = [
            {"reader_name": "late", "depth": 10, "next_seq": 0}, {"reader_name": "spark", "depth": 3, "next_seq": 7},
        ]  # fmt: skip
        notes, orders = stats(broker)
        assert (notes, orders) == (before[0], before[1] | {"readers": both})
        assert stats(broker, "&topic=orders") == [orders]
        assert "readers" not in stats(broker, "&topic=notes")[0]
        assert f"      <{'spark':<25}> depth: 3     next-seq: 7\n" in text(broker)
        for name in ("spark", "late"):
            broker.json(f"/v1/readers/{name}", "DELETE")
        assert stats(broker) == before


def test_stats_are_there_though_a_reader_cannot_be_read_and_where_there_can_be_none(tmp_path: Path) -> None:
    with started(tmp_path / "data") as broker:
        broker.publish(("orders", b"x"))
        (tmp_path / "data" / "readers").mkdir(exist_ok=True)
        (tmp_path / "data" / "readers" / "torn.json").write_text("{")
        assert [topic["topic_name"] for topic in stats(broker)] == ["orders"]
        assert "torn.json is damaged" in broker.server.said()
    with started(None) as broker:
        broker.publish(("orders", b"x"))
        assert "readers" not in stats(broker)[0]
