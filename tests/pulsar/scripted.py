"""An acceptor's desk without an engine: a worker answers what a script says."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import MagicMock

from mq_shards.acceptor.engine import Answer
from mq_shards.acceptor.protocols.pulsar.clients import Client, Desk, Request
from mq_shards.acceptor.protocols.pulsar.messages import decode, encode


class ScriptedDesk(Desk):
    def __init__(self, *answers: tuple[int, bytes]) -> None:
        """What is asked when there are no more answers gets none."""
        super().__init__(cast(Any, MagicMock()))
        self.answers = list(answers)
        self.asked: list[int] = []
        self.said: list[tuple[str, object]] = []  # names of commands, with their errors

    def ask(self, client: Client, kind: int, topic: object, heard: Any, /, **fields: object) -> bool:  # noqa: ANN401
        self.asked.append(kind)
        if self.answers:
            status, body = self.answers.pop(0)
            heard(Answer(kind, status, 0, 0, body))
        return True

    def say(self, client: Client, name: str, **fields: object) -> None:
        self.said.append((name, fields.get("error")))

    def request(self, client: Client, name: str, **fields: object) -> Request:
        command = decode(encode(name, request_id=1, **fields)[8:])
        assert command is not None
        return Request(self, client, command[1])
