"""Everything is killed, again and again, while producers with deduplication, transactions and compaction go on.

Nothing is lost, nothing is there twice, nothing is seen that was not committed, and each message keeps its id.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from mq_shards.supervisor.restarts import DEATHS_WINDOW_S, MAX_DEATHS

from tests.pulsar.campaign import (
    MAX,
    NEVER,
    TIMEOUT_S,
    Actor,
    Compactor,
    Place,
    Producer,
    Tail,
    Transformer,
    compact,
    compacted,
    read_all,
)
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import metadata_of, payload_of
from tests.servers import wait_until

EVERYTHING = "everything"


class Victim:
    """A broker that is killed in parts, or whole: then it comes back with another number of workers."""

    def __init__(self, data_dir: Path, workers: Sequence[int] = (2, 1, 3)) -> None:
        self._data_dir = data_dir
        self._stack = ExitStack()
        self._workers = itertools.cycle(workers)
        self._deaths: dict[str, list[float]] = {}  # when each process was killed since the broker was started
        self.current = self._start()

    def _start(self) -> PulsarServer:
        settings = ["pulsar.deduplication=true"]
        return self._stack.enter_context(
            running(workers=next(self._workers), acceptors=2, data_dir=self._data_dir, settings=settings)
        )

    def server(self) -> PulsarServer:
        return self.current

    def restart(self) -> None:
        self.current.kill()
        self._stack.close()
        self.current = self._start()

    def kill(self, name: str) -> None:
        if name == EVERYTHING or self._is_given_up_after(name):
            self._deaths.clear()
            self.restart()
            return
        wait_until(lambda: self._pid(name) is not None, f"{name} is there", TIMEOUT_S)
        pid = self._pid(name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self._pid(name) not in (pid, None), f"{name} is back", TIMEOUT_S)

    def _is_given_up_after(self, name: str) -> bool:
        """Whether the broker ends when the process dies once more, or might, a second earlier or later."""
        now, deaths = time.monotonic(), self._deaths.setdefault(name, [])
        deaths.append(now)
        return sum(now - at < DEATHS_WINDOW_S + 1 for at in deaths) > MAX_DEATHS

    def _pid(self, name: str) -> int | None:
        try:
            return self.current.pid_of(name)
        except (StopIteration, OSError):
            return None

    def close(self) -> None:
        self._stack.close()


def read(server: PulsarServer, topic: str) -> list[tuple[Place, bytes]]:
    return [(place, payload_of(frame)) for place, frame in read_all(server, topic)]


def view_of(server: PulsarServer, topic: str) -> dict[str, int]:
    """Of each key the last that a compacted read has."""
    return {metadata_of(f).partition_key: int(payload_of(f)) for _, f in read_all(server, topic, compacted=True)}


def campaign(data_dir: Path, victims: Sequence[str], pause_s: float) -> dict[str, int]:
    victim = Victim(data_dir)
    try:
        source, keyed = Producer(victim.server, "source"), Producer(victim.server, "keyed", keys=7)
        transformers = [Transformer(victim.server, "source", "sink", seed) for seed in (1, 2)]
        tail, compactor = Tail(victim.server, "sink"), Compactor(victim.server, "keyed")
        producers: list[Actor] = [source, keyed]
        actors: list[Actor] = [*producers, *transformers, tail, compactor]
        for actor in actors:
            actor.start()
        ended = "transactions end"
        wait_until(lambda: all(one.commits + one.aborts for one in transformers), ended, TIMEOUT_S)
        for name in victims:
            time.sleep(pause_s)
            victim.kill(name)
        time.sleep(pause_s)
        for actor in producers:
            actor.finish()
        expected = {str(number).encode() for number in range(source.count)}

        def there() -> int:
            broken = next((actor for actor in actors if actor.failure), None)
            if broken is not None:
                raise broken.failure or AssertionError
            return len(read_all(victim.current, "sink"))

        found = -1
        while (before := found) < len(expected):
            wait_until(lambda before=before: there() > before, "more is transformed", TIMEOUT_S)  # type: ignore[misc]
            found = there()
        wait_until(lambda: len(tail.found) >= len(expected), "the reader has all", TIMEOUT_S)
        for actor in actors:
            actor.finish()
        for _ in range(2):
            check_producer(victim.current, source)
            check_producer(victim.current, keyed)
            sink = read(victim.current, "sink")
            assert sorted(payload for _, payload in sink) == sorted(expected), "each once"
            assert tail.found == sink, "what is not committed is never seen, and ids do not change"
            assert not any(payload.startswith(NEVER) for _, payload in tail.found)
            check_view(victim.current, keyed)
            victim.restart()
        return {
            "messages": source.count + keyed.count, "commits": sum(one.commits for one in transformers),
            "aborts": sum(one.aborts for one in transformers), "compactions": compactor.runs,
            "connections lost": sum(actor.losses for actor in actors), "kills": len(victims),
        }  # fmt: skip
    finally:
        victim.close()


def check_producer(server: PulsarServer, producer: Producer) -> None:
    found = read(server, producer.topic)
    assert [int(payload) for _, payload in found] == list(range(producer.count)), "each once, in order"
    said = {number: place for number, place in producer.places.items() if place != (MAX, MAX)}
    assert {number: found[number][0] for number in said} == said, "each is where its receipt says"


def check_view(server: PulsarServer, keyed: Producer) -> None:
    wait_until(lambda: compact(server, keyed.topic), "it is compacted", TIMEOUT_S)
    wait_until(lambda: compacted(server, keyed.topic), "it is compacted", TIMEOUT_S)
    last = {keyed.key(number): number for number in range(keyed.count)}
    assert view_of(server, keyed.topic) == last
    assert len(read_all(server, keyed.topic, compacted=True)) == len(last), "nothing that was superseded"


def test_nothing_is_lost_or_doubled_when_one_of_each_is_killed(tmp_path: Path) -> None:
    campaign(tmp_path, ["mq-worker-0", "mq-gateway", "mq-acceptor-0"], 0.2)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_lost_or_doubled_whoever_is_killed(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    victims = ["mq-worker-0", "mq-gateway", "mq-gateway", "mq-acceptor-0", "mq-acceptor-1", EVERYTHING]
    print(campaign(tmp_path, choice.choices(victims, k=25), 0.4))
