"""The acceptor process: its main loop, and what the supervisor tells it (shards/supervisor.py has the messages)."""

from __future__ import annotations

import logging
import os
import time
from typing import Final

from acceptor import engine
from acceptor.engine import PROTOCOLS, Engine, Upcall
from acceptor.protocols.beanstalk import Beanstalk, Broker
from shards.control import Control, Message

# At a stop: how long replies may take to get out, and how often it is looked whether they have.
FLUSH_S: Final = 1.0
FLUSH_STEP_NS: Final = 10_000_000

log = logging.getLogger(__name__)


class AcceptorProcess:
    def __init__(self, control: Control, start: Message, board_fd: int, wake_fd: int) -> None:
        self._control = control
        self._engine = Engine(start["index"], start["workers"], start["shards"], board_fd, wake_fd)
        settings = start["settings"]["beanstalk"]
        for name, value in settings.items():
            self._engine.set(f"beanstalk.{name}", value)
        limits = start["settings"]["broker"]
        self._engine.set("max-connections", limits["max-connections"])
        self._engine.set("spin-ns", limits["acceptor-spin-us"] * 1000)
        broker = Broker(start["instance"], start["started_wall_ns"], settings["max-job-size"])
        self._beanstalk = Beanstalk(self._engine, broker)
        self._serving = False
        self._stopping = False

    def run(self) -> None:
        """Serves until told to stop. EOFError when the supervisor is gone."""
        while not self._serving and not self._stopping:
            self._do(*self._control.receive())
        self._engine.control(self._control.fileno())
        while not self._stopping:
            self._engine.run()
            self._handle_upcalls()
        self._stop()

    def _stop(self) -> None:
        self._engine.stop_listening()
        self._engine.quiesce()
        deadline = time.monotonic() + FLUSH_S
        while self._engine.busy() and time.monotonic() < deadline:
            self._engine.run(FLUSH_STEP_NS)
            self._handle_upcalls()
        self._engine.close()
        self._control.send({"did": "stopped"})

    def _handle_upcalls(self) -> None:
        for upcall in self._engine.upcalls():
            self._handle(upcall)

    def _handle(self, upcall: Upcall) -> None:
        if upcall.kind in (engine.COMMAND, engine.ANSWER):
            self._serve(upcall)
        elif upcall.kind == engine.CLOSED:
            self._beanstalk.closed(upcall.conn)
        elif upcall.kind == engine.BROKEN:
            # What came over the ring cannot have been written by a worker of ours. New rings come with a new process.
            raise RuntimeError(f"the ring from worker {upcall.conn} is broken")
        elif upcall.kind == engine.CONTROL:
            arrived = self._control.receive_now()
            if arrived is not None:
                self._do(*arrived)

    def _serve(self, upcall: Upcall) -> None:
        """A defect that one client's command brings to light must not cost the others their connections."""
        try:
            if upcall.answer is not None:
                self._beanstalk.answer(upcall.conn, upcall.answer)
            else:
                self._beanstalk.command(upcall.conn, upcall.line)
        except Exception:
            log.exception("cannot handle %r of connection %#x", upcall.answer or upcall.line, upcall.conn)
            self._beanstalk.failed(upcall.conn)

    def _do(self, message: Message, fds: list[int]) -> None:
        try:
            match message["do"]:
                case "peer":
                    self._engine.peer(message["worker"], fds[0], fds[1], fds[2])
                    log.debug("worker %d is attached (epoch %d)", message["worker"], message["epoch"])
                case "gone":
                    self._engine.peer_gone(message["worker"])
                    log.debug("worker %d is gone", message["worker"])
                case "listen":
                    self._engine.listen(fds.pop(), PROTOCOLS[message["protocol"]])
                case "go":
                    self._serving = True
                    self._control.send({"did": "ready"})
                case "stop":
                    self._stopping = True
                case other:
                    raise ValueError(f"the supervisor wants {other!r} of an acceptor")
        finally:
            for fd in fds:
                os.close(fd)


def main(control: Control) -> None:
    start, (board_fd, wake_fd) = control.receive()
    if start["do"] == "stop":
        return
    process = AcceptorProcess(control, start, board_fd, wake_fd)
    os.close(board_fd)
    process.run()
