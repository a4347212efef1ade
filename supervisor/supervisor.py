"""The supervisor: the parent process, which starts the others, joins them by rings, and starts them again.

Here is when things happen: its main loop, the stages from start to stop, and what follows from what children say, from
their end, from signals and from time. What the broker takes first is in resources.py, the processes and what joins them
in processes.py, what they are told at their start in starting.py, when one that died is started again in restarts.py.

Owns: the data directory's lock, the listening sockets, the board, the rings and sockets that join the processes, and
with --memory the segments, which therefore outlive their worker. Must never: touch a ring's content, a log or a
connection, except to close those that nobody can serve (away.py). It talks to a child only through its control socket
(ringbuf/control.py); the messages are

    to an acceptor   start, configure, users, peer (a worker and the two rings to it), gone, calls, calls-due,
                     handover, trouble, listen, go, ping, reload, shared, lame-duck, stderr, stop
    from it          ready, pong, share, obeyed, lame-duck-over, stopped
    to a worker      start, peer (an acceptor and the two rings to it), gone, segment, go, ping, hold, release,
                     stderr, stop
    from it          recovered, synced, refused, keep, drop, disk, pong, held, released, stopped

The gateway (HTTP, and reports to other servers) is one more acceptor to a worker and to most of this module:
the last one. It gets the same messages; its "start" also holds the addresses of all listeners and the data directory,
and it has listeners of its own. It may say "refused", as a worker, and "reload", which is answered with "reloaded".

A pair of rings lives as long as both its processes. When one dies, the other is told "gone"; when it is back, both get
new rings with the next epoch. A worker gets its side before it recovers, an acceptor only after the worker's recovery.
"""

from __future__ import annotations

import contextlib
import enum
import gc
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from mq_shards.acceptor.protocols.table import PROTOCOLS
from mq_shards.gateway import services
from mq_shards.ringbuf import board
from mq_shards.ringbuf.control import Control, ControlError, Message
from mq_shards.shards.store_error import StoreError
from mq_shards.supervisor import away, resources, restarts, signals
from mq_shards.supervisor.announcing import announce, say_recovered
from mq_shards.supervisor.calls import tell_due
from mq_shards.supervisor.child import SUPERVISOR_SIGNALS, Child, name_process, preload, raise_descriptor_limit
from mq_shards.supervisor.listeners import ListenError, refuse
from mq_shards.supervisor.liveness import Liveness
from mq_shards.supervisor.log_file import LogFile
from mq_shards.supervisor.notify import Notifier
from mq_shards.supervisor.operations import Operator
from mq_shards.supervisor.options.options import Options
from mq_shards.supervisor.options.sections import broker_number
from mq_shards.supervisor.processes import Entries, Processes
from mq_shards.supervisor.resources import StartError
from mq_shards.supervisor.standby import Standby
from mq_shards.supervisor.starting import Starter
from mq_shards.supervisor.status import Status
from mq_shards.supervisor.stopping import Stop

EXIT_TIMEOUT_S: Final = 2.0  # for a child to end after it has closed its control socket

log = logging.getLogger(__name__)


class Stage(enum.Enum):
    RECOVERING = enum.auto()  # only workers run
    STARTING = enum.auto()  # acceptors and gateway have been started as well
    SERVING = enum.auto()
    STOPPING_ACCEPTORS = enum.auto()
    STOPPING_WORKERS = enum.auto()
    STOPPED = enum.auto()


class Supervisor:
    _resources: resources.Resources
    _processes: Processes
    _starter: Starter

    def __init__(
        self,
        options: Options,
        entries: Entries | None = None,
        clock: Callable[[], float] = time.monotonic,
        reread: Callable[[], Options] | None = None,
        log_file: LogFile | None = None,
    ) -> None:
        """`reread`: see Operator.reload. `log_file` is in use already."""
        self._options = options
        self._log_file: Final = log_file or LogFile()
        self._operator: Final = Operator(self._log_file, reread)
        self._entries: Final = entries or Entries()
        self._clock: Final = clock
        self._notifier: Final = Notifier.from_environment()
        self._selector: Final = selectors.DefaultSelector()
        self._standby: Final = Standby(self._selector, self._begin_gateway)
        self._away: Final = away.Away(self._selector)
        self._liveness: Final = Liveness(broker_number(options.settings, "hang-timeout") / 1e9, clock())
        self._status: Final = Status()
        self._stage = Stage.RECOVERING
        self._stop: Stop | None = None
        self._failed = False
        self._noted = True  # whether what the last run may have lost is made up for
        self._workers_stopped = 0
        self._synced: set[int] = set()  # workers whose part of a new data directory is on the disk

    def run(self) -> int:
        """Serves until told to stop; returns the exit status. Raises StartError or OptionsError if it cannot begin."""
        name_process("mq-supervisor")
        raise_descriptor_limit()
        with contextlib.ExitStack() as stack:
            stack.callback(self._notifier.close)
            stack.callback(self._selector.close)
            stack.callback(self._operator.end)
            wake = stack.enter_context(signals.on_a_socket(SUPERVISOR_SIGNALS))
            self._watch(wake, partial(self._on_signal, wake))
            try:
                self._prepare(stack)
                self._notifier.status("recovering")
                gc.freeze()  # what is loaded stays: to look through it once costs as much as a fork
                gc.enable()
                for worker in self._processes.workers:
                    self._starter.start(worker, self._options)
                while self._stage is not Stage.STOPPED:
                    for key, _ in self._selector.select(self._wait_s()):
                        key.data()
                    self._let_time_pass(self._clock())
                    self._advance()
            except (ListenError, StoreError) as error:
                raise StartError(str(error)) from None
            except OSError as error:  # out of memory, descriptors or processes
                raise StartError(f"cannot go on: {error}") from error
            return int(self._failed or (self._stop is not None and self._stop.failed))

    def _prepare(self, stack: contextlib.ExitStack) -> None:
        options = self._options
        ours = self._resources = resources.take(options, stack, partial(preload, self._entries, self._spoken()))
        if ours.backups is not None:
            self._watch(ours.backups, partial(self._on_backup, ours.backups))
        has_gateway = options.gateway or services.is_left(ours.data_dir)
        meshed = any(address.meshed for address in ours.addresses)
        self._processes = Processes(options, ours.workers, has_gateway, meshed, self._entries)
        stack.callback(self._standby.close)
        stack.callback(self._processes.close)
        self._starter = Starter(ours, self._processes, self._standby, self._watch_child, self._clock)

    def _watch(self, watched: int | socket.socket | Control, ready: Callable[[], None]) -> None:
        self._selector.register(watched, selectors.EVENT_READ, ready)

    def _watch_child(self, child: Child) -> None:
        assert child.control is not None
        self._watch(child.control, partial(self._on_control, child))
        self._watch(child.sentinel, partial(self._on_end, child))

    def _unwatch(self, watched: int | Control) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(watched)

    # --- what children say ------------------------------------------------------------------------------------------

    def _on_control(self, child: Child) -> None:
        """Handles all messages that have arrived. When the child has closed the socket, sets a limit to its life."""
        while child.control is not None:
            try:
                arrived = child.control.receive_now()
                if arrived is None:
                    return
                self._heard(child, *arrived)
            except EOFError:
                self._unwatch(child.control)
                child.close_control()
                if self._stop is None:  # during a stop, the stop's own deadline counts
                    child.kill_at = self._clock() + EXIT_TIMEOUT_S
            except (ControlError, LookupError, TypeError, ValueError) as error:
                log.error("%s (pid %d) sent what it should not: %r; killing it", child.title, child.pid, error)
                self._unwatch(child.control)
                child.close_control()  # nothing more is accepted from it
                child.kill()

    def _heard(self, child: Child, message: Message, fds: list[int]) -> None:
        processes, barrier = self._processes, self._resources.barrier
        try:
            match message["did"]:
                case "recovered" if child.role == "worker":
                    say_recovered(child.title, message)
                    child.serving = True
                    self._noted &= bool(message["noted"])
                    processes.recovered(child)
                    self._is_back(child)
                case "ready" if child.role != "worker":
                    child.serving = True
                    if child.role == "gateway":
                        self._tell_trouble()
                    self._is_back(child)
                case "keep":
                    processes.kept.keep(int(message["shard"]), int(message["segment"]), fds.pop(0))
                case "drop":
                    processes.kept.forget(int(message["shard"]), int(message["segment"]))
                case "share":
                    processes.shares.say(message, child, processes.without_gateway)
                case "obeyed":
                    processes.shares.obeyed(child, int(message["number"]))
                case "reload" if child.role == "gateway":
                    self._reload()
                    child.send({"do": "reloaded", "error": self._operator.reload_error})
                case "lame-duck-over":
                    self._stop_if_all_are_away(child)
                case "disk":
                    self._status.disk(child, str(message["state"]), str(message.get("reason", "")))
                    self._tell_status()
                case "refused" if child.role != "acceptor":
                    self._refused(child, f"cannot serve: {message['reason']}")
                    if child.role == "worker" and self._stage is Stage.RECOVERING:
                        self._fail(self._clock())
                case "synced" if child.role == "worker":
                    self._has_synced(child)
                case "held" | "released" if child.role == "worker" and barrier is not None:
                    barrier.heard(child, message)
                case "pong":
                    self._liveness.answered(child, self._clock())
                case "stopped":  # the process is about to end
                    self._workers_stopped += child.role == "worker"
                case other:
                    raise ValueError(f'"{other}" from a process of the wrong kind or of another version')
        finally:
            for fd in fds:
                os.close(fd)

    def _has_synced(self, worker: Child) -> None:
        """After the last worker, the data directory is new no more. If that cannot be noted, a next start does it."""
        self._synced.add(worker.index)
        directory = self._resources.directory
        if directory is None or len(self._synced) < len(self._processes.workers):
            return
        try:
            directory.synced()
        except StoreError as error:
            log.warning("%s", error)

    def _refused(self, child: Child, why: str) -> None:
        log.error("%s %s", child.title, why)
        child.refused = True
        self._status.refused(child, why)

    def _is_back(self, child: Child) -> None:
        child.refusals = 0
        self._status.serves(child)
        if self._stage in (Stage.STARTING, Stage.SERVING) and child.deaths:
            away_s = self._clock() - child.deaths[-1]
            log.info("%s is back (pid %d), %.3f s after its end", child.title, child.pid, away_s)
            self._tell_status()

    def _on_backup(self, backups: socket.socket) -> None:
        if self._resources.barrier is not None:
            self._resources.barrier.asked(backups, self._processes.workers, self._clock())

    # --- how children end, and are started again --------------------------------------------------------------------

    def _on_end(self, child: Child) -> None:
        if not child.alive:
            return
        self._on_control(child)  # its last messages
        self._unwatch(child.sentinel)
        if child.control is not None:
            self._unwatch(child.control)
        pid = child.pid
        how = child.reap()
        self._processes.ended(child)
        if self._resources.barrier is not None:
            self._resources.barrier.gone(child)
        self._stop_if_all_are_away(child)
        if self._stop is not None:
            self._stop.ended(child, pid, how)
            return
        if how or not child.refused:
            log.error("%s (pid %d) %s", child.title, pid, how or "ended unasked")
        self._plan_restart(child, self._clock())

    def _plan_restart(self, child: Child, now: float) -> None:
        self._status.ended(child)
        delay_s = restarts.plan(child, now)
        if delay_s is None:
            self._fail(now)
            return
        if child.role == "gateway":
            tell_due(self._processes.acceptors, delay_s)
            if delay_s > away.LONG_S:
                self._away.begin(*self._starter.sockets_of_gateway())
        self._tell_status()

    def _start_again(self, child: Child) -> None:
        """Starts a child while the broker serves. Processes, memory or descriptors that are short refuse its start."""
        if child.role == "gateway":
            self._away.end()
        try:
            self._starter.start(child, self._options)
        except OSError as error:
            self._refused(child, f"cannot be started: {error.strerror or error}")
            if child.alive:
                child.abandon()
                self._on_end(child)
            else:
                self._plan_restart(child, self._clock())

    def _begin_gateway(self) -> None:
        self._start_again(self._processes.acceptors[-1])

    # --- stages -----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        processes = self._processes
        if self._stage is Stage.RECOVERING and all(worker.serving for worker in processes.workers):
            self._stage = Stage.STARTING
            self._begin_run()
            self._starter.start_serving(self._options)
        if self._stage is Stage.STARTING and all(map(self._is_settled, processes.all)):
            self._stage = Stage.SERVING
            announce(self._options, self._resources.addresses, self._resources.shards, self._resources.workers)
            self._operator.serving(self._options, self._resources.listeners)
            self._notifier.ready(self._status_line())
        if self._stage is Stage.STOPPING_ACCEPTORS and not any(acceptor.alive for acceptor in processes.acceptors):
            self._stage = Stage.STOPPING_WORKERS
            refuse(self._resources.listeners, served=False)  # one that was still loading has listened since
            for worker in processes.workers:
                worker.send({"do": "stop"})
        if self._stage is Stage.STOPPING_WORKERS and not any(worker.alive for worker in processes.workers):
            self._stage = Stage.STOPPED
            if self._resources.last_run is not None and self._workers_stopped == len(processes.workers):
                self._resources.last_run.stopped()
            log.info("stopped")

    def _begin_run(self) -> None:
        last_run = self._resources.last_run
        if last_run is None:
            return
        if self._noted:
            last_run.begins(sync_always=self._options.sync == "always")
        else:
            log.error("the disk has no room to note how far seqs and ids go on: the next start will do so again")

    def _is_settled(self, child: Child) -> bool:
        """Whether the child serves, or need not be waited for: a gateway that is not needed yet, or has died more than
        once."""
        return child.serving or (child.role == "gateway" and (self._standby.waits or len(child.deaths) > 1))

    def _tell_trouble(self) -> None:
        """For health, /metrics and the console."""
        if self._processes.has_gateway:
            gateway = self._processes.acceptors[-1]
            times = {child.title: self._liveness.times[child.title] for child in self._processes.all}
            now = [title for title in self._liveness.hanging() if title != gateway.title]  # it answers when it says so
            gateway.send({"do": "trouble", "hanging": now, "hangs": times, "refusing": self._status.refusing})

    def _tell_status(self) -> None:
        if self._stage is Stage.SERVING:
            self._notifier.status(self._status_line())
            self._tell_trouble()

    def _status_line(self) -> str:
        return self._status.line([*self._processes.workers, *self._processes.acceptors], self._liveness)

    def _fail(self, now: float) -> None:
        self._failed = True
        self._begin_stop(now)

    def _begin_stop(self, now: float) -> None:
        if self._stop is not None:
            return
        self._stage = Stage.STOPPING_ACCEPTORS
        self._stop = Stop(now, broker_number(self._options.settings, "stop-timeout") / 1e9)
        self._notifier.stopping("stopping")
        self._standby.end()
        self._away.end()
        for child in self._processes.all:
            child.restart_at = None
        refuse(self._resources.listeners, served=True)
        for acceptor in self._processes.acceptors:
            acceptor.send({"do": "stop"})

    def _stop_if_all_are_away(self, child: Child) -> None:
        if self._operator.are_all_away(child):
            log.info("all clients that could go elsewhere are gone: stopping")
            self._begin_stop(self._clock())

    def _look_at_stop(self, stop: Stop, now: float) -> None:
        left = self._processes.alive
        # First acceptors and gateway send out what they have, then workers write and sync what they have.
        first = [child for child in left if child.role != "worker"]
        titles = stop.look(left, first or left, now)
        if titles:
            self._notifier.stopping(f"stopping, waiting for {titles}")

    # --- time and signals -------------------------------------------------------------------------------------------

    def _spoken(self) -> list[Callable[[], object]]:
        """What loads the modules that acceptors need of each protocol."""
        names = {*(address.spoken for address in self._options.listen), *self._options.contents}
        return [PROTOCOLS[name].serving_class for name in sorted(names & PROTOCOLS.keys())]

    def _wait_s(self) -> float | None:
        times: list[float | None] = []
        times += [self._liveness.due_at, self._notifier.alive_at] if self._stop is None else self._stop.due_at
        if self._resources.barrier is not None:
            times.append(self._resources.barrier.due_at)
        for child in self._processes.all:
            times += child.restart_at, child.kill_at
        first = min((at for at in times if at is not None), default=None)
        return None if first is None else max(0.0, first - self._clock())

    def _let_time_pass(self, now: float) -> None:
        children = [*self._processes.workers, *self._processes.acceptors]
        if self._resources.barrier is not None:
            self._resources.barrier.look(now)
        is_due = self._liveness.due_at <= now and self._stop is None
        if self._stop is None:
            self._notifier.alive(now)
        if is_due:
            self._log_file.rotate_if_long(children)
            if self._liveness.look(children, now):
                self._tell_status()
        for child in children:
            if child.restart_at is not None and child.restart_at <= now:
                self._start_again(child)
            if child.kill_at is not None and child.kill_at <= now:
                child.kill_at = None
                log.error("%s (pid %d) has closed its control socket and goes on: killing it", child.title, child.pid)
                child.kill()
        if self._stop is not None:
            self._look_at_stop(self._stop, now)

    def _reload(self) -> None:
        self._options = self._operator.reload(self._options, self._processes.acceptors, self._processes.workers)

    def _on_signal(self, wake: socket.socket) -> None:
        for number in wake.recv(64):
            name = signal.Signals(number).name
            if number == signal.SIGUSR1 and self._options.log_file.path:
                self._log_file.reopen(self._processes.all)
            elif number == signal.SIGUSR1:
                board.drain(self._resources.board_fd)
                self._status.draining = True
                log.info("%s: drain mode, new messages are refused from now on", name)
                self._tell_status()
            elif number == signal.SIGHUP:
                self._reload()
            elif number == signal.SIGUSR2 and self._stop is None:
                self._operator.send_clients_away(self._resources.listeners, self._processes.acceptors)
            elif self._stop is not None:
                self._stop.signalled(name, self._processes.alive, self._clock())
            else:
                log.info("%s: stopping", name)
                self._begin_stop(self._clock())
