"""The client of beanstalkd's protocol: a topic is a tube."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from mq_shards.supervisor.terminal.client import At, Client, ClientError, LostError, Message, as_word
from mq_shards.supervisor.terminal.wire import Wire

PRIORITY: Final = 1024
TTR_S: Final = 60
LIST_S: Final = 5.0
AT_ONCE: Final = 64  # puts without an answer yet


class Beanstalk(Client):
    def __init__(self, at: At) -> None:
        super().__init__(at)
        self._wire = Wire(at)

    def close(self) -> None:
        self._wire.close()

    def _ask(self, command: str, *expected: str) -> list[str]:
        """Sends a command; returns the words of the answer. ClientError unless the first is one of `expected`."""
        self._wire.send(command.encode() + b"\r\n")
        return self._answer(command, *expected)

    def _answer(self, command: str, *expected: str) -> list[str]:
        words = self._wire.line().decode("latin-1").split(" ")
        if words[0] not in expected:
            raise ClientError(f"{self.at} answers {' '.join(words)} to {command.split(' ')[0]}")
        return words

    def _body(self, size: str) -> bytes:
        return self._wire.take(int(size) + 2)[:-2]

    def publish(self, topic: str, bodies: Iterable[bytes], delay_s: float = 0.0) -> int:
        self._ask(f"use {as_word(topic)}", "USING")
        count = asked = 0
        for body in bodies:
            head = b"put %d %d %d %d\r\n" % (PRIORITY, round(delay_s), TTR_S, len(body))
            self._wire.send(head + body + b"\r\n")
            asked += 1
            if asked - count >= AT_ONCE:
                self._answer("put", "INSERTED")
                count += 1
        while count < asked:
            self._answer("put", "INSERTED")
            count += 1
        return count

    def consume(self, topic: str, channel: str) -> Iterator[Message]:
        self._ask(f"watch {as_word(topic)}", "WATCHING")
        if topic != "default":
            self._ask("ignore default", "WATCHING")
        self._wire.wait_for_ever()
        return self._messages(topic)

    def _messages(self, topic: str) -> Iterator[Message]:
        while True:
            words = self._ask("reserve", "RESERVED", "DEADLINE_SOON")
            if words[0] == "RESERVED":
                yield Message(topic, self._body(words[2]), {"job": int(words[1])}, words[1])

    def finish(self, message: Message) -> None:
        self._ask(f"delete {message.handle}", "DELETED")

    def empty(self, topic: str) -> None:
        """Takes and deletes all jobs that are ready."""
        self._ask(f"watch {as_word(topic)}", "WATCHING")
        self._ask("ignore default", "WATCHING")
        taken = [""] * AT_ONCE
        while len(taken) == AT_ONCE:
            taken.clear()
            self._wire.send(b"reserve-with-timeout 0\r\n" * AT_ONCE)
            for _ in range(AT_ONCE):
                words = self._answer("reserve", "RESERVED", "TIMED_OUT")
                if words[0] == "RESERVED":
                    self._body(words[2])
                    taken.append(words[1])
            self._wire.send("".join(f"delete {job}\r\n" for job in taken).encode())
            for _ in taken:
                self._answer("delete", "DELETED")

    def _stats(self, command: str) -> dict[str, str] | None:
        """None when it is not there."""
        words = self._ask(command, "OK", "NOT_FOUND")
        if words[0] != "OK":
            return None
        lines = self._body(words[1]).decode("latin-1").splitlines()
        return dict(line.split(": ", 1) for line in lines if ": " in line)

    def topics(self) -> list[dict[str, Any]]:
        self._ask("list-tube-used", "USING")  # a broker of ours answers it whatever becomes of its workers
        self._wire.limit(LIST_S)
        try:
            size = self._ask("list-tubes", "OK")[1]
        except LostError as error:
            raise LostError(f"{error}; every worker is asked, and one may hang: mq-shards top shows which") from None
        names = [line[2:] for line in self._body(size).decode("latin-1").splitlines() if line.startswith("- ")]
        found = []
        for name in sorted(names):
            tube = self._stats(f"stats-tube {name}")
            if tube is not None:
                number = {key: int(value) for key, value in tube.items() if value.isdecimal()}
                backlog = sum(number[f"current-jobs-{state}"] for state in ("ready", "delayed", "buried"))
                found.append({
                    "name": name, "in": None, "out": None, "backlog": backlog,
                    "in_flight": number["current-jobs-reserved"], "consumers": number["current-watching"],
                    "published": number["total-jobs"],
                })  # fmt: skip
        return found

    def peek(self, topic: str, first: int | None, limit: int) -> Iterator[Message]:
        """Uses beanstalkd's own peeks: the next job of each state."""
        if self._stats(f"stats-tube {as_word(topic)}") is None:
            raise ClientError(f"there is no topic {topic}")
        self._ask(f"use {topic}", "USING")
        found = []
        for state in ("ready", "delayed", "buried"):
            words = self._ask(f"peek-{state}", "FOUND", "NOT_FOUND")
            if words[0] == "FOUND":
                found.append(Message(topic, self._body(words[2]), {"job": int(words[1]), "state": state}))
        return iter(found[:limit])
