"""A little compressed input that stands for very much: it is made a piece at a time, and others have their turn."""

from __future__ import annotations

import os
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Engine, protocol_number
from mq_shards.acceptor.filters import PIECE_BYTES
from mq_shards.acceptor.filters.snappy import IDENTIFIER_CHUNK
from mq_shards.acceptor.protocol import Broker
from mq_shards.acceptor.protocols.nsq.serving import NsqServing
from mq_shards.csrc._core import lib
from mq_shards.supervisor.options.options import default_settings

from tests.nsq import frames
from tests.nsq.frames import OK, take_frame
from tests.nsq.process_memory import own_bytes
from tests.nsq.servers import SHARDS, NsqServer, running
from tests.nsq.streams import snappy_chunk
from tests.nsq.wire import MAGIC, Wire
from tests.servers import wait_until

SECOND = 1_000_000_000
BOMBS = 20
BOMB_BYTES = 60 << 20
# FILTER_PIECES_PER_TURN, csrc/acceptor/bounds.h
PIECES_PER_TURN = 1


def deflate_bomb(size: int) -> bytes:
    """So many bytes of NOPs, a thousandth of that."""
    stream = zlib.compressobj(9, wbits=-15)
    return stream.compress(b"NOP\n" * (size // 4)) + stream.flush(zlib.Z_SYNC_FLUSH)


def snappy_bomb(size: int) -> bytes:
    """A twentieth."""
    return IDENTIFIER_CHUNK + snappy_chunk(b"NOP\n" * (1 << 14)) * (size >> 16)


class Turns:
    """An acceptor without workers, of whose turns each is seen."""

    def __init__(self) -> None:
        self.now_ns = 1000 * SECOND
        board = os.memfd_create("board")
        assert lib.board_format(board)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self.engine = Engine(0, 1, 8, board, self._wake)
        os.close(board)
        self.nsq = NsqServing(self.engine, default_settings()["nsq"], Broker("0" * 16, 0), now_ns=lambda: self.now_ns)
        self.fed = 0  # bytes, in the last turn
        feed = self.engine.feed

        def counting(conn: int, data: bytes, *, more: bool = False) -> None:
            self.fed += len(data)
            feed(conn, data, more=more)

        self.engine.feed = counting  # type: ignore[method-assign]

    def close(self) -> None:
        self.nsq.close()
        self.engine.close()
        os.close(self._wake)

    def connect(self, **identify: object) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.engine.adopt(theirs.detach(), protocol_number("nsq"))
        ours.sendall(MAGIC + frames.identify(feature_negotiation=True, **identify))
        for _ in range(4):
            self.turn()
        ours.setblocking(False)
        said = bytearray(ours.recv(1 << 16))
        assert take_frame(said) is not None
        self.greeting = bytes(said)
        return ours

    def turn(self) -> int:
        """How many INPUTs there were."""
        self.fed = inputs = 0
        self.engine.turn(self.now_ns)
        self.nsq.expire()
        for upcall in self.engine.upcalls():
            if upcall.kind == engine.COMMAND:
                self.nsq.command(upcall.conn, upcall.line)
            elif upcall.kind == engine.INPUT:
                inputs += 1
                self.nsq.input(upcall.conn, upcall.line)
            elif upcall.kind == engine.OUTPUT:
                self.nsq.output(upcall.conn, upcall.line)
            elif upcall.kind == engine.CLOSED:
                self.nsq.closed(upcall.conn)
        return inputs


@pytest.fixture
def turns() -> Iterator[Turns]:
    turns = Turns()
    yield turns
    turns.close()


BOMBERS = {"deflate": ({"deflate": True}, deflate_bomb), "snappy": ({"snappy": True}, snappy_bomb)}


@pytest.mark.parametrize("kind", BOMBERS)
def test_a_turn_makes_a_few_pieces_of_all_bombs_together(turns: Turns, kind: str) -> None:
    identify, bomb_of = BOMBERS[kind]
    bomb = bomb_of(1 << 20)
    bombers = [turns.connect(**identify) for _ in range(BOMBS)]
    for bomber in bombers:
        bomber.sendall(bomb)
    fed = 0
    inputs = turns.turn()
    fed += turns.fed
    assert inputs == BOMBS, "what was received is decoded at once, a piece of each"
    assert 0 < fed <= BOMBS * 2 * PIECE_BYTES
    while fed < BOMBS << 20:
        inputs = turns.turn()
        fed += turns.fed
        assert 0 < inputs <= PIECES_PER_TURN + 1  # a snappy bomb comes by two receives
        assert turns.fed <= (PIECES_PER_TURN + 1) * 2 * PIECE_BYTES
    assert fed == BOMBS << 20


def test_all_bombs_go_off_at_one_pace(turns: Turns) -> None:
    bombers = [turns.connect(deflate=True) for _ in range(BOMBS)]
    for bomber in bombers:
        # An answer behind so many NOPs.
        bomber.sendall(deflate_bomb(1 << 20))
    seen: dict[int, int] = {}
    nsq_input = turns.nsq.input

    def counting(conn: int, data: bytes) -> None:
        seen[conn] = seen.get(conn, 0) + 1
        nsq_input(conn, data)

    turns.nsq.input = counting  # type: ignore[method-assign]
    for _ in range(3 * BOMBS // PIECES_PER_TURN):
        turns.turn()
    assert len(seen) == BOMBS
    assert max(seen.values()) - min(seen.values()) <= 1


def test_what_a_client_that_is_gone_has_compressed_is_let_be(turns: Turns) -> None:
    bomber = turns.connect(deflate=True)
    bomber.sendall(deflate_bomb(BOMB_BYTES))
    assert turns.turn() == 1
    bomber.close()
    for _ in range(3):
        turns.turn()
    assert turns.turn() == 0
    assert turns.engine.totals().connections == 0


def test_what_a_client_sent_before_it_shut_down_is_done_to_its_end(turns: Turns) -> None:
    client = turns.connect(deflate=True)
    stream = zlib.compressobj(9, wbits=-15)
    data = stream.compress(b"NOP\n" * 100_000 + b"OOPS\n") + stream.flush(zlib.Z_SYNC_FLUSH)
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)
    for _ in range(20):
        turns.turn()
    # What came before is of the same stream: that the filter is on.
    answer = zlib.decompressobj(wbits=-15).decompress(turns.greeting + client.recv(1 << 16))
    assert answer.endswith(b"E_INVALID invalid command OOPS")
    assert client.recv(1) == b""


@pytest.fixture(scope="module")
def server() -> Iterator[NsqServer]:
    with running(SHARDS) as server:
        yield server


def test_others_are_served_while_twenty_bombs_go_off(server: NsqServer) -> None:
    bomb = deflate_bomb(BOMB_BYTES)
    before = own_bytes(server, "mq-acceptor")
    with socket.create_connection(("127.0.0.1", server.beanstalk_port)) as good:
        good.settimeout(20)
        bombers = []
        for _ in range(BOMBS):
            wire = Wire(server)
            wire.identify(deflate=True)
            wire.start_deflate()
            assert wire.frame() == OK
            wire.socket.sendall(bomb)
            # The answer to this, which comes last, says how far it has got.
            wire.send(b"")
            bombers.append(wire)
        most = 0
        waits = []
        for _ in range(50):
            began = time.monotonic()
            good.sendall(b"put 0 0 60 5\r\nhello\r\nreserve\r\n")
            reply = b""
            while not reply.endswith(b"hello\r\n"):
                reply += good.recv(4096)
            waits.append(time.monotonic() - began)
            good.sendall(b"delete %d\r\n" % int(reply.split()[1]))
            assert good.recv(100) == b"DELETED\r\n"
            most = max(most, own_bytes(server, "mq-acceptor") - before)
        for wire in bombers:
            # What is cut off answers nothing more, and its rest is not looked at.
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.close()
    # All of it at once was 60 MB each; and the others waited for a minute and more.
    assert most < 64 << 20
    assert sorted(waits)[len(waits) // 2] < 0.5
    assert max(waits) < 5

    def is_idle() -> bool:
        used = cpu_seconds(server.pid_of("mq-acceptor-0"))
        time.sleep(0.1)
        return cpu_seconds(server.pid_of("mq-acceptor-0")) - used < 0.05

    wait_until(is_idle, "nobody works for those who are gone", seconds=10)


def cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
