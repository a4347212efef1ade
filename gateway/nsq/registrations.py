"""The topics and channels that nsqlookupds should know of: one set for all of them, changed in place.

With 200,000 topics it is large, so it is never made anew or let go of as a whole: callers are told what changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

from mq_shards.gateway.catalog import Topic
from mq_shards.gateway.nsq.names import is_valid_channel
from mq_shards.gateway.nsq.topics import is_visible
from mq_shards.gateway.parted_set import PARTS
from mq_shards.gateway.turns import Turns

Registration = tuple[str, str]  # a topic, and a channel or, for the topic itself, ""


class Update(NamedTuple):
    listed: int  # topics and channels, those that NSQ's clients do not see too
    came: list[str]  # topics
    gone: set[str]


class Registrations:
    def __init__(self) -> None:
        # In parts, as in a PartedSet; each registration with the number of the last list that had it.
        self._parts: Final[list[dict[Registration, int]]] = [{} for _ in range(PARTS)]
        self._list = 0

    def __contains__(self, registration: object) -> bool:
        return registration in self._parts[hash(registration) % PARTS]

    async def pieces(self) -> AsyncIterator[list[Registration]]:
        """Yields what it holds, part by part. It may be changed meanwhile."""
        turns = Turns()
        for part in self._parts:
            yield list(part)
            await turns.pause()

    async def update(self, topics: AsyncIterator[Topic], changed: Callable[[Registration], None]) -> Update:
        """Makes it as `topics`, which are all there are, and calls `changed` after each that has come or gone."""
        self._list += 1
        listed = 0
        new: list[Registration] = []
        async for topic in topics:
            listed += 1 + len(topic.channels)
            if not is_visible(topic):
                continue
            channels = [channel.name for channel in topic.channels if is_valid_channel(channel.name)]
            for registration in [(topic.name, ""), *((topic.name, channel) for channel in channels)]:
                part = self._parts[hash(registration) % PARTS]
                if registration in part:
                    part[registration] = self._list
                else:
                    new.append(registration)
        gone: set[str] = set()
        turns = Turns()
        for part in self._parts:
            for registration in [one for one, number in part.items() if number != self._list]:
                del part[registration]
                changed(registration)
                if not registration[1]:
                    gone.add(registration[0])
            await turns.pause()
        came: list[str] = []
        for registration in new:
            self._parts[hash(registration) % PARTS][registration] = self._list
            changed(registration)
            if not registration[1]:
                came.append(registration[0])
            await turns.pause()
        return Update(listed, came, gone)
