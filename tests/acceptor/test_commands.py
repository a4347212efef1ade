"""What a command becomes, however its bytes come, and what becomes of a status."""

from __future__ import annotations

import contextlib
import os
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acceptor.bench import (
    BURY,
    CANCELLED,
    DEADLINE_SOON,
    DELETE,
    FAILED,
    FOREVER,
    KICK,
    KICK_ID,
    LIST,
    NO_SPACE,
    NONE,
    NOT_FOUND,
    OK,
    PAUSE,
    PEEK_BURIED,
    PEEK_DELAYED,
    PEEK_ID,
    PEEK_READY,
    PROBE,
    PUBLISH,
    RELEASE,
    RESERVE,
    RESERVE_ID,
    SECOND,
    SHARDS,
    STATS_ID,
    STATS_TOPIC,
    TIMED_OUT,
    TOUCH,
    Bench,
    FakeWorker,
    Request,
)


def test_put_becomes_a_publish_whose_id_tells_its_shard_and_rises(duo: Bench) -> None:
    names = [duo.name_at(0), duo.name_at(1), duo.name_at(0, 1)]
    before = 0
    for name in names:
        client = duo.quiet_client(name)
        worker = duo.acceptor.worker_of_name(name)
        client.send(b"put 7 2 3 5\r\nhello\r\n")
        request = duo.one(worker)
        assert (request.kind, request.pri, request.delay_ns, request.ttr_ns) == (PUBLISH, 7, 2 * SECOND, 3 * SECOND)
        assert request.body == b"hello"
        assert request.id % SHARDS % 2 == worker
        assert request.id > before
        before = request.id
        duo.answer(worker, request)
        assert client.received() == b"INSERTED %d\r\n" % request.id


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (b"reserve", {"kind": RESERVE, "delay_ns": FOREVER}),
        (b"reserve-with-timeout 0", {"kind": RESERVE, "delay_ns": 0}),
        (b"reserve-with-timeout 7 whatever", {"kind": RESERVE, "delay_ns": 7 * SECOND}),
        (b"reserve-with-timeout  2147483647", {"kind": RESERVE, "delay_ns": 2147483647 * SECOND}),
        (b"reserve-with-timeout -1", {"kind": RESERVE, "delay_ns": FOREVER}),
        (b"reserve-with-timeout 4294967297", {"kind": RESERVE, "delay_ns": SECOND}),
        (b"reserve-with-timeout soon", {"kind": RESERVE, "delay_ns": 0}),
        (b"reserve-job 77", {"kind": RESERVE_ID, "id": 77}),
        (b"delete 18446744073709551615", {"kind": DELETE, "id": (1 << 64) - 1}),
        (b"delete   5", {"kind": DELETE, "id": 5}),
        (b"release 9 4294967295 0", {"kind": RELEASE, "id": 9, "pri": (1 << 32) - 1, "delay_ns": 0}),
        (b"release 9 0 4294967295", {"kind": RELEASE, "id": 9, "pri": 0, "delay_ns": 4294967295 * SECOND}),
        (b"release 9 00 1", {"kind": RELEASE, "id": 9, "pri": 0, "delay_ns": SECOND}),
        (b"bury 3 4", {"kind": BURY, "id": 3, "pri": 4}),
        (b"touch 12", {"kind": TOUCH, "id": 12}),
        (b"peek 6", {"kind": PEEK_ID, "id": 6}),
        (b"peek-ready", {"kind": PEEK_READY, "topic": 1}),
        (b"peek-delayed", {"kind": PEEK_DELAYED, "topic": 1}),
        (b"peek-buried", {"kind": PEEK_BURIED, "topic": 1}),
        (b"kick 10", {"kind": KICK, "topic": 1, "id": 10}),
        (b"kick -1 and so on", {"kind": KICK, "topic": 1, "id": (1 << 32) - 1}),
        (b"kick \t+5", {"kind": KICK, "topic": 1, "id": 5}),
        (b"kick-job 8", {"kind": KICK_ID, "id": 8}),
        (b"stats-job 8", {"kind": STATS_ID, "id": 8}),
        (b"stats-tube x(y)", {"kind": STATS_TOPIC, "body": b"x(y)"}),
        (b"pause-tube  x 3", {"kind": PAUSE, "body": b"x", "delay_ns": 3 * SECOND}),
        (b"pause-tubex 0", {"kind": PAUSE, "body": b"x", "delay_ns": 0}),
        (b"list-tubes", {"kind": LIST}),
    ],
)
def test_a_command_becomes_its_request(bench: Bench, line: bytes, wanted: dict[str, object]) -> None:
    client = bench.quiet_client()
    client.send(line + b"\r\n")
    request = bench.one()
    assert {name: getattr(request, name) for name in wanted} == wanted
    assert request.conn == client.number
    assert client.received() == b""


@pytest.mark.parametrize(
    ("line", "status", "reply"),
    [
        (b"put 0 0 1 1\r\nx", NO_SPACE, b"OUT_OF_MEMORY\r\n"),
        (b"put 0 0 1 1\r\nx", FAILED, b"INTERNAL_ERROR\r\n"),
        (b"reserve", OK, b"RESERVED 42 3\r\na\r\n\r\n"),
        (b"reserve", TIMED_OUT, b"TIMED_OUT\r\n"),
        (b"reserve", CANCELLED, b"TIMED_OUT\r\n"),
        (b"reserve", DEADLINE_SOON, b"DEADLINE_SOON\r\n"),
        (b"reserve-job 42", OK, b"RESERVED 42 3\r\na\r\n\r\n"),
        (b"reserve-job 42", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"delete 42", OK, b"DELETED\r\n"),
        (b"delete 42", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"delete 42", FAILED, b"INTERNAL_ERROR\r\n"),
        (b"release 42 1 1", OK, b"RELEASED\r\n"),
        (b"release 42 1 1", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"release 42 1 1", NO_SPACE, b"OUT_OF_MEMORY\r\n"),
        (b"bury 42 1", OK, b"BURIED\r\n"),
        (b"bury 42 1", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"bury 42 1", FAILED, b"INTERNAL_ERROR\r\n"),
        (b"touch 42", OK, b"TOUCHED\r\n"),
        (b"touch 42", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"peek 42", OK, b"FOUND 42 3\r\na\r\n\r\n"),
        (b"peek 42", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"peek-ready", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"kick 1", OK, b"KICKED 42\r\n"),
        (b"kick-job 42", OK, b"KICKED\r\n"),
        (b"kick-job 42", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"kick-job 42", NO_SPACE, b"OUT_OF_MEMORY\r\n"),
        (b"pause-tube x 1", OK, b"PAUSED\r\n"),
        (b"pause-tube x 1", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"stats-tube x", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"stats-job 1", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"list-tubes", FAILED, b"INTERNAL_ERROR\r\n"),
    ],
)
def test_a_status_becomes_its_reply(bench: Bench, line: bytes, status: int, reply: bytes) -> None:
    client = bench.quiet_client()
    client.send(line + b"\r\n")
    request = bench.one()
    delivers = status == OK and request.kind in (RESERVE, RESERVE_ID, PEEK_ID)
    bench.answer(0, request, status, id=42, body=b"a\r\n" if delivers else b"")
    assert client.received() == reply


LONG_NAME = b"n" * 200


@pytest.mark.parametrize(
    ("sent", "reply"),
    [
        (b"\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b"PUT 0 0 0 0\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b"put\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b" reserve\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b"delete\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b"peek\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b"put 1 2 3\r\n", b"BAD_FORMAT\r\n"),
        (b"put a 2 3 4\r\n", b"BAD_FORMAT\r\n"),
        (b"put -1 2 3 4\r\n", b"BAD_FORMAT\r\n"),
        (b"put 4294967296 2 3 4\r\n", b"BAD_FORMAT\r\n"),
        (b"put 1 4294967296 3 4\r\n", b"BAD_FORMAT\r\n"),
        (b"put 1 2 3 4294967296\r\n", b"BAD_FORMAT\r\n"),
        (b"put 1 2 3 4 \r\n", b"BAD_FORMAT\r\n"),
        (b"put 1 2 3 4x\r\n", b"BAD_FORMAT\r\n"),
        (b"put 1\t2 3 4\r\n", b"BAD_FORMAT\r\n"),
        (b"put 1 2 3 65536\r\n" + b"b" * 65536 + b"\r\n", b"JOB_TOO_BIG\r\n"),
        (b"put 1 2 3 65536 junk\r\n" + b"b" * 65536 + b"XX", b"JOB_TOO_BIG\r\n"),
        (b"put 1 2 3 2\r\nabcd", b"EXPECTED_CRLF\r\n"),
        (b"put 1 2 3 0\r\nab", b"EXPECTED_CRLF\r\n"),
        (b"reserve \r\n", b"BAD_FORMAT\r\n"),
        (b"reserved\r\n", b"BAD_FORMAT\r\n"),
        (b"reserve-with-timeout\r\n", b"BAD_FORMAT\r\n"),
        (b"reserve-with-timeout 9223372036854775808\r\n", b"BAD_FORMAT\r\n"),
        (b"reserve-job \r\n", b"BAD_FORMAT\r\n"),
        (b"reserve-job 1 \r\n", b"BAD_FORMAT\r\n"),
        (b"delete 18446744073709551616\r\n", b"BAD_FORMAT\r\n"),
        (b"delete 1a\r\n", b"BAD_FORMAT\r\n"),
        (b"delete 1\0\r\n", b"BAD_FORMAT\r\n"),
        (b"release 1 2\r\n", b"BAD_FORMAT\r\n"),
        (b"release 1 2 3 \r\n", b"BAD_FORMAT\r\n"),
        (b"bury 1\r\n", b"BAD_FORMAT\r\n"),
        (b"bury 1 2 3\r\n", b"BAD_FORMAT\r\n"),
        (b"touch x\r\n", b"BAD_FORMAT\r\n"),
        (b"use \r\n", b"BAD_FORMAT\r\n"),
        (b"use -a\r\n", b"BAD_FORMAT\r\n"),
        (b"use a b\r\n", b"BAD_FORMAT\r\n"),
        (b"use  a\r\n", b"BAD_FORMAT\r\n"),
        (b"use a*\r\n", b"BAD_FORMAT\r\n"),
        (b"use \xc3\xa4\r\n", b"BAD_FORMAT\r\n"),
        (b"use %sn\r\n" % LONG_NAME, b"BAD_FORMAT\r\n"),
        (b"use %s\r\n" % LONG_NAME, b"USING %s\r\n" % LONG_NAME),
        (b"watch %sn\r\n" % LONG_NAME, b"BAD_FORMAT\r\n"),
        (b"ignore %sn\r\n" % LONG_NAME, b"BAD_FORMAT\r\n"),
        (b"watch \r\n", b"BAD_FORMAT\r\n"),
        (b"ignore -x\r\n", b"BAD_FORMAT\r\n"),
        (b"peek 1x\r\n", b"BAD_FORMAT\r\n"),
        (b"peek-ready \r\n", b"BAD_FORMAT\r\n"),
        (b"peek-buriedx\r\n", b"BAD_FORMAT\r\n"),
        (b"kick \r\n", b"BAD_FORMAT\r\n"),
        (b"kick x\r\n", b"BAD_FORMAT\r\n"),
        (b"kick 18446744073709551616\r\n", b"BAD_FORMAT\r\n"),
        (b"kick-job \r\n", b"BAD_FORMAT\r\n"),
        (b"stats \r\n", b"BAD_FORMAT\r\n"),
        (b"stats-job\r\n", b"BAD_FORMAT\r\n"),
        (b"stats-tube\r\n", b"BAD_FORMAT\r\n"),
        (b"stats-tube -x\r\n", b"BAD_FORMAT\r\n"),
        (b"list-tubes \r\n", b"BAD_FORMAT\r\n"),
        (b"list-tube-used x\r\n", b"BAD_FORMAT\r\n"),
        (b"list-tubes-watched x\r\n", b"BAD_FORMAT\r\n"),
        (b"pause-tube\r\n", b"BAD_FORMAT\r\n"),
        (b"pause-tube x\r\n", b"BAD_FORMAT\r\n"),
        (b"pause-tube x5\r\n", b"BAD_FORMAT\r\n"),
        (b"pause-tube x 4294967296\r\n", b"BAD_FORMAT\r\n"),
        (b"pause-tube -x 1\r\n", b"BAD_FORMAT\r\n"),
        (b"pause-tube x 1 \r\n", b"BAD_FORMAT\r\n"),
        (b"x" * 222 + b"\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b"x" * 224 + b"\r\n", b"BAD_FORMAT\r\n"),
        (b"y" * 100_000 + b"\r\n", b"BAD_FORMAT\r\n"),
        (b"a\rb" + b"z" * 300 + b"\r\n", b"BAD_FORMAT\r\n"),
        (b"use a\nuse b\r\n", b"BAD_FORMAT\r\n"),
    ],
)
def test_what_is_no_command_is_refused_and_the_next_is_served(bench: Bench, sent: bytes, reply: bytes) -> None:
    client = bench.quiet_client()
    client.send(sent)
    bench.turn()
    assert client.received() == reply
    assert all(not request.has_reply for request in bench.take())
    assert client.talk(b"list-tube-used\r\n").startswith(b"USING ")


def test_an_end_of_line_across_the_edge_of_what_is_thrown_away_is_not_seen(bench: Bench) -> None:
    """So it is in beanstalkd: of a line that is too long 224 bytes go at a time, here with the carriage return."""
    client = bench.quiet_client()
    assert client.talk(b"x" * 223 + b"\r\n") == b""
    assert client.talk(b"list-tube-used\r\n") == b"BAD_FORMAT\r\n"
    assert client.talk(b"list-tube-used\r\n") == b"USING default\r\n"


def test_a_put_without_time_to_run_gets_a_second(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"put 0 0 0 0\r\n\r\n")
    assert bench.one().ttr_ns == SECOND


def test_a_broker_that_drains_refuses_a_put_once_its_body_is_there(bench: Bench) -> None:
    client = bench.quiet_client()
    os.pwrite(bench._board, struct.pack("=I", 1), 64)
    assert client.talk(b"put 0 0 1 1\r\n") == b""
    assert client.talk(b"x\r\n") == b"DRAINING\r\n"
    assert client.talk(b"put 0 0 1 1\r\nxyz") == b"EXPECTED_CRLF\r\n"
    assert bench.take() == []


def test_the_limit_of_a_body_can_be_set(bench: Bench) -> None:
    bench.acceptor.set("beanstalk.max-job-size", 3)
    client = bench.quiet_client()
    client.send(b"put 0 0 1 3\r\nabc\r\n")
    assert bench.one().body == b"abc"
    assert client.talk(b"put 0 0 1 4\r\nabcd\r\nuse x\r\n") == b"", "the first is not answered yet"
    with pytest.raises(ValueError, match="out of range"):
        bench.acceptor.set("beanstalk.max-job-size", (1 << 30) + 1)


def test_commands_are_counted_when_beanstalkd_counts_them(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(
        b"use a\r\nuse -\r\nwatch a\r\nignore a\r\nput 1 1 1 1 \r\nput 1 1 1 x\r\nput 1 1 1 70000\r\n" + b"x" * 70002
    )
    client.send(b"stats-tube -\r\nlist-tube-used\r\npause-tube -x 1\r\n")
    counted = bench.counters()
    shown = {name: counted[name] for name in ("use", "watch", "ignore", "put", "pause-tube")}
    assert shown == {"use": 1, "watch": 1, "ignore": 1, "put": 2, "pause-tube": 1}
    assert counted["stats-tube"] == 0
    assert counted["producers"] == 0, "none of the puts got as far as that"
    client.send(b"put 1 1 1 1\r\n")
    assert bench.counters()["producers"] == 1
    client.send(b"x\r\ndelete 1\r\ntouch 1\r\nreserve\r\n")
    counted = bench.counters()
    assert (counted["workers"], counted["waiting"]) == (1, 1)
    assert [counted[name] for name in ("delete", "touch", "reserve")] == [1, 1, 1]
    client.socket.close()
    bench.turn()
    counted = bench.counters()
    assert (counted["producers"], counted["workers"], counted["waiting"]) == (0, 0, 0)
    totals = bench.acceptor.totals()
    assert (totals.connections, totals.total_connections) == (0, 1)


def test_a_body_larger_than_the_ring_arrives_whole() -> None:
    bench = Bench(ring_bytes=1 << 16)
    bench.acceptor.set("beanstalk.max-job-size", 1 << 30)
    client = bench.quiet_client()
    body = os.urandom(1 << 20) * 3
    data = b"put 0 0 1 %d\r\n%s\r\n" % (len(body), body)
    sent = 0
    got: list[Request] = []
    for _ in range(10_000):
        if sent < len(data):
            with contextlib.suppress(BlockingIOError):
                sent += client.socket.send(data[sent : sent + 100_000])
        bench.turn()
        got += bench.take()
        if got:
            break
    assert [request.body == body for request in got] == [True]
    bench.answer(0, got[0])
    assert client.received() == b"INSERTED %d\r\n" % got[0].id
    client.send(b"reserve\r\n")
    request = bench.one()
    bench.worker[0].answer(request, OK, id=8, body=body)
    reply = b""
    for _ in range(10_000):
        bench.turn()
        bench.take()
        reply += client.received()
        if len(reply) >= len(body) + 24:
            break
    assert reply == b"RESERVED 8 %d\r\n%s\r\n" % (len(body), body)
    bench.close()


SeenRequest = tuple[object, ...]


def automatic(worker: FakeWorker, seen: list[SeenRequest]) -> bool:
    """Answers everything at once, always the same way."""
    requests = worker.take()
    for request in requests:
        seen.append((request.kind, request.topic, request.pri, request.delay_ns, request.ttr_ns, request.body))
        if request.has_reply:
            status = {PUBLISH: OK, RESERVE: TIMED_OUT, PROBE: NONE, LIST: OK}.get(request.kind, NOT_FOUND)
            worker.answer(request, status)
    return bool(requests)


def replay(pieces: list[bytes], workers: int) -> tuple[bytes, list[list[SeenRequest]]]:
    bench = Bench(workers=workers)
    client = bench.client()
    seen: list[list[SeenRequest]] = [[] for _ in range(workers)]
    replies = b""
    for piece in pieces:
        if client.is_closed:
            break  # some junk was a quit
        client.send(piece)
        quiet = 0
        while quiet < 3:
            bench.turn(1)
            alive = sum(automatic(worker, seen[i]) for i, worker in enumerate(bench.worker)) > 0
            got = client.received()
            replies += got
            quiet = 0 if alive or got else quiet + 1
    bench.close()
    return replies, seen


SCRIPTS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"reserve\r\n", b"reserve-with-timeout 0\r\n", b"delete 1\r\n", b"release 2 3 4\r\n", b"bury 3 1\r\n",
                b"use a\r\n", b"use b\r\n", b"watch a\r\n", b"watch b\r\n", b"ignore a\r\n", b"touch 4\r\n",
                b"reserve-job 6\r\n", b"put 0 0 1 70000\r\n" + b"y" * 70002, b"put 1 2 3 4\r\nabcdef", b"nonsense\r\n",
                b"list-tube-used\r\n", b"list-tubes-watched\r\n", b"peek 1\r\n", b"\r\n",
                b"q\rr\r\n" + b"s" * 230 + b"\r\n",
                b"w" * 500 + b"\r\n", b"delete \0\r\n", b"list-tubes\r\n", b"put 1 2 3 4z\r\n",
            ]
        ),
        st.binary(max_size=40).map(lambda body: b"put 1 0 10 %d\r\n%s\r\n" % (len(body), body)),
        st.binary(max_size=12).map(lambda junk: junk + b"\r\n"),
        st.just(b"quit\r\n"),
    ),
    max_size=25,
).map(b"".join)  # fmt: skip


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=SCRIPTS, workers=st.sampled_from([1, 3]), data=st.data())
def test_how_input_is_cut_makes_no_difference(script: bytes, workers: int, data: st.DataObject) -> None:
    whole = [script[i : i + 60_000] for i in range(0, len(script), 60_000)]
    if len(script) < 3000:
        pieces = [script[i : i + 1] for i in range(len(script))]
    else:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(script)), max_size=20)))
        pieces = [script[i:j] for i, j in zip([0, *cuts], [*cuts, len(script)], strict=True)]
        pieces = [piece[i : i + 60_000] for piece in pieces for i in range(0, len(piece), 60_000)]
    replies, seen = replay(whole, workers)
    assert replay(pieces, workers) == (replies, seen)
