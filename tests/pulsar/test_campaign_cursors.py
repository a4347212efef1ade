"""Everything is killed, again and again, while subscriptions are moved back and parts of batches are acknowledged: from
where a client has sought all comes again, in order, and what it has acknowledged since does not."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.pulsar.campaign import TIMEOUT_S, Actor, Producer, read_all
from tests.pulsar.campaign_cursors import Batches, PartAcker, Seeker
from tests.pulsar.test_campaign import EVERYTHING, Victim
from tests.servers import wait_until


def campaign(data_dir: Path, victims: Sequence[str], pause_s: float) -> dict[str, int]:
    victim = Victim(data_dir)
    try:
        numbers, batches = Producer(victim.server, "numbers"), Batches(victim.server, "batches")
        seekers = [Seeker(victim.server, numbers, seed) for seed in (1, 2)]
        acker = PartAcker(victim.server, batches, 3)
        actors: list[Actor] = [numbers, batches, *seekers, acker]
        for actor in actors:
            actor.start()

        def get_on(seeks: int, acks: int) -> None:
            def do() -> bool:
                broken = next((actor.failure for actor in actors if actor.failure), None)
                if broken is not None:
                    raise broken
                return all(one.seeks >= seeks for one in seekers) and acker.acks >= acks

            wait_until(do, "cursors are moved and messages acknowledged", TIMEOUT_S)

        get_on(1, 1)
        for name in victims:
            time.sleep(pause_s)
            victim.kill(name)
        get_on(min(one.seeks for one in seekers) + 1, acker.acks + 20)
        for actor in actors:
            actor.finish()
        for _ in range(2):
            for seeker in seekers:
                assert seeker.all_again() == list(range(numbers.count))
            acker.check([place for place, _ in read_all(victim.current, "batches")])
            victim.restart()
        return {
            "messages": numbers.count, "batches": batches.count, "seeks": sum(one.seeks for one in seekers),
            "seeks of batches": acker.seeks, "acknowledgements of parts": acker.acks,
            "connections lost": sum(actor.losses for actor in actors), "kills": len(victims),
        }  # fmt: skip
    finally:
        victim.close()


def test_cursors_are_where_they_were_moved_to_when_one_of_each_is_killed(tmp_path: Path) -> None:
    campaign(tmp_path, ["mq-worker-0", "mq-acceptor-0", "mq-worker-0"], 0.2)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cursors_are_where_they_were_moved_to_whoever_is_killed(tmp_path: Path, seed: int) -> None:
    victims = ["mq-worker-0", "mq-worker-0", "mq-gateway", "mq-acceptor-0", "mq-acceptor-1", EVERYTHING]
    print(campaign(tmp_path, random.Random(seed).choices(victims, k=25), 0.4))
