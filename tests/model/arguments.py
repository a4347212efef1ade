"""Arguments of beanstalkd's commands, as it reads them."""

from __future__ import annotations

import re

NAME = re.compile(rb"[A-Za-z0-9+/;.$_()][-A-Za-z0-9+/;.$_()]{0,199}\Z")


class MalformedError(Exception):
    """A command line that is answered with BAD_FORMAT."""


class Arguments:
    """The rest of a command line, read from left to right as beanstalkd reads it."""

    def __init__(self, rest: bytes) -> None:
        self.rest = rest

    def number(self, most: int) -> int:
        match = re.match(rb" *([0-9]+)", self.rest)
        if match is None or int(match[1]) > most:
            raise MalformedError
        self.rest = self.rest[match.end() :]
        return int(match[1])

    def last_number(self, most: int) -> int:
        value = self.number(most)
        self.end()
        return value

    def name(self) -> bytes:
        if not NAME.match(self.rest):
            raise MalformedError
        return self.rest

    def end(self) -> None:
        if self.rest:
            raise MalformedError
