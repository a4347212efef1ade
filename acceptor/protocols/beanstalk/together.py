"""A question about the whole broker that many connections ask at once: the workers are asked once for all of them.

A round answers all connections that had asked before it began; connections that ask meanwhile wait for the next round.
So a hundred clients with `stats` or `list-tubes` cost as much as two, and do not hold up other clients.
"""

from __future__ import annotations

from collections.abc import Callable


class Together:
    """`ask` puts the question to the workers on behalf of one connection, to which their answers come."""

    def __init__(self, ask: Callable[[int], None]) -> None:
        self._ask = ask
        # Connections in order of arrival; dicts, so that some can be removed. A round is asked on behalf of its first.
        self._asked: dict[int, None] = {}
        self._waiting: dict[int, None] = {}

    def join(self, conn: int) -> None:
        self._waiting[conn] = None
        if not self._asked:
            self._begin()

    def answered(self, tell: Callable[[int], None]) -> None:
        """The workers have answered: calls `tell` for each connection of the round."""
        asked, self._asked = self._asked, {}
        for conn in asked:
            tell(conn)
        if self._waiting and not self._asked:
            self._begin()

    def leave(self, conn: int) -> None:
        """Removes a connection that has closed or was told that its command failed."""
        self._waiting.pop(conn, None)
        if conn not in self._asked:
            return
        leads = next(iter(self._asked)) == conn
        del self._asked[conn]
        if leads and self._asked:
            self._ask(next(iter(self._asked)))
        elif leads and self._waiting:
            self._begin()

    def _begin(self) -> None:
        self._asked, self._waiting = self._waiting, {}
        self._ask(next(iter(self._asked)))
