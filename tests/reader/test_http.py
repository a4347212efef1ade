"""The HTTP API for data pipelines, on a broker of several processes."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nsq.api import call, post
from tests.nsq.servers import HOST
from tests.reader.broker import Broker, encode, section, started
from tests.reader.disk import Sent, decode_runs, messages_in
from tests.servers import wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Use topics of your own."""
    with started(tmp_path_factory.mktemp("data")) as broker:
        yield broker


def test_what_is_published_is_read_whatever_the_answers_size(broker: Broker) -> None:
    rng = random.Random(5)
    names = [f"mixed-{n}" for n in range(7)]
    messages = [(rng.choice(names), rng.randbytes(rng.choice((0, 1, 100, 3000)))) for _ in range(1000)]
    for start in range(0, len(messages), 500):
        reply = broker.publish(*messages[start : start + 500])
        assert (reply.status, reply.json) == (200, {"published": 500})
    for name in names:
        bodies = [body for topic, body in messages if topic == name]
        for max_bytes in (1000, 100_000, 1 << 24):
            sent = broker.read_all(name, max_bytes=max_bytes)
            assert [s.body for s in sent] == bodies
            assert [s.seq for s in sent] == list(range(len(bodies)))
        topic = broker.topic(name)
        assert (topic["earliest"], topic["complete"], topic["latest"]) == (0, 0, len(bodies))
        assert topic["records"] == len(bodies) and topic["last_timestamp_ns"] <= time.time_ns()


def test_large_runs_and_scattered_records_of_one_answer(broker: Broker) -> None:
    """Some go out by sendfile, others are gathered."""
    big, small = [b"%07d" % n * 15 for n in range(30000)], [b"small %d" % n for n in range(500)]
    broker.publish(*(("both", body) for body in big))
    for body in small[:250]:
        broker.publish(("both", body), ("beside", b"x"))
    broker.publish(*(("both", body) for body in big))
    for body in small[250:]:
        broker.publish(("both", body), ("beside", b"x"))
    sent, seqs = broker.records("both", 0, max_bytes=64 << 20)
    assert [s.body for s in sent] == [*big, *small[:250], *big, *small[250:]]
    assert seqs == {"earliest": 0, "complete": 0, "latest": 60500, "next": 60500}
    sent, seqs = broker.records("both", 30100, to=30110)
    assert [s.body for s in sent] == small[100:110] and seqs["next"] == 30110


def records_of_many(
    broker: Broker, ranges: list[tuple[str, int, int]], **more: int
) -> list[tuple[dict[str, Any], list[Sent]] | None]:
    reply = broker.call("POST", "/v1/records", json.dumps({"ranges": ranges, **more}).encode())
    assert reply.status == 200, reply
    at = int(reply.headers["x-parts"])
    found: list[tuple[dict[str, Any], list[Sent]] | None] = []
    for part in json.loads(reply.body[:at]):
        if part is None:
            found.append(None)
            continue
        found.append((part, decode_runs(reply.body[at : at + part["bytes"]])))
        at += part["bytes"]
    assert at == len(reply.body)
    return found


def test_many_ranges_are_read_with_one_call(broker: Broker) -> None:
    rng = random.Random(6)
    names = [f"small-{n}" for n in range(200)]
    sizes = (0, 1, 100, 3000, 100_000)
    messages = [(rng.choice(names), rng.randbytes(rng.choice(sizes))) for _ in range(1000)]
    for start in range(0, 1000, 100):
        assert broker.publish(*messages[start : start + 100]).status == 200
    sent = {name: [body for topic, body in messages if topic == name] for name in names}
    sent = {name: bodies for name, bodies in sent.items() if bodies}
    left = [(name, 0, len(bodies)) for name, bodies in sent.items()]
    calls, found = 0, dict[str, list[bytes]]()
    while left:
        parts = records_of_many(broker, left, max_bytes=rng.choice((1, 50_000, 300_000, 8 << 20)))
        calls += 1
        for (name, _, until), part in zip(list(left), parts, strict=False):
            assert part is not None
            head, records = part
            found.setdefault(name, []).extend(record.body for record in records)
            assert (head["earliest"], head["complete"], head["latest"]) == (0, 0, len(sent[name]))
            assert head["damage"] == "" and len(found[name]) == head["next"] and head["incarnation"]
            left[0] = (name, head["next"], until)
            if head["next"] < until:
                break
            left.pop(0)
    assert found == sent and calls < 200


def test_of_many_ranges_some_may_be_empty_unknown_or_of_one_topic(broker: Broker) -> None:
    broker.publish(*(("twice", b"%d" % n) for n in range(10)))
    ranges = [("twice", 8, 100), ("of nobody", 0, 5), ("twice", 0, 2), ("twice", 10, 10), ("twice", 5, 3)]
    parts = records_of_many(broker, ranges)
    assert parts.pop(1) is None
    assert [[s.seq for s in part[1]] for part in parts if part] == [[8, 9], [0, 1], [], []]


def test_a_message_larger_than_asked_for_comes_alone_among_many(broker: Broker) -> None:
    for name in ("large-a", "large-b"):
        broker.publish((name, bytes(50_000)), (name, b"x"))
    asked = [("large-a", 0, 2), ("large-b", 0, 2)]
    (one,) = records_of_many(broker, asked, max_bytes=1000)
    assert one is not None and [len(s.body) for s in one[1]] == [50_000] and one[0]["next"] == 1


def test_times_lead_to_seqs(broker: Broker) -> None:
    broker.publish(("times", b"one"))
    between = time.time_ns()
    broker.publish(("times", b"two"), ("times", b"three"))
    assert broker.json("/v1/offsets?topic=times&timestamp_ns=0") == {"seq": 0, "until": 0}
    assert broker.json(f"/v1/offsets?topic=times&timestamp_ns={between}") == {"seq": 1, "until": 1}
    assert broker.json(f"/v1/offsets?topic=times&timestamp_ns={time.time_ns() + 10**9}") == {"seq": 3, "until": 3}


def test_messages_of_other_protocols_are_there_and_published_ones_are_consumed(broker: Broker) -> None:
    post(broker.server, "/pub?topic=nsq-made", b"through nsqd's API")
    assert [s.body for s in broker.read_all("nsq-made")] == [b"through nsqd's API"]
    post(broker.server, "/topic/create?topic=v1-made")
    post(broker.server, "/channel/create?topic=v1-made&channel=c")
    broker.publish(("v1-made", b"for a channel"))
    stats = call(broker.server, "GET", "/stats?format=json&topic=v1-made").json["topics"][0]
    assert (stats["message_count"], stats["channels"][0]["depth"]) == (1, 1)


def _wrong(messages: int = 3, zero: int = 0, bytes: int = 17) -> bytes:
    """Three messages of 5 bytes in all, and a head that says something else."""
    return struct.pack("<HHII", 1, zero, messages, bytes) + section("t", b"a", b"bb", b"cc")[12:]


def test_of_a_body_with_something_wrong_nothing_is_published(broker: Broker) -> None:
    assert broker.publish(("wrong", b"x")).status == 200
    reply = broker.call("POST", "/v1/publish", section("wrong", b"y") + section("wrong", b"z")[:-1])
    assert reply.status == 400
    assert [s.body for s in broker.read_all("wrong")] == [b"x"]


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "said"),
    [
        ("GET", "/none", b"", 404, "there is no /none"),
        ("GET", "/v1/none", b"", 404, "there is no"),
        ("POST", "/v1/topics", b"", 405, "takes GET"),
        ("GET", "/v1/publish", b"", 405, "takes POST"),
        ("PATCH", "/v1/readers/x", b"", 405, "takes GET, PUT, DELETE"),
        ("GET", "/v1/records?topic=none&from=0", b"", 404, "no topic none"),
        ("GET", "/v1/records?topic=%E4%BD%A0&from=0", b"", 404, "no topic"),
        ("GET", "/v1/records?topic=%FF&from=0", b"", 400, "decoded"),
        ("GET", "/v1/records?from=0", b"", 400, "which topic"),
        ("GET", "/v1/records?topic=t", b"", 400, "from is a whole number"),
        ("GET", "/v1/records?topic=t&from=-1", b"", 400, "from is"),
        ("GET", "/v1/records?topic=t&from=0&to=x", b"", 400, "to is"),
        ("GET", "/v1/records?topic=t&from=9223372036854775808", b"", 400, "from is"),
        ("GET", "/v1/records?topic=t&from=0&max_bytes=1e3", b"", 400, "max_bytes is"),
        *(
            ("POST", "/v1/records", said, 400, "[topic, from, to]")
            for said in (
                b"",
                b"[]",
                b"{}",
                b'{"ranges": 1}',
                b'{"ranges": [["t", 0]]}',
                b'{"ranges": [["t", -1, 2]]}',
                b'{"ranges": [["", 0, 2]]}',
                b'{"ranges": [["t", 0, 1e3]]}',
                b'{"ranges": [[1, 0, 1]]}',
                b'{"ranges": [["t", 0, 1]], "max_bytes": true}',
                b"[" * 200_000,
            )
        ),
        ("POST", "/v1/records", b'{"ranges": []}', 400, "from 1 to 1024"),
        ("POST", "/v1/records", json.dumps({"ranges": [["t", 0, 1]] * 1025}).encode(), 400, "from 1 to 1024"),
        ("GET", "/v1/offsets?topic=t", b"", 400, "timestamp_ns is"),
        ("GET", "/v1/offsets?topic=none&timestamp_ns=0", b"", 404, "no topic none"),
        ("POST", "/v1/publish", b"\1", 400, "in the middle"),
        ("POST", "/v1/publish", encode([("t", b"x")])[:-1], 400, "in the middle"),
        ("POST", "/v1/publish", encode([("", b"x")]), 400, "not a topic's name"),
        ("POST", "/v1/publish", encode([("a\nb", b"x")]), 400, "not a topic's name"),
        ("POST", "/v1/publish", encode([("a" * 1025, b"x")]), 400, "1024 bytes at most"),
        ("POST", "/v1/publish", encode([("a" * 1015 + "#ephemeral", b"x")]), 400, "1024 bytes at most"),
        ("POST", "/v1/staged/long?at=0", encode([("a" * 1025, b"x")]), 400, "1024 bytes at most"),
        ("PUT", "/v1/writers/w", b"[" * 200_000, 400, "not JSON"),
        ("PUT", "/v1/readers/x", b"[" * 200_000, 400, "not JSON"),
        ("PUT", "/v1/readers/x", b'{"a":' * 200_000, 400, "not JSON"),
        ("POST", "/v1/publish", encode([("t", b"x" * ((5 << 20) + 1))]), 400, "more than 5242880"),
        ("POST", "/v1/publish", section("t", b"x" * (1 << 19), b"x" * (1 << 19)), 400, "or one message"),
        ("POST", "/v1/publish", section("t"), 400, "any messages"),
        ("POST", "/v1/publish", _wrong(messages=2), 400, "does not hold 2 messages"),
        ("POST", "/v1/publish", _wrong(messages=4), 400, "does not hold 4 messages"),
        ("POST", "/v1/publish", _wrong(bytes=7), 400, "does not hold"),
        ("POST", "/v1/publish", _wrong(zero=4), 400, "no section begins"),
        ("POST", "/v1/publish", _wrong(zero=1), 400, "has not the headers"),
        ("POST", "/v1/publish", _wrong(zero=2), 400, "no section begins"),
        ("PUT", "/v1/readers/x", b"{", 400, "not JSON"),
        ("PUT", "/v1/readers/x", b"\xff", 400, "not JSON"),
        ("PUT", "/v1/readers/x", b"[]", 400, "a reader says"),
        ("PUT", "/v1/readers/..", b"{}", 400, "name"),
        ("PUT", "/v1/readers/a%2Fb", b"{}", 400, "name"),
        ("GET", "/v1/readers/nobody", b"", 404, "no reader nobody"),
        ("DELETE", "/v1/readers/nobody", b"", 404, "no reader nobody"),
    ],
)
def test_what_cannot_be_done_is_said(
    broker: Broker, method: str, target: str, body: bytes, status: int, said: str
) -> None:
    reply = broker.call(method, target, body)
    assert (reply.status, said in reply.json["error"]) == (status, True), reply


def test_a_body_larger_than_allowed_is_refused(broker: Broker) -> None:
    connection = http.client.HTTPConnection(HOST, broker.port, timeout=60)
    with contextlib.closing(connection):
        connection.putrequest("POST", "/v1/publish")
        connection.putheader("Content-Length", str(1 << 40))
        connection.endheaders()
        assert connection.getresponse().status == 413


def test_all_survives_kill_and_another_number_of_workers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    bodies = [b"%d" % n for n in range(2000)]
    names = [f"topic-{n}" for n in range(10)]
    with started(data) as broker:
        assert broker.publish(*((name, body) for body in bodies[:1000] for name in names)).status == 200
        assert broker.json("/v1/readers/spark", "PUT", b'{"topic-1": 7}')["topics"] == {"topic-1": 7}
        broker.server.kill()
    with started(data, "--workers", "1") as broker:
        assert broker.publish(*((name, body) for body in bodies[1000:] for name in names)).status == 200
        for name in names:
            assert [(s.seq, s.body) for s in broker.read_all(name)] == list(enumerate(bodies))
        found = broker.json("/v1/readers")["readers"]
        assert isinstance(found, list)
        assert [(r["name"], r["topics"], r["unread"]) for r in found] == [("spark", {"topic-1": 7}, {"topic-1": 1993})]
        assert {name: len(seqs) for name, seqs in messages_in(data).items()} == dict.fromkeys(names, 2000)


def test_while_a_shards_folder_is_away_that_is_said_once_and_then_all_goes_on(tmp_path: Path) -> None:
    with started(tmp_path / "data") as broker:
        broker.publish(("t", b"x"))
        there = tmp_path / "data" / f"shard-{broker.topic('t')['shard']:04}"
        there.rename(tmp_path / "away")
        for target in ("/v1/topics", "/v1/records?topic=t&from=0", "/v1/topics"):
            assert str(there) in str(broker.json(target, status=503)["error"])
        assert broker.server.said().count(str(there)) == 1
        (tmp_path / "away").rename(there)
        assert [sent.body for sent in broker.read_all("t")] == [b"x"]


def test_retention_keeps_what_a_reader_has_not_read(tmp_path: Path) -> None:
    body = b"x" * (1 << 20)

    def fill(name: str) -> None:
        """A segment and more, all of it finished with."""
        for _ in range(8):
            assert broker.publish(*[(name, body)] * 10).status == 200
        post(broker.server, f"/topic/empty?topic={name}")

    with started(tmp_path / "data", "--workers", "1", "--shards", "2", "--set", "log.retention-hours=0") as broker:
        held = "held"
        free = next(name for name in map(str, range(9)) if broker.publish((name, b"")) and shard(broker, name) == 1)
        held = next(name for name in "abcdefgh" if broker.publish((name, b"")) and shard(broker, name) == 0)
        broker.json("/v1/readers/spark", "PUT", json.dumps({held: 3}).encode())
        fill(held)
        fill(free)
        wait_until(lambda: broker.topic(free)["earliest"] > 0, "retention has dropped what nobody reads")
        assert broker.topic(held)["earliest"] == 0
        assert [s.seq for s in broker.records(held, 3, to=5)[0]] == [3, 4]
        fill(free)  # as much again: another round of retention has passed by
        before = broker.topic(free)["earliest"]
        wait_until(lambda: broker.topic(free)["earliest"] > before or before > 81, "and again")
        assert broker.topic(held)["earliest"] == 0
        broker.json("/v1/readers/spark", "PUT", json.dumps({held: 81}).encode())
        wait_until(lambda: broker.topic(held)["earliest"] > 3, "what was read goes")
        broker.json("/v1/readers/spark", "DELETE")
        assert broker.json("/v1/readers") == {"readers": []}


def shard(broker: Broker, name: str) -> int:
    return broker.topic(name)["shard"]


def test_in_memory_there_is_nothing_to_read_but_publishing_works() -> None:
    with started(None) as broker:
        assert broker.publish(("t", b"x")).json == {"published": 1}
        for method, target in (
            ("GET", "/v1/topics"), ("GET", "/v1/records?topic=t&from=0"), ("GET", "/v1/offsets?topic=t&timestamp_ns=0"),
            ("GET", "/v1/readers"), ("PUT", "/v1/readers/x"),
        ):  # fmt: skip
            assert "--memory" in broker.json(target, method, b"{}", status=503)["error"]  # type: ignore[operator]


def test_a_broker_says_which_it_is_and_refuses_what_is_meant_for_another(broker: Broker) -> None:
    identity = broker.json("/v1/broker")["broker"]
    broker.publish(("identified", b"x"))
    assert broker.json("/v1/topics")["broker"] == identity

    def meaning(who: object) -> int:
        connection = http.client.HTTPConnection(HOST, broker.port, timeout=60)
        connection.request("GET", "/v1/topics", headers={"X-Broker": str(who)})
        return connection.getresponse().status

    assert meaning(identity) == 200
    assert meaning("another") == 412


def test_a_broker_is_known_by_its_data_directory_and_a_log_by_its_beginning(tmp_path: Path) -> None:
    def look() -> tuple[object, str]:
        with started(tmp_path / "data", "--workers=1") as broker:
            broker.publish(("t", b"x"))
            reply = broker.call("GET", "/v1/records?topic=t&from=0")
            assert reply.headers["x-incarnation"] == broker.topic("t")["incarnation"]
            return broker.json("/v1/broker")["broker"], reply.headers["x-incarnation"]

    first = look()
    assert json.loads((tmp_path / "data" / "meta.json").read_text())["id"] == first[0]
    (tmp_path / "data").rename(tmp_path / "moved")
    (tmp_path / "moved").rename(tmp_path / "data")
    assert look() == first
    for segment in (tmp_path / "data").glob("shard-*/*"):
        segment.unlink()
    broker, incarnation = look()
    assert broker == first[0] and incarnation != first[1]


def test_in_memory_each_start_is_a_broker_of_its_own() -> None:
    found = []
    for _ in range(2):
        with started(None) as broker:
            found.append(broker.json("/v1/broker")["broker"])
    assert len(set(found)) == 2


def test_a_reader_is_its_owners_until_another_takes_it_over(broker: Broker) -> None:
    def commit(query: str, seq: int) -> int:
        return broker.call("PUT", f"/v1/readers/owned{query}", json.dumps({"t": seq}).encode()).status

    assert commit("", 1) == commit("?owner=one", 2) == commit("?owner=one", 3) == 200
    assert commit("", 9) == commit("?owner=other", 9) == 409
    assert broker.json("/v1/readers/owned")["topics"] == {"t": 3}
    assert commit("?owner=other&begin=1", 4) == 200
    assert commit("?owner=one", 9) == 409
    assert commit("?owner=not%20a%20name", 9) == 400
