"""One moment of all shards, for `mq-shards backup`: all workers hold still until each has said how far its logs go.

Owns: the socket name at which a backup asks (shards/hold.py), and at most one such moment at a time. A backup only
connects, sends nothing, and is answered once. When a worker does not hold still in time, or dies, only that backup's
moment fails: all other workers go on by themselves.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mq_shards.ringbuf.control import Control, ControlError, Message
from mq_shards.shards.hold import HOLD_S, address_of, user_of
from mq_shards.supervisor.child import Child

BACKLOG: Final = 8
WAIT_S: Final = HOLD_S / 2  # a late worker is found out before the workers that wait for it give up

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class _Moment:
    """A backup's moment: from the question until all workers are released."""

    number: int
    client: Control
    until: float
    workers: Sequence[Child]
    ends: dict[Child, list[list[int]]] = field(default_factory=dict)
    released: set[Child] = field(default_factory=set)
    at_ns: int = 0  # the wall clock while all workers held still; 0: not yet


class Barrier:
    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._number = 0
        self._moment: _Moment | None = None
        self._owing: dict[Child, int] = {}  # pids of processes that have not said "released"

    @property
    def due_at(self) -> float | None:
        return None if self._moment is None else self._moment.until

    @staticmethod
    def listen(data_dir: Path) -> socket.socket | None:
        """Returns None, after a warning, when the name cannot be bound: backups then have no such moment."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            sock.bind(address_of(data_dir))
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            log.warning("backups of %s will be of nearly one moment only: %s", data_dir, error)
            return None
        return sock

    def asked(self, listening: socket.socket, workers: Sequence[Child], now: float) -> None:
        with contextlib.suppress(OSError):  # the backup has disconnected again
            accepted, _ = listening.accept()
            if user_of(accepted) not in (0, os.geteuid()):
                accepted.close()
                return
            client = Control(accepted)
            if self._moment is not None:
                _answer(client, {"did": "refused", "reason": "another backup is asking"})
            elif late := [worker.title for worker in workers if not self._may_be_asked(worker)]:
                _answer(client, {"did": "refused", "reason": f"{', '.join(late)}: not ready"})
            else:
                self._begin(client, workers, now)

    def _may_be_asked(self, worker: Child) -> bool:
        return worker.serving and self._owing.get(worker) != worker.pid

    def _begin(self, client: Control, workers: Sequence[Child], now: float) -> None:
        self._number += 1
        self._moment = _Moment(self._number, client, now + WAIT_S, workers)
        for worker in workers:
            self._owing[worker] = worker.pid
            worker.send({"do": "hold", "number": self._number})

    def heard(self, worker: Child, message: Message) -> None:
        moment = self._moment
        if message["did"] == "released":
            self._owing.pop(worker, None)
        if moment is None or message["number"] != moment.number:
            return  # too late: the backup has been refused already
        if message["did"] == "held":
            moment.ends[worker] = message["ends"]
            if len(moment.ends) == len(moment.workers):
                moment.at_ns = time.time_ns()
                self._release(moment)
        elif not message["in_time"]:
            self._fail(f"{worker.title} could not wait for the others")
        else:
            moment.released.add(worker)
            if len(moment.released) == len(moment.workers):
                self._moment = None
                _answer(moment.client, {"did": "held", "at_ns": moment.at_ns, "ends": self._by_shard(moment)})

    def gone(self, worker: Child) -> None:
        if self._moment is not None and worker in self._moment.workers:
            self._fail(f"{worker.title} has ended")

    def look(self, now: float) -> None:
        moment = self._moment
        if moment is not None and now >= moment.until:
            said = moment.released if moment.at_ns else moment.ends.keys()
            late = [worker.title for worker in moment.workers if worker not in said]
            self._fail(f"{', '.join(late)}: no answer within {WAIT_S:g} s")

    def _release(self, moment: _Moment) -> None:
        for worker in moment.workers:
            worker.send({"do": "release", "number": moment.number})

    def _fail(self, reason: str) -> None:
        assert self._moment is not None
        moment, self._moment = self._moment, None
        if not moment.at_ns:
            self._release(moment)
        _answer(moment.client, {"did": "refused", "reason": reason})

    def _by_shard(self, moment: _Moment) -> list[list[int]]:
        count = len(moment.workers)
        return [moment.ends[moment.workers[shard % count]][shard // count] for shard in range(self._shards)]


def _answer(client: Control, message: Message) -> None:
    with contextlib.suppress(OSError, ControlError):  # the backup has not waited
        client.send(message, timeout_s=0)
    client.close()
