"""Heartbeats, and who is cut off for saying or taking nothing."""

from __future__ import annotations

import random
import threading
from typing import Final

from mq_shards.acceptor import engine

from tests.acceptor.bench import SECOND
from tests.acceptor.nsq.bench import DELIVER, ERROR, HEARTBEAT_NS, MS, RESPONSE, Bench, pub

BEAT: Final = (RESPONSE, b"_heartbeat_")


def test_heartbeats_come_each_interval_from_the_magic_on(bench: Bench) -> None:
    silent, client = bench.client(greet=False), bench.client()
    bench.advance(HEARTBEAT_NS - 1)
    assert client.frames() == []
    bench.advance(1)
    assert client.frames() == [BEAT] and silent.frames() == []
    client.send(b"NOP\n")
    bench.advance(HEARTBEAT_NS)
    assert client.frames() == [BEAT]


def test_the_interval_is_half_the_client_timeout_until_identify_changes_it(bench: Bench) -> None:
    bench.acceptor.set("nsq.client-timeout-ns", 10 * SECOND)
    client = bench.client()
    bench.advance(5 * SECOND)
    assert client.frames() == [BEAT]
    bench.acceptor.call(client.number, "heartbeat-ns", SECOND)
    for _ in range(10):
        bench.advance(SECOND)
        assert client.talk(b"NOP\n") == [BEAT]
    bench.acceptor.call(client.number, "heartbeat-ns", 0)
    bench.advance(1000 * SECOND)
    assert client.frames() == [] and not client.is_closed


def test_who_sends_no_whole_command_for_two_intervals_is_cut(bench: Bench) -> None:
    client = bench.client()
    bench.advance(10 * SECOND)
    client.send(b"NOP\n")
    bench.advance(30 * SECOND)
    client.send(b"NO")
    bench.advance(30 * SECOND - 1)
    assert not client.is_closed and client.frames() == [BEAT, BEAT]
    bench.advance(1)
    assert client.is_closed


def test_a_body_that_does_not_come_in_time_is_an_error(bench: Bench) -> None:
    client = bench.client()
    client.send(b"PUB t\n\0\0\0\5ab")
    bench.advance(2 * HEARTBEAT_NS)
    assert client.frames() == [(ERROR, b"E_BAD_MESSAGE PUB failed to read message body")] and client.is_closed


def test_silence_while_we_are_busy_with_a_command_is_ours(bench: Bench) -> None:
    client, waiting = bench.client(), bench.client()
    client.send(b"SUB t c\n")
    waiting.send(pub(b"t", b"x"))
    for _ in range(10):
        bench.advance(HEARTBEAT_NS)
    assert not client.is_closed and not waiting.is_closed
    # It may be about to be encrypted: nothing that it has not asked for.
    assert client.frames() == [] and waiting.frames() == [BEAT] * 10


def test_who_takes_nothing_for_an_interval_is_cut(bench: Bench) -> None:
    client = bench.consumer()
    for _ in range(200):
        bench.push(client.number, DELIVER, id=1, pri=1, body=b"x" * 5000)
    for _ in range(2):
        client.socket.send(b"NOP\n")
        bench.turn()
        bench.advance(HEARTBEAT_NS)
    assert [u.kind for u in bench.take_upcalls()] == [engine.CLOSED]


def test_thousands_of_connections_beat_when_each_is_due(bench: Bench) -> None:
    rng = random.Random(3)
    clients = [bench.client() for _ in range(200)]
    due = {}
    for client in clients:
        interval = rng.randrange(1000, 60000) * MS
        bench.acceptor.call(client.number, "heartbeat-ns", interval)
        due[client] = bench.now_ns + interval, interval
    for client in rng.sample(clients, 50):
        client.socket.close()
        del due[client]
    for _ in range(300):
        bench.now_ns += rng.randrange(1, 1000) * MS
        for client in due:
            client.socket.send(b"NOP\n")
        bench.turn(2)
        for client, (at, interval) in due.items():
            beats = 0
            if bench.now_ns >= at:
                beats = 1
                due[client] = at + interval, interval
            assert client.frames() == [BEAT] * beats


def test_run_wakes_for_a_heartbeat(bench: Bench) -> None:
    bench.acceptor.run(0)
    bench.now_ns = 0  # it is told no other time than what it reads
    client = bench.client()
    bench.acceptor.call(client.number, "heartbeat-ns", 250 * MS)
    timer = threading.Timer(0.3, client.socket.send, [b"NOP\n"])
    timer.start()
    bench.acceptor.run(7 * SECOND // 10)
    timer.join()
    beats = client.frames()
    assert 1 <= len(beats) <= 5 and set(beats) == {BEAT}
