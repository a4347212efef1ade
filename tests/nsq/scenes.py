"""Scenarios in which time passes: all of a file run at once, each on a topic of its own, and each is one test."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.nsq.servers import NSQD_SCAN_REFRESH_SECONDS, NsqServer
from tests.nsq.wire import Wire, consumer, unique_topic

# Nothing may come early, beyond what reading two clocks can differ; a busy machine makes things late. If it is too busy
# for that, and only then, a scene that is played again succeeds.
EARLY = 0.02
LATE = 0.9
TRIES = 3


class Scene:
    """A topic, its channel "ch", and a stopwatch."""

    def __init__(self, server: NsqServer) -> None:
        self.server = server
        self.topic = unique_topic("timing")
        self.since = 0.0
        self.earliest: float | None = None
        self._opened: list[Wire] = []

    def producer(self) -> Wire:
        self._opened.append(Wire(self.server))
        return self._opened[-1]

    def consumer(self, channel: str = "ch", rdy: int | None = None, **fields: object) -> Wire:
        self._opened.append(consumer(self.server, self.topic, channel, rdy, **fields))
        return self._opened[-1]

    def publish(self, *bodies: bytes) -> None:
        """On a connection of its own, where no message comes between the answers."""
        with Wire(self.server) as producer:
            producer.publish(self.topic, *bodies)

    def close(self) -> None:
        for wire in self._opened:
            wire.close()

    def start(self) -> None:
        self.since = time.monotonic()

    def starts_in_what_follows(self) -> None:
        """What the server counts from happens between now and start(), which a busy machine may delay."""
        self.earliest = time.monotonic()

    def passed(self, seconds: float) -> None:
        """That much has passed since start()."""
        now = time.monotonic()
        least, most = now - self.since, now - (self.earliest or self.since)
        assert seconds - EARLY <= most and least <= seconds + LATE, f"after {least:.3f} s where {seconds} s belong"

    def sleep_until(self, seconds: float) -> None:
        time.sleep(max(0.0, self.since + seconds - time.monotonic()))


@dataclass
class Scenarios:
    wait_for_scan: bool = True  # with the real nsqd, until it looks for time-outs in the scenes' channels
    functions: dict[str, Callable[[Scene], None]] = field(default_factory=dict)

    def __call__(self, function: Callable[[Scene], None]) -> Callable[[Scene], None]:
        self.functions[function.__name__] = function
        return function

    def run(self, server: NsqServer) -> Iterator[dict[str, Future[None]]]:
        """Starts all and gives what will become of them. To be the body of a fixture."""
        with ThreadPoolExecutor(len(self.functions)) as pool:
            yield {name: pool.submit(self._play, name, server) for name in self.functions}

    def _play(self, name: str, server: NsqServer) -> None:
        play_again_if_late(name, lambda: self._play_once(self.functions[name], server))

    def _play_once(self, function: Callable[[Scene], None], server: NsqServer) -> None:
        scene = Scene(server)
        if self.wait_for_scan and server.prepared:
            scene.topic, scene.since = server.prepared.pop(), server.prepared_at
            scene.sleep_until(0)
        else:
            consumer(server, scene.topic).close()
            if self.wait_for_scan and not server.shape.is_shards:
                time.sleep(NSQD_SCAN_REFRESH_SECONDS)
        try:
            function(scene)
        finally:
            scene.close()


def prepare(server: NsqServer, scenes: int) -> None:
    """Has the real nsqd begin to look for time-outs in as many topics, while other tests run."""
    if not server.shape.is_shards:
        server.prepared = [unique_topic("timing") for _ in range(scenes)]
        for topic in server.prepared:
            consumer(server, topic).close()
        server.prepared_at = time.monotonic() + NSQD_SCAN_REFRESH_SECONDS


def play_again_if_late(name: str, play: Callable[[], None]) -> None:
    """A failure that is not repeated is said in the run's summary."""
    for _ in range(TRIES - 1):
        try:
            return play()
        except (AssertionError, OSError) as failure:  # a time-out is an OSError
            warnings.warn(f"{name} is played again, after {failure!r}", stacklevel=2)
    return play()
