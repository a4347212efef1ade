"""What one acceptor tells all acceptors.

The acceptor that said it hears it last, when every other live acceptor obeys it. So it can wait for that before it lets
a client in: no other acceptor then goes by older rules than the client was let in by.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from mq_shards.ringbuf.control import Message
from mq_shards.supervisor.child import Child


@dataclass(slots=True, eq=False, repr=False)
class _Said:
    """What one acceptor has said, until the others have obeyed."""

    by: Child
    message: Message
    waits_for: list[Child] = field(default_factory=list)


class Shares:
    def __init__(self) -> None:
        self._last: Final[dict[tuple[str, str], Message]] = {}  # the last message about each thing
        self._said: Final[dict[int, _Said]] = {}
        self._numbers: Final = count(1)

    def say(self, message: Message, by: Child, acceptors: Iterable[Child]) -> None:
        number = next(self._numbers)
        about = message["protocol"], message["what"]
        self._last.pop(about, None)  # acceptors that start later hear all messages in the order of saying
        told = self._last[about] = {**message, "do": "shared", "number": number}
        said = self._said[number] = _Said(by, told)
        for one in acceptors:
            if one is not by and one.alive:
                said.waits_for.append(one)
                one.send(told)
        self._settle(number)

    def obeyed(self, child: Child, number: int) -> None:
        said = self._said.get(number)
        if said is not None and child in said.waits_for:
            said.waits_for.remove(child)
            self._settle(number)

    def gone(self, child: Child) -> None:
        """Waits no longer for an acceptor that is dead."""
        for number, said in list(self._said.items()):
            if said.by is child:
                del self._said[number]
            else:
                self.obeyed(child, number)

    def tell(self, child: Child) -> None:
        """Sends an acceptor that starts all that holds."""
        for message in self._last.values():
            child.send(message)

    def _settle(self, number: int) -> None:
        if not self._said[number].waits_for:
            said = self._said.pop(number)
            said.by.send(said.message)
