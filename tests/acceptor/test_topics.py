"""Connections, and the topics that they use and watch: what workers are told of both."""

from __future__ import annotations

import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mq_shards.acceptor.engine import WorkerRequest
from mq_shards.csrc._core import lib

from tests.acceptor.bench import BEANSTALK, CLOSE, GONE, IGNORE, OPEN, USE, WATCH, Bench


def test_the_default_topic_is_open_without_any_connection() -> None:
    bench = Bench(workers=2, attach=False)
    at = bench.acceptor.worker_of_name(b"default")
    for worker in bench.worker:
        worker.attach()
    (request,) = bench.take(at)
    assert (request.kind, request.body) == (OPEN, b"default")
    assert bench.take(1 - at) == []
    bench.close()


def test_a_new_connection_uses_and_watches_default_and_its_end_is_told(bench: Bench) -> None:
    client = bench.client()
    use, watch = bench.take()
    assert (use.kind, watch.kind) == (USE, WATCH)
    assert use.topic == watch.topic != 0
    assert use.conn == watch.conn == client.number
    client.socket.close()
    bench.turn()
    assert [(r.kind, r.conn) for r in bench.take()] == [(GONE, client.number)]


def test_a_topic_is_opened_before_its_first_use_and_closed_after_its_last(bench: Bench) -> None:
    bench.acceptor.set("idle-topics", 0)
    first, second = bench.client(), bench.client()
    bench.take()
    assert first.talk(b"use a\r\n") == b"USING a\r\n"
    opened, used = bench.take()
    assert (opened.kind, opened.body, opened.topic) == (OPEN, b"a", used.topic)
    assert used.kind == USE
    assert second.talk(b"watch a\r\n") == b"WATCHING 2\r\n"
    assert [(r.kind, r.topic) for r in bench.take()] == [(WATCH, used.topic)]
    first.talk(b"use b\r\n")
    assert [r.kind for r in bench.take()] == [OPEN, USE], "the second client still watches a"
    second.talk(b"ignore a\r\n")
    assert [(r.kind, r.topic) for r in bench.take()] == [(IGNORE, used.topic), (CLOSE, used.topic)]


def test_the_names_that_stay_bound_without_a_use_are_few_and_those_used_last(bench: Bench) -> None:
    bench.acceptor.set("idle-topics", 2)
    client = bench.client()
    for name in (b"a", b"b", b"c", b"a", b"d"):
        client.talk(b"use %s\r\n" % name)
    heard = bench.take()
    opened = {r.topic: r.body for r in heard if r.kind == OPEN}
    assert [opened.get(r.topic) for r in heard if r.kind == CLOSE] == [b"b"]
    client.talk(b"use c\r\n")
    assert [r.kind for r in bench.take()] == [USE], "c is bound still"
    for n in range(1000):
        client.talk(b"use t%d\r\n" % n)
    requests = bench.take()
    assert len([r for r in requests if r.kind == OPEN]) == len([r for r in requests if r.kind == CLOSE]) == 1000


def test_the_worker_of_the_topic_used_before_hears_of_the_change(duo: Bench) -> None:
    here, there = duo.name_at(0), duo.name_at(1)
    client = duo.quiet_client(here)
    client.talk(b"use %s\r\n" % there)
    assert [(r.kind, r.topic) for r in duo.take(0)] == [(USE, 0)]
    assert [r.kind for r in duo.take(1)] == [OPEN, USE]


def test_where_there_are_more_acceptors_who_was_answered_is_known_to_all_who_ask_then(bench: Bench) -> None:
    """They ask the worker, which hears of it from another ring than theirs."""
    bench.acceptor.set("acceptors", 2)
    client = bench.quiet_client()
    for command, told, answer in (
        (b"use t\r\n", USE, b"USING t\r\n"), (b"watch t\r\n", WATCH, b"WATCHING 2\r\n"),
        (b"ignore t\r\n", IGNORE, b"WATCHING 1\r\n"),
    ):  # fmt: skip
        assert client.talk(command) == b""
        *before, barrier = bench.take()
        assert told in [request.kind for request in before] and barrier.kind == lib.MSG_BARRIER
        bench.answer(0, barrier)
        assert client.talk(b"") == answer


def test_watch_and_ignore_count_and_order_as_beanstalkd(bench: Bench) -> None:
    client = bench.client()
    assert client.talk(b"ignore default\r\n") == b"NOT_IGNORED\r\n"
    assert client.talk(b"ignore never-watched\r\n") == b"WATCHING 1\r\n"
    for i in range(1, 10):
        assert client.talk(b"watch w%d\r\n" % i) == b"WATCHING %d\r\n" % (i + 1)
    assert client.talk(b"watch w3\r\n") == b"WATCHING 10\r\n"
    # The last of the list takes the place of what is ignored.
    assert client.talk(b"ignore w2\r\n") == b"WATCHING 9\r\n"
    listed = client.talk(b"list-tubes-watched\r\n").decode()
    assert listed.split("\n")[2:-2] == [f"- {n}" for n in ["default", "w1", "w9", "w3", "w4", "w5", "w6", "w7", "w8"]]


def test_ten_thousand_topics_can_be_watched_and_no_more(bench: Bench) -> None:
    client = bench.client()
    for start in range(0, 9999, 100):
        client.send(b"".join(b"watch n%d\r\n" % i for i in range(start, min(start + 100, 9999))))
        client.received()
        bench.take()
    assert client.talk(b"watch one-more\r\n") == b"OUT_OF_MEMORY\r\n"
    assert client.talk(b"watch n5\r\n") == b"WATCHING 10000\r\n"
    assert client.talk(b"ignore n5\r\n") == b"WATCHING 9999\r\n"


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_topics_are_open_at_their_worker_as_long_as_somebody_refers_to_them(data: st.DataObject) -> None:
    bench = Bench(workers=2)
    bench.acceptor.set("idle-topics", 0)
    clients = [bench.client() for _ in range(3)]
    used = [b"default"] * 3
    watched = [{b"default"} for _ in range(3)]
    open_at: list[dict[int, bytes]] = [{}, {}]
    default_at = bench.acceptor.worker_of_name(b"default")
    open_at[default_at][bench.acceptor.call(clients[0].number, "used")] = b"default"
    for worker in range(2):
        bench.take(worker)
    names = [b"n%d" % i for i in range(data.draw(st.sampled_from([10, 200])))]
    for _ in range(data.draw(st.integers(1, 40))):
        which = data.draw(st.integers(0, 2))
        for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=30)):
            command = data.draw(st.sampled_from([b"use", b"watch", b"ignore"]))
            if command == b"use":
                used[which] = name
            elif command == b"watch":
                watched[which].add(name)
            else:
                watched[which].discard(name)
            clients[which].socket.send(b"%s %s\r\n" % (command, name))
        bench.turn(1)
        for worker, bound in enumerate(open_at):
            for request in bench.take(worker):
                if request.kind == OPEN:
                    assert request.topic not in bound
                    assert bench.acceptor.worker_of_name(request.body) == worker
                    bound[request.topic] = request.body
                elif request.kind == CLOSE:
                    del bound[request.topic]
                else:
                    assert request.topic in bound or (request.kind, request.topic) == (USE, 0)
        wanted = {b"default", *used, *watched[0], *watched[1], *watched[2]}
        assert sorted([*open_at[0].values(), *open_at[1].values()]) == sorted(wanted)
        clients[which].received()
    bench.close()


def test_what_comes_for_a_connection_that_is_gone_is_not_given_to_its_successor(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\n")
    request = bench.one()
    client.socket.close()
    bench.turn()
    successors = [bench.quiet_client() for _ in range(5)]
    bench.answer(0, request)
    assert all(successor.received() == b"" for successor in successors)


def test_it_stops_accepting_at_its_limit_and_goes_on_when_there_is_room(bench: Bench) -> None:
    bench.acceptor.set("max-connections", 2)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    address = listener.getsockname()
    bench.acceptor.listen(listener.detach(), BEANSTALK)
    sockets = [socket.create_connection(address) for _ in range(3)]
    bench.turn()
    assert bench.acceptor.totals().connections == 2
    assert bench.full == [0], "it is said"
    sockets[0].close()
    bench.turn()
    totals = bench.acceptor.totals()
    assert (totals.connections, totals.total_connections) == (2, 3)
    sockets[2].sendall(b"use x\r\n")
    bench.turn()
    assert sockets[2].recv(100) == b"USING x\r\n"
    for sock in sockets[1:]:
        sock.close()


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("t", 0),
        ("t#ephemeral", lib.MSG_TOPIC_EPHEMERAL),
        ("#ephemeral", 0),
        ("non-persistent://public/default/t", lib.MSG_TOPIC_NON_PERSISTENT),
        ("non-persistent://", 0),
        ("persistent://mine/x/t", 0),
    ],
)
def test_what_any_protocol_makes_of_a_name_is_said_whoever_opens_or_changes_it(
    name: str, flags: int, bench: Bench
) -> None:
    bench.acceptor.bind(name.encode())
    local = bench.acceptor.local()
    for body in (name, f"{name}\nt#ephemeral"):
        bench.acceptor.request(0, local, WorkerRequest(lib.MSG_CHANGE, pri=lib.CHANGE_MAKE, body=body.encode()))
    bench.turn()
    assert [(r.kind, r.flags) for r in bench.take()] == [(OPEN, flags), *[(lib.MSG_CHANGE, flags)] * 2]
