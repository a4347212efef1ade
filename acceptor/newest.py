"""Tells all acceptors a value that changes: of many changes in a row only the newest is sent.

Strangers can cause changes, for instance a server that connects and leaves again and again, but the supervisor passes
on one message at a time of an acceptor to all others. So at most one message is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Content = Mapping[str, Any]


class Newest:
    def __init__(self, share: Callable[[Content], None]) -> None:
        """`share` tells all acceptors, this one last: see Broker.share."""
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
        """The message sent last has come back: all acceptors know it."""
        waiting, self._waiting, self._is_on_its_way = self._waiting, None, False
        if waiting is not None:
            self.tell(waiting)
