"""Waits until the brokers of a project have messages that no run has seen yet."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from mq_shards.pipeline.options import ReadOptions
from mq_shards.pipeline.topics import Brokers, Key

POLL_S: Final = 1.0  # or the interval between runs, if that is shorter


class Arrivals:
    """Messages that are there at construction count as seen: construct it before the run that reads them."""

    def __init__(self, options: Mapping[str, str], every_s: float) -> None:
        self._brokers = Brokers(ReadOptions.parse(options, streaming=True))
        self._every_s = every_s
        self._seen = self._places()
        self._next = time.monotonic() + every_s

    def close(self) -> None:
        self._brokers.close()

    def wait(self) -> None:
        """Blocks until messages have come since the last call, and a run is due. Raises BrokerError, OptionError."""
        time.sleep(max(0.0, self._next - time.monotonic()))
        while (found := self._places()) == self._seen:
            time.sleep(min(POLL_S, self._every_s))
        self._seen = found
        self._next = time.monotonic() + self._every_s

    def _places(self) -> dict[Key, tuple[str, int]]:
        streams = self._brokers.streams()
        return {key: (stream.topic.incarnation, stream.topic.latest) for key, stream in streams.items()}
