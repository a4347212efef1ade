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


def raw(broker: Broker, query: str) -> bytes:
    return call(broker.server.http_port, "GET", f"/stats?include_mem=false{query}").body


def text(broker: Broker) -> str:
    return raw(broker, "").decode()


def test_what_readers_have_not_read_is_in_the_stats(tmp_path: Path) -> None:
    with started(tmp_path / "data") as broker:
        broker.publish(*(("orders", b"%d" % n) for n in range(10)), ("notes", b"x"))
        assert call(broker.server.http_port, "POST", "/channel/create?topic=orders&channel=ch").status == 200
        before = stats(broker)
        bytes_before = [raw(broker, f"&format=json{one}") for one in ("", "&topic=notes", "&topic=orders&channel=ch")]
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
        assert raw(broker, "&format=json&topic=notes") == bytes_before[1]
        assert raw(broker, "&format=json&topic=orders&channel=ch") == bytes_before[2]
        shown = text(broker)
        assert f"      <reader {'spark':<18}> depth: 3     next-seq: 7\n" in shown
        assert shown.index("[orders ") < shown.index("[ch ") < shown.index("<reader late ") and "gone" not in shown
        assert "<" not in raw(broker, "&topic=orders&channel=ch").decode()
        counted = broker.json("/v1/readers")["readers"]
        assert isinstance(counted, list)
        assert [one["unread"]["orders"] for one in counted] == [one["depth"] for one in both]
        broker.publish(("orders", b"y"))
        assert [one["depth"] for one in stats(broker, "&topic=orders")[0]["readers"]] == [11, 4]
        for name in ("spark", "late"):
            broker.json(f"/v1/readers/{name}", "DELETE")
        assert raw(broker, "&format=json&topic=notes") == bytes_before[1]
        assert not any("readers" in topic for topic in stats(broker)) and "<" not in text(broker)


def test_stats_are_there_though_a_reader_cannot_be_read_and_where_there_can_be_none(tmp_path: Path) -> None:
    with started(tmp_path / "data") as broker:
        broker.publish(("orders", b"x"))
        (tmp_path / "data" / "readers").mkdir(exist_ok=True)
        before = raw(broker, "&format=json")
        torn = tmp_path / "data" / "readers" / "torn.json"
        broker.json("/v1/readers/whole", "PUT", b'{"orders": 0}')
        for content, cause in (("{", "torn.json is damaged"), ('{"version": 9}', "torn.json is not of version")):
            torn.write_text(content)
            assert [raw(broker, "&format=json") for _ in range(3)] == [before] * 3
            assert "<" not in text(broker)
            (line,) = [line for line in broker.server.said().splitlines() if cause in line and "/stats" in line]
            assert "without named readers" in line
        torn.unlink()
        assert [one["reader_name"] for one in stats(broker)[0]["readers"]] == ["whole"]
    (tmp_path / "data" / "erased.json").write_text("{")
    with started(tmp_path / "data") as broker:
        assert "readers" not in stats(broker)[0] and "readers" not in stats(broker)[0]
        for _ in range(2):
            broker.json("/v1/topics", status=503)
        said = [line for line in broker.server.said().splitlines() if "erased.json cannot be read" in line]
        assert ["/stats" in line for line in said] == [True, False] and "cannot serve GET '/v1/topics'" in said[1]
        assert "Traceback" not in broker.server.said()
    with started(None) as broker:
        broker.publish(("orders", b"x"))
        assert "readers" not in stats(broker)[0]
