"""A connection that watches many tubes: which they are and in what order, and that it gets the jobs of these alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.beanstalk.wire import Wire, unique_tube
from tests.servers import Server, children, comm_of

MOST = 9_999  # beside the default tube


def acceptors_s(server: Server) -> float:
    """Processor time of all acceptors."""
    pids = [pid for pid in children(server.process.pid) if comm_of(pid).startswith("mq-acceptor")]
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9


@pytest.mark.parametrize("seed", range(3))
def test_the_list_is_as_beanstalkds_through_watches_and_ignores(server: Server, seed: int) -> None:
    """The list is looked up through an index from 65 tubes on until 32 are left."""
    draw = random.Random(seed)
    tubes = [unique_tube(f"many-{n}") for n in range(200)]
    watched = ["default"]
    with Wire(server) as wire, Wire(server) as other:
        for most in (150, 20, 120, 2):
            script = []
            for _ in range(600):
                grows = draw.random() < (0.8 if len(watched) < most else 0.2)
                tube = draw.choice(tubes if grows or draw.random() < 0.2 else watched)
                if grows and tube not in watched:
                    watched.append(tube)
                elif not grows and tube in watched and len(watched) > 1:
                    watched[watched.index(tube)] = watched[-1]
                    watched.pop()
                script.append(f"{'watch' if grows else 'ignore'} {tube}\r\n")
            wire.send("".join(script).encode())
            last = [reply.line for reply in wire.replies(len(script))][-1]
            assert last in (f"WATCHING {len(watched)}".encode(), b"NOT_IGNORED")
            assert wire.watched() == watched
            for tube in draw.sample(tubes, 12):
                other.use(tube)
                job = other.put(b"x")
                if tube in watched:
                    assert wire.reserve() == (job, b"x")
                else:
                    assert wire.ask("reserve-with-timeout 0") == b"TIMED_OUT"
                wire.ask(f"delete {job}")


@pytest.mark.heavy
def test_the_longest_list_is_made_in_a_moment(server: Server) -> None:
    tubes = [unique_tube(f"list-{n}-{'x' * 150}") for n in range(MOST)]
    with Wire(server) as wire:
        wire.send("".join(f"watch {tube}\r\n" for tube in tubes).encode())
        assert wire.replies(MOST)[-1].line == f"WATCHING {MOST + 1}".encode()
        began = acceptors_s(server)
        for _ in range(20):
            assert wire.watched() == ["default", *tubes]
    assert (acceptors_s(server) - began) / 20 < 0.02
