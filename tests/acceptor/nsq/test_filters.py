"""Connections whose bytes pass through a filter."""

from __future__ import annotations

import contextlib
import random
import socket

from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import WorkerRequest

from tests.acceptor.bench import OPEN
from tests.acceptor.nsq.bench import DELIVER, SUBSCRIBE, Bench, Client, pub, sized


def flip(data: bytes) -> bytes:
    return bytes(byte ^ 0x55 for byte in data)


class Filtered:
    """Plays Python's part for one connection: each byte is another one outside."""

    def __init__(self, bench: Bench, client: Client) -> None:
        self.bench, self.client = bench, client
        self.inputs: list[bytes] = []

    def serve(self) -> None:
        while True:
            self.bench.turn(1)
            mine = [
                u
                for u in self.bench.upcalls
                if u.conn == self.client.number and u.kind in (engine.INPUT, engine.OUTPUT)
            ]
            self.bench.upcalls = [u for u in self.bench.upcalls if u not in mine]
            if not mine:
                return
            for upcall in mine:
                if upcall.kind == engine.INPUT:
                    self.inputs.append(upcall.line)
                    self.bench.acceptor.feed(upcall.conn, flip(upcall.line))
                else:
                    assert len(upcall.line) <= 65536
                    self.bench.acceptor.send(upcall.conn, flip(upcall.line))

    def talk(self, data: bytes) -> bytes:
        data = flip(data)
        while data:
            with contextlib.suppress(BlockingIOError):
                data = data[self.client.socket.send(data[: 1 << 16]) :]
            self.serve()
        self.serve()
        return flip(self.client.raw())


def filtered(bench: Bench, early: bytes = b"") -> tuple[Client, Filtered]:
    client = bench.client()
    client.send(b"IDENTIFY\n" + sized(b"{}") + flip(early))
    assert bench.commands() == [(client.number, b"IDENTIFY\n{}")]
    bench.acceptor.reply(client.number, b"plain")
    bench.acceptor.filter(client.number)
    bench.acceptor.send(client.number, b" and wired")
    bench.acceptor.resume(client.number)
    served = Filtered(bench, client)
    served.serve()
    return client, served


def test_input_and_output_pass_through_python_both_ways(bench: Bench) -> None:
    client, served = filtered(bench, early=pub(b"t", b"early")[:7])
    assert client.raw() == b"plain and wired", "what was said before is not filtered"
    assert served.inputs == [flip(pub(b"t", b"early")[:7])], "what had come already is"
    assert served.talk(pub(b"t", b"early")[7:] + b"NOP\n" + pub(b"t", b"x")) == b""
    first, second = [r for r in bench.take() if r.kind != OPEN]
    assert (first.body, second.body) == (b"early", b"x")
    bench.worker[0].answer(first)
    bench.worker[0].answer(second)
    served.serve()
    assert flip(client.raw()) == b"\0\0\0\6\0\0\0\0OK" * 2
    client.socket.close()
    served.serve()
    assert [(u.kind, u.conn) for u in bench.take_upcalls()] == [(engine.CLOSED, client.number)]


def test_one_input_is_answered_before_there_is_another(bench: Bench) -> None:
    client, _ = filtered(bench)
    client.send(flip(b"NOP\n"))
    client.send(flip(b"NOP\n"))
    (first,) = bench.take_upcalls()
    assert (first.kind, first.line) == (engine.INPUT, flip(b"NOP\n"))
    bench.acceptor.feed(client.number, b"")
    bench.turn()
    (second,) = bench.take_upcalls()
    assert (second.kind, second.line) == (engine.INPUT, flip(b"NOP\n"))


def test_filtered_bytes_flow_while_python_has_the_command(bench: Bench) -> None:
    client = bench.client()
    client.send(b"IDENTIFY\n" + sized(b"{}"))
    bench.commands()
    bench.acceptor.filter(client.number)
    client.send(b"hand")
    (upcall,) = bench.take_upcalls()
    assert (upcall.kind, upcall.line) == (engine.INPUT, b"hand")
    bench.acceptor.feed(client.number, b"")
    bench.acceptor.send(client.number, b"shake")
    bench.turn()
    assert client.raw() == b"shake"
    client.send(b"more")
    assert [u.line for u in bench.take_upcalls()] == [b"more"]
    bench.acceptor.feed(client.number, b"BAD\n")
    bench.turn()
    assert bench.take_upcalls() == [], "its input waits for the command to be done"
    bench.acceptor.resume(client.number)
    bench.turn()
    assert [u.line[8:] for u in bench.take_upcalls() if u.kind == engine.OUTPUT] == [b"E_INVALID invalid command BAD"]


def test_a_client_that_hangs_up_in_a_handshake_is_gone(bench: Bench) -> None:
    client = bench.client()
    client.send(b"IDENTIFY\n" + sized(b"{}"))
    bench.acceptor.filter(client.number)
    client.send(b"ha")
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert [u.kind for u in bench.take_upcalls()] == [engine.COMMAND, engine.INPUT]
    bench.acceptor.feed(client.number, b"")
    bench.turn()
    assert [u.kind for u in bench.take_upcalls()] == [engine.CLOSED]


def test_a_filtered_connection_ends_when_both_sides_are_out(bench: Bench) -> None:
    client, served = filtered(bench)
    client.raw()
    reply = served.talk(pub(b"t", b"x") + b"BAD\n")
    bench.worker[0].answer(bench.one())
    served.serve()
    reply += flip(client.raw())
    assert reply.endswith(b"E_INVALID invalid command BAD") and reply.startswith(b"\0\0\0\6\0\0\0\0OK")
    assert client.is_closed


def test_much_passes_through_a_filter_without_piling_up(bench: Bench) -> None:
    client, served = filtered(bench)
    client.raw()
    bodies = [random.Random(i).randbytes(100_000) for i in range(20)]
    got: list[bytes] = []
    data = flip(b"".join(pub(b"t", body) for body in bodies))
    replies = b""
    for _ in range(20_000):
        with contextlib.suppress(BlockingIOError):
            data = data[client.socket.send(data[:65536]) :] if data else data
        served.serve()
        for request in bench.take():
            if request.kind != OPEN:
                got.append(request.body)
                bench.worker[0].answer(request)
        replies += flip(client.raw())
        if len(replies) == 200:
            break
    assert got == bodies and replies == b"\0\0\0\6\0\0\0\0OK" * 20


def test_what_a_filtered_client_does_not_read_waits_before_python(bench: Bench) -> None:
    client, served = filtered(bench)
    client.raw()
    served.talk(b"SUB t c\n")
    bench.take_upcalls()
    topic = bench.acceptor.bind(b"t")
    bench.acceptor.request(0, client.number, WorkerRequest(SUBSCRIBE, topic=topic, body=b""))
    bench.turn()
    bench.answer(0, bench.one())
    bench.acceptor.resume(client.number)
    bench.take_upcalls()
    for i in range(150):
        bench.push(client.number, DELIVER, id=i, pri=1, body=b"x" * 6000, turn=False)
    for _ in range(5):
        bench.acceptor.turn()
    outputs = [u.line for u in bench.acceptor.upcalls() if u.kind == engine.OUTPUT]
    assert 256 << 10 <= sum(map(len, outputs)) <= 320 << 10
    for output in outputs:
        bench.acceptor.send(client.number, flip(output))
    received = b""
    for _ in range(200):
        served.serve()
        received += flip(client.raw())
    assert len(received) == 150 * 6034
