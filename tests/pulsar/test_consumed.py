"""Whoever is killed: what has a receipt is in its topic, and some consumer of each subscription is given it."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from mq_shards.supervisor.restarts import DEATHS_WINDOW_S, MAX_DEATHS

pytest.importorskip("pulsar")

from tests.pulsar.consumed import Round
from tests.pulsar.servers import PulsarServer, running
from tests.servers import wait_until

PROCESSES = ("mq-worker-0", "mq-worker-1", "mq-acceptor-0", "mq-acceptor-1", "mq-gateway")


class Killer:
    """Of one process at a time; of none so often that the broker gives up."""

    def __init__(self, server: PulsarServer, choice: random.Random) -> None:
        self._server, self._choice = server, choice
        self._killed: list[tuple[float, str]] = []

    def kill(self, count: int) -> None:
        """They need not be back when this returns."""
        for _ in range(count):
            time.sleep(self._choice.uniform(0.1, 1.5))
            since = time.monotonic() - DEATHS_WINDOW_S - 1
            lately = [name for at, name in self._killed if at > since]
            name = self._choice.choice([one for one in PROCESSES if lately.count(one) < MAX_DEATHS - 1])
            wait_until(lambda name=name: name in self._server.names(), f"{name} is there")
            os.kill(self._server.pid_of(name), signal.SIGKILL)
            self._killed.append((time.monotonic(), name))


def campaign(data_dir: Path, seed: int, rounds: int) -> None:
    choice = random.Random(seed)
    with running(workers=2, acceptors=2, data_dir=data_dir) as server:
        killer = Killer(server, choice)
        for number in range(rounds):
            one = Round(server, f"r{number}", choice.randrange(1 << 30))
            killer.kill(6)
            one.end_producers()
            killer.kill(choice.randrange(3))
            one.close()
            killer.kill(choice.randrange(2))
            found = one.verdicts()
            for each in found:
                print(number, each, flush=True)
            assert not [each for each in found if each.missing], "promised, and given to nobody"
            assert all(each.receipts for each in found), "each topic had messages"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_what_has_a_receipt_is_given_to_a_consumer_of_each_type_whoever_is_killed(tmp_path: Path, seed: int) -> None:
    campaign(tmp_path, seed, 3)
