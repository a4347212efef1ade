"""The gateway's first code: the rest of the gateway is loaded only when the first client connects.

Most brokers are never used over HTTP, and the code for it takes a third of a small broker's memory. Until the first
connection the supervisor's messages are kept. A gateway with work of its own does not wait: servers to be told of
topics, a writer's decision that an earlier gateway did not carry out, or what clients have left (offer.py).
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable
from typing import Final, TypeAlias

from mq_shards.gateway import services
from mq_shards.gateway.pipeline import leftovers
from mq_shards.ringbuf import listening
from mq_shards.ringbuf.control import STDERR, Control, Message

Told: TypeAlias = list[tuple[Message, list[int]]]
Serve: TypeAlias = Callable[[Control, Told], None]

# Messages whose descriptors no client writes to: a worker's rings, a file of users, the contents of named files.
NO_CLIENTS: Final = ("peer", "gone", "users", "reload")
AS_SAID_LAST: Final = ("reload", "users")


class Standby:
    def __init__(self, control: Control) -> None:
        self._control = control
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self.told: Told = []
        self.stopped = False

    def wait(self) -> None:
        """Waits until there is work, or the supervisor says stop: `stopped`. EOFError when the supervisor is gone."""
        while not self.stopped:
            ready = [fd for fd, _ in self._poll.poll()]
            if self._control.fileno() in ready:
                self._hear()
            elif ready:
                return
            if self._has_work():
                return

    def _hear(self) -> None:
        while not self.stopped and (arrived := self._control.receive_now()) is not None:
            message, fds = arrived
            what = message["do"]
            if what == "stop":
                self.stopped = True
            elif what == "ping":
                self._control.send({"did": "pong"})
            elif what == "stderr":
                os.dup2(fds[0], STDERR)
                os.close(fds[0])
            elif what == "gone":
                self._forget(message["worker"])
            else:
                self._supersede(message)
                self.told.append((message, fds))
                if what == "go":
                    self._control.send({"did": "ready"})
                    message["answered"] = True
                elif what not in NO_CLIENTS and what != "start":
                    if what == "listen":
                        with socket.socket(fileno=os.dup(fds[0])) as sock:
                            listening.begin(sock, message["backlog"])
                    for fd in fds:
                        self._poll.register(fd, select.POLLIN)

    def _supersede(self, message: Message) -> None:
        """Drops earlier messages that this one replaces."""
        what = message["do"]
        if what not in AS_SAID_LAST:
            return
        for one, fds in self.told:
            for fd in fds if one["do"] == what else ():
                os.close(fd)
        self.told = [(one, fds) for one, fds in self.told if one["do"] != what]

    def _forget(self, worker: int) -> None:
        """Drops the kept message with the rings of a worker that has died."""
        kept: Told = []
        for message, fds in self.told:
            if message["do"] == "peer" and message["worker"] == worker:
                for fd in fds:
                    os.close(fd)
            else:
                kept.append((message, fds))
        self.told = kept

    def _has_work(self) -> bool:
        if not self.told:
            return False
        start = self.told[0][0]
        listening = {address["protocol"] for address in start["addresses"]}
        works = services.has_work(listening, start["settings"])
        data_dir = start["data_dir"]
        return bool(works or start["again"] or leftovers.are_in(data_dir) or services.is_left(data_dir))


def main(control: Control) -> None:
    standby = Standby(control)
    standby.wait()
    if standby.stopped:
        control.send({"did": "stopped"})
        return
    from mq_shards.gateway import process

    process.main(control, standby.told)
