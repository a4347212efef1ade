"""Of what all connections are to be sent, so much is compressed in a turn; the rest in the next turns, in its order."""

from __future__ import annotations

import random

import pytest

from tests.acceptor.bench import Bench
from tests.nats.s2 import BEST, BETTER, FAST, S2

MADE_BYTES = 4 << 20  # COMPRESSED_MADE_BYTES, csrc/acceptor/bounds.h
CHUNK = 64 << 10
COSTS = {FAST: 1, BETTER: 2, BEST: 20}


def chunks_in_a_turn(level: int) -> int:
    return -(-MADE_BYTES // (CHUNK * COSTS[level]))


@pytest.mark.parametrize("level", COSTS)
def test_of_many_some_have_theirs_in_a_turn_and_who_waits_longest_is_the_next(bench: Bench, level: int) -> None:
    noise = random.Random(1).randbytes(CHUNK)
    count = chunks_in_a_turn(level) * 5 // 2
    clients, streams = [bench.quiet_client() for _ in range(count)], [S2() for _ in range(count)]
    for client in clients:
        assert bench.acceptor.compress(client.number, level)
        bench.acceptor.reply(client.number, noise)
    served: list[list[int]] = []
    for _ in range(3):
        bench.turn(1)
        came = [stream.decode(client.received()) for client, stream in zip(clients, streams, strict=True)]
        served.append([number for number, data in enumerate(came) if data == noise])
        # Who comes meanwhile waits behind those who were there.
        bench.acceptor.reply(clients[0].number, noise)
    most = chunks_in_a_turn(level)
    assert served == [[*range(most)], [*range(most, 2 * most)], [0, *range(2 * most, count)]]


def test_one_that_is_owed_very_much_keeps_the_others_waiting_for_a_piece_of_it(bench: Bench) -> None:
    much, other = bench.quiet_client(), bench.quiet_client()
    assert bench.acceptor.compress(much.number, BEST)
    owed, stream, turns = 64 * CHUNK, S2(), 0
    bench.acceptor.reply(much.number, bytes(owed))
    while owed > 0:
        bench.acceptor.reply(other.number, b"soon")
        bench.turn(1)
        assert other.received() == b"soon"
        came = len(stream.decode(much.received()))
        while stream.pending:
            came += len(stream.decode(b""))
        assert 0 < came <= chunks_in_a_turn(BEST) * CHUNK
        owed -= came
        turns += 1
    assert turns == 64 // chunks_in_a_turn(BEST)
