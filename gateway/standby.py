"""The gateway's first code: until somebody comes to it, nothing else of it is loaded.

Most brokers are never asked over HTTP, and what it takes to answer is a third of a small broker's memory. What the
supervisor says meanwhile is kept; the first connection ends the wait. One that has work of its own (nsqlookupd, statsd,
what a writer decided and a gateway before it did not carry out, what Pulsar's clients have made) does not wait.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Final, TypeAlias

from mq_shards.gateway import services
from mq_shards.gateway.pipeline import leftovers
from mq_shards.ringbuf.control import Control, Message

Told: TypeAlias = list[tuple[Message, list[int]]]
Serve: TypeAlias = Callable[[Control, Told], None]

# What brings descriptors that no client writes to: a worker's rings, a file of users, what other files had in them.
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
        """Until there is work, or the end of it: `stopped`. EOFError when the supervisor is gone."""
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
            elif what == "gone":
                self._forget(message["worker"])
            else:
                self._supersede(message)
                self.told.append((message, fds))
                if what == "go":
                    self._control.send({"did": "ready"})
                    message["answered"] = True
                elif what not in NO_CLIENTS and what != "start":
                    for fd in fds:
                        self._poll.register(fd, select.POLLIN)

    def _supersede(self, message: Message) -> None:
        """What is said again and again is kept as it was said last."""
        what = message["do"]
        if what not in AS_SAID_LAST:
            return
        for one, fds in self.told:
            for fd in fds if one["do"] == what else ():
                os.close(fd)
        self.told = [(one, fds) for one, fds in self.told if one["do"] != what]

    def _forget(self, worker: int) -> None:
        """The rings to it, which have not been looked at."""
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
        tells = services.tells_somebody(listening, start["settings"])
        data_dir = start["data_dir"]
        return bool(tells or start["again"] or leftovers.are_in(data_dir) or services.is_left(data_dir))


def main(control: Control) -> None:
    standby = Standby(control)
    standby.wait()
    if standby.stopped:
        control.send({"did": "stopped"})
        return
    from mq_shards.gateway import process

    process.main(control, standby.told)
