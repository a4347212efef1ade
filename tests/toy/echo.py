"""The echo protocol's rare command: the line that names a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Answer, WorkerRequest
from mq_shards.acceptor.option_kinds import Kind, Text
from mq_shards.acceptor.protocol import Protocol
from mq_shards.csrc._core import ffi, lib

TIMEOUT_NS: Final = 60_000_000_000


class Echo(Protocol):
    name = "echo"
    port = 7007
    example = r"printf 'greetings\nhello\n' | nc -w 1 {host} {port}"
    options: ClassVar[Mapping[str, Kind]] = {"channel": Text("echo", "the channel that clients consume")}

    def command(self, conn: int, command: bytes) -> None:
        topic = self._engine.bind(command)
        channel = self._settings["channel"].encode()
        terms = ffi.new("struct subscribe *", {"timeout_ns": TIMEOUT_NS, "name_bytes": len(channel)})
        body = bytes(ffi.buffer(terms)) + channel
        worker = self._engine.worker_of_topic(topic)
        asked = WorkerRequest(lib.MSG_SUBSCRIBE, topic=topic, body=body)
        if topic == 0 or self._engine.request(worker, conn, asked) < 0:
            self._engine.close_connection(conn)

    def answer(self, conn: int, answer: Answer) -> None:
        if answer.status == engine.OK:
            self._engine.resume(conn)
        else:
            self._engine.close_connection(conn)


PROTOCOL: Final = Echo
