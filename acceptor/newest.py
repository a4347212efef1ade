"""Something that changes and that all acceptors are to know: of many changes in a row only the newest is told.

Strangers may be the cause of a change, a server that comes and goes for instance, while the supervisor passes on what
one acceptor tells all of them one message at a time: so one is on its way at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Content = Mapping[str, Any]


class Newest:
    def __init__(self, share: Callable[[Content], None]) -> None:
        """`share` tells all acceptors, this one last: Broker.share."""
        self._share: Final = share
        self._is_on_its_way = False
        self._told: Content | None = None
        self._waiting: Content | None = None

    def tell(self, content: Content) -> None:
        if self._is_on_its_way:
            self._waiting = content
        elif content != self._told:
            self._told, self._is_on_its_way = content, True
            self._share(content)

    def heard(self) -> None:
        """What was told has come back: all know it."""
        waiting, self._waiting, self._is_on_its_way = self._waiting, None, False
        if waiting is not None:
            self.tell(waiting)
