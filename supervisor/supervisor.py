"""The supervisor: the parent process, which starts the others, joins them by rings, and starts them again.

Owns: the data directory's lock, the listening sockets, the board, the rings and sockets that join the processes, and
with --memory the segments, which therefore outlive their worker. Must never: touch a connection, a ring's content or a
log. It talks to a child only through its control socket (ringbuf/control.py); the messages are

    to an acceptor   start, configure, users, peer (a worker and the two rings to it), gone, calls, calls-due,
                     handover, listen, go, ping, reload, shared, lame-duck, stderr, stop
    from it          ready, pong, share, obeyed, lame-duck-over, stopped
    to a worker      start, peer (an acceptor and the two rings to it), gone, segment, go, ping, hold, release,
                     stderr, stop
    from it          recovered, refused, keep, drop, disk, pong, held, released, stopped

The gateway (HTTP, and reports to other servers) is one more acceptor to a worker and to most of this module:
the last one. It gets the same messages; its "start" also holds the addresses of all listeners and the data directory,
and it has listeners of its own. It may say "reload", which is answered with "reloaded".

A pair of rings lives as long as both its processes. When one dies, the other is told "gone"; when it is back, both get
new rings with the next epoch. A worker gets its side before it recovers, an acceptor only after the worker's recovery.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Final, NamedTuple

from mq_shards.gateway import services
from mq_shards.ringbuf import board, listening
from mq_shards.ringbuf.control import Control, ControlError, Message
from mq_shards.shards.store import DataDirectory, StoreError
from mq_shards.supervisor import contents, inherited, privileges, restarts, standby, unix_sockets
from mq_shards.supervisor.announcing import announce
from mq_shards.supervisor.barrier import Barrier
from mq_shards.supervisor.calls import join_by_calls, tell_due
from mq_shards.supervisor.child import SUPERVISOR_SIGNALS, Child, name_process, preload, raise_descriptor_limit
from mq_shards.supervisor.handover import Handovers
from mq_shards.supervisor.kept import KeptSegments
from mq_shards.supervisor.listeners import BACKLOG, Listener, ListenError, listen_on, refuse
from mq_shards.supervisor.liveness import Liveness
from mq_shards.supervisor.log_file import LogFile
from mq_shards.supervisor.mesh import Mesh
from mq_shards.supervisor.notify import Notifier
from mq_shards.supervisor.operations import Operator
from mq_shards.supervisor.options.options import DEFAULT_SHARDS, Listen, Options, shards_in_memory, worker_count
from mq_shards.supervisor.options.schemes import SECURE
from mq_shards.supervisor.rings import Rings
from mq_shards.supervisor.shares import Shares
from mq_shards.supervisor.stopping import Stop

EXIT_TIMEOUT_S: Final = 2.0  # for a child to end after it has closed its control socket

log = logging.getLogger(__name__)


class StartError(Exception):
    """One line for the operator: why the broker cannot run."""


class Entries(NamedTuple):
    """Dotted names of the functions that children run; each is called with its end of the control socket."""

    acceptor: str = "mq_shards.acceptor.process.main"
    worker: str = "mq_shards.shards.worker.main"
    gateway: str = "mq_shards.gateway.load.main"


class Stage(enum.Enum):
    RECOVERING = enum.auto()  # only workers run
    STARTING = enum.auto()  # acceptors and gateway have been started as well
    SERVING = enum.auto()
    STOPPING_ACCEPTORS = enum.auto()
    STOPPING_WORKERS = enum.auto()
    STOPPED = enum.auto()


class Supervisor:
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
        self._shares: Final = Shares()
        self._entries: Final = entries or Entries()
        self._clock: Final = clock
        self._notifier: Final = Notifier.from_environment()
        self._selector: Final = selectors.DefaultSelector()
        self._stage = Stage.RECOVERING
        self._stop: Stop | None = None
        self._exit_status = 0
        self._started_wall_ns = time.time_ns()
        self._instance = os.urandom(8).hex()
        self._shards = 0
        self._draining = False
        self._disk_failing: dict[int, str] = {}  # by index of the worker: why the disk refuses writes
        self._listeners: list[Listener] = []
        self._board_fd = -1
        self._has_gateway = False
        self._acceptors: list[Child] = []  # in the order of their places on the board; the gateway is the last
        self._workers: list[Child] = []
        self._rings = Rings([], [], 0)
        self._barrier: Barrier | None = None  # None: there is no data directory
        self._mesh: Mesh | None = None  # None: acceptors need not talk to each other
        self._handovers: Final = Handovers()
        self._kept: Final = KeptSegments()
        self._standby: Final = standby.Standby(self._selector, self._begin_gateway)
        self._liveness: Final = Liveness(self._seconds("hang-timeout"), clock())

    def run(self) -> int:
        """Serves until told to stop; returns the exit status. Raises StartError or OptionsError if it cannot begin."""
        name_process("mq-supervisor")
        raise_descriptor_limit()
        with contextlib.ExitStack() as stack:
            stack.callback(self._notifier.close)
            stack.callback(self._selector.close)
            stack.callback(self._operator.end)
            stack.enter_context(self._signals())
            try:
                self._take_what_is_ours(stack)
                self._notifier.status("recovering")
                preload([*self._acceptors, *self._workers])
                for worker in self._workers:
                    self._start_worker(worker)
                while self._stage is not Stage.STOPPED:
                    for key, _ in self._selector.select(self._wait_s()):
                        key.data()
                    self._let_time_pass(self._clock())
                    self._advance()
            except (ListenError, StoreError) as error:
                raise StartError(str(error)) from None
            except OSError as error:  # out of memory, descriptors or processes
                raise StartError(f"cannot go on: {error}") from error
            return self._exit_status

    # --- what is shared ---------------------------------------------------------------------------------------------

    def _take_what_is_ours(self, stack: contextlib.ExitStack) -> None:
        """Takes sockets, data directory, board, in this order: those that keep out a second broker come first."""
        options = self._options
        # Most ports are only taken here, and listened on by those that serve them: clients are refused until then.
        passed = inherited.take()
        for one in passed:
            stack.callback(one.sock.close)
        limits = options.settings["broker"]
        try:
            user = privileges.identity(options.user) if options.user else None
            runs_as = (user.uid, user.gid) if user is not None and os.geteuid() == privileges.ROOT else (-1, -1)
            access = unix_sockets.access(str(limits["unix-mode"]), str(limits["unix-owner"]), runs_as)
        except ValueError as error:
            raise StartError(str(error)) from None
        self._listeners = listen_on(options.listen, options.acceptors, access, passed)
        options.check_doors([listener.address for listener in self._listeners])
        for number, one in enumerate(passed):
            if not one.taken:
                log.warning("socket %d of the service manager (%s) is not used", number, one.name or "without a name")
        for listener in self._listeners:
            stack.callback(listener.close)
        if user is not None:
            try:
                privileges.become(user, serves_http=options.gateway)
            except ValueError as error:
                raise StartError(str(error)) from None
            options.check_files()
        cores = len(os.sched_getaffinity(0))
        self._open_data(stack, cores)
        workers = worker_count(options.workers, options.acceptors, self._shards, cores)
        self._board_fd = board.create()
        stack.callback(os.close, self._board_fd)
        stack.callback(self._release)
        self._acceptors = [Child("acceptor", i, self._entries.acceptor) for i in range(options.acceptors)]
        self._has_gateway = options.gateway or services.is_left(self._data_dir)
        if self._has_gateway:
            gateway = Child("gateway", options.acceptors, self._entries.gateway, "mq-gateway")
            self._acceptors.append(gateway)
        self._workers = [Child("worker", i, self._entries.worker) for i in range(workers)]
        self._rings = Rings(self._acceptors, self._workers, self._number("ring-bytes"))
        if any(listener.address.meshed for listener in self._listeners):
            self._mesh = Mesh(self._acceptors, self._number("mesh-ring-bytes"))

    def _open_data(self, stack: contextlib.ExitStack, cores: int) -> None:
        """Locks the data directory, if there is one, and learns how many shards it has."""
        options = self._options
        if options.data_dir is None:
            self._shards = shards_in_memory(options, cores)
            return
        directory = DataDirectory.open_or_create(options.data_dir, options.shards, DEFAULT_SHARDS, begun=True)
        stack.callback(directory.close)
        self._shards = directory.shards
        self._barrier = Barrier(self._shards)
        listening = self._barrier.listen(options.data_dir)
        if listening is not None:
            stack.callback(listening.close)
            self._selector.register(listening, selectors.EVENT_READ, partial(self._asked_for_a_moment, listening))

    def _asked_for_a_moment(self, listening: socket.socket) -> None:
        if self._barrier is not None:
            self._barrier.asked(listening, self._workers, self._clock())

    def _release(self) -> None:
        """Kills and reaps every child, whatever the reason for the end."""
        children = [*self._acceptors, *self._workers]
        for child in children:
            child.kill()
        for child in children:
            if child.alive:
                child.reap()
            child.close()
        self._rings.close()
        self._handovers.close()
        self._standby.close()
        self._kept.close()

    # --- starting ---------------------------------------------------------------------------------------------------

    def _start_worker(self, worker: Child) -> None:
        options = self._options
        self._spawn(worker)
        start: Message = {
            "do": "start",
            "index": worker.index,
            "workers": len(self._workers),
            "acceptors": len(self._acceptors),
            "shards": self._shards,
            "own": self._own(worker),
            "data_dir": self._data_dir,
            # In memory there is nothing to sync, and no reply should wait for it.
            "sync": "never" if options.data_dir is None else options.sync,
            "damage": options.damage,
            **self._common(worker),
        }
        worker.send(start, [self._board_fd, worker.wake_fd])
        for acceptor in self._acceptors:
            self._rings.offer(acceptor, worker)
        self._kept.tell(worker, set(start["own"]))
        worker.send({"do": "go"})

    def _start_acceptor(self, acceptor: Child) -> None:
        self._spawn(acceptor)
        start: Message = {
            "do": "start",
            "index": acceptor.index,
            "workers": len(self._workers),
            "acceptors": sum(child.role == "acceptor" for child in self._acceptors),
            "shards": self._shards,
            "started_wall_ns": self._started_wall_ns,
            "instance": self._instance,
            "gateway": self._has_gateway,
            **self._common(acceptor),
        }
        if acceptor.role == "gateway":
            start["addresses"] = [address._asdict() for address in self._addresses]
            start["data_dir"] = self._data_dir
            start["sync"] = self._options.sync
            start["again"] = bool(acceptor.deaths)
        contents.start(acceptor, start, [self._board_fd, acceptor.wake_fd], self._options.files)
        if acceptor.role == "acceptor":
            contents.configure(acceptor, self._options.contents)
        contents.tell_users(acceptor, self._options.users)
        for worker in self._workers:
            if worker.alive:
                self._rings.offer(acceptor, worker)
                self._rings.join(acceptor, worker)
        if self._mesh is not None:
            self._mesh.join(acceptor)
        join_by_calls(acceptor, self._acceptors, self._standby)
        self._handovers.tell(acceptor, self._acceptors, self._addresses)
        for listener in self._listeners:
            if listener.address.is_served_by(acceptor.role, acceptor.index):
                sock = listener.socket_of(acceptor.index)
                listen = {
                    "do": "listen",
                    "protocol": listener.address.spoken,
                    "scheme": listener.address.protocol,
                    "secure": listener.address.protocol in SECURE,
                    "host": listener.address.host,
                    "name": listener.name,
                    "port": listener.address.port,
                    "user": listener.address.user,
                    "cert": listener.address.cert,
                    "key": listener.address.key,
                    "open": listener.address.protocol in self._options.insecure,
                    "backlog": BACKLOG,
                }
                acceptor.send(listen, [sock.fileno()])
        if acceptor.role == "acceptor":
            self._shares.tell(acceptor)
        acceptor.send({"do": "go"})

    def _listen_for_gateway(self) -> bool:
        """Whether all its sockets listen. If not, the gateway, which tries the same, says why and is started again."""
        try:
            for listener in self._listeners:
                if listener.address.by_gateway:
                    listening.begin(listener.socket_of(0), BACKLOG)
        except OSError:
            return False
        return True

    def _start_gateway(self, gateway: Child, listens: bool) -> None:
        """Starts the gateway if it has work, or cannot be waited with; otherwise when somebody comes to it."""
        protocols = {address.protocol for address in self._addresses}
        if not listens or standby.has_work(protocols, self._options.settings, self._data_dir):
            self._start_acceptor(gateway)
            return
        ours = (listener.socket_of(0) for listener in self._listeners if listener.address.by_gateway)
        self._standby.wait([*ours, *self._handovers.ends_of_gateway(self._acceptors, self._addresses)])
        join_by_calls(gateway, self._acceptors, self._standby)

    def _begin_gateway(self) -> None:
        self._start_again(self._acceptors[-1])

    def _start_again(self, child: Child) -> None:
        """Starts a child while the broker serves: that processes, memory or descriptors are short counts as a death."""
        try:
            if child.role == "worker":
                self._start_worker(child)
            else:
                self._start_acceptor(child)
        except OSError as error:
            log.error("%s cannot be started: %s", child.title, error.strerror or error)
            if child.alive:
                child.abandon()
                self._on_end(child)
            else:
                self._plan_restart(child, self._clock())

    @property
    def _addresses(self) -> list[Listen]:
        return [listener.address for listener in self._listeners]

    @property
    def _data_dir(self) -> str | None:
        return None if self._options.data_dir is None else str(self._options.data_dir)

    def _common(self, child: Child) -> Message:
        options = self._options
        return {
            "settings": options.settings,
            "title": child.title,
            "log_level": options.log_level,
            "log_json": options.log_json,
        }

    def _own(self, worker: Child) -> list[int]:
        return list(range(worker.index, self._shards, len(self._workers)))

    def _spawn(self, child: Child) -> None:
        child.started_at = self._clock()
        child.start(self._options.log_level, self._options.log_json)
        assert child.control is not None
        self._selector.register(child.control, selectors.EVENT_READ, partial(self._on_control, child))
        self._selector.register(child.sentinel, selectors.EVENT_READ, partial(self._on_end, child))
        log.debug("%s started (pid %d)", child.title, child.pid)

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
                self._unregister(child.control)
                child.close_control()
                if self._stop is None:  # during a stop, the stop's own deadline counts
                    child.kill_at = self._clock() + EXIT_TIMEOUT_S
            except (ControlError, LookupError, TypeError, ValueError) as error:
                log.error("%s (pid %d) sent what it should not: %r; killing it", child.title, child.pid, error)
                self._unregister(child.control)
                child.close_control()  # nothing more is accepted from it
                child.kill()

    def _heard(self, child: Child, message: Message, fds: list[int]) -> None:
        try:
            match message["did"]:
                case "recovered" if child.role == "worker":
                    self._recovered(child, message)
                case "ready" if child.role != "worker":
                    child.serving = True
                    self._is_back(child)
                case "keep":
                    self._kept.keep(int(message["shard"]), int(message["segment"]), fds.pop(0))
                case "drop":
                    self._kept.forget(int(message["shard"]), int(message["segment"]))
                case "share":
                    self._shares.say(message, child, [one for one in self._acceptors if one.role == "acceptor"])
                case "obeyed":
                    self._shares.obeyed(child, int(message["number"]))
                case "reload" if child.role == "gateway":
                    self._reload()
                    child.send({"do": "reloaded", "error": self._operator.reload_error})
                case "lame-duck-over":
                    self._stop_if_all_are_away(child)
                case "disk":
                    self._disk(child, str(message["state"]), str(message.get("reason", "")))
                case "refused" if child.role == "worker":
                    log.error("%s cannot serve: %s", child.title, message["reason"])
                    self._exit_status = 1
                    self._begin_stop(self._clock())
                case "held" | "released" if child.role == "worker" and self._barrier is not None:
                    self._barrier.heard(child, message)
                case "pong":
                    self._liveness.answered(child, self._clock())
                case "stopped":
                    pass  # the process is about to end
                case other:
                    raise ValueError(f'"{other}" from a process of the wrong kind or of another version')
        finally:
            for fd in fds:
                os.close(fd)

    def _recovered(self, worker: Child, message: Message) -> None:
        for damage in message["damage"]:
            # Damage costs messages; a torn write at the end of the log is normal after a crash.
            (log.info if damage.get("torn") else log.error)(
                "%s: shard %d, segment %d, offset %d: %s",
                worker.title, damage["shard"], damage["segment"], damage["offset"], damage["reason"],
                extra={"fields": damage},
            )  # fmt: skip
        counts = {name: message[name] for name in ("shards", "records", "jobs", "bytes", "seconds")}
        log.info(
            "%s recovered %d messages from %d records (%d bytes) of %d shards in %.3f s",
            worker.title, counts["jobs"], counts["records"], counts["bytes"], counts["shards"], counts["seconds"],
            extra={"fields": counts},
        )  # fmt: skip
        worker.serving = True
        for acceptor in self._acceptors:
            if acceptor.alive:
                self._rings.join(acceptor, worker)
        self._is_back(worker)

    def _is_back(self, child: Child) -> None:
        if self._stage is Stage.SERVING and child.deaths:
            away_s = self._clock() - child.deaths[-1]
            log.info("%s is back (pid %d), %.3f s after its end", child.title, child.pid, away_s)
            self._tell_status()

    def _disk(self, worker: Child, state: str, reason: str) -> None:
        if state == "ok":
            self._disk_failing.pop(worker.index, None)
            log.info("%s: the disk takes writes again", worker.title)
        else:
            self._disk_failing[worker.index] = reason
            log.error("%s: the disk refuses writes: %s", worker.title, reason)
        self._tell_status()

    # --- how children end -------------------------------------------------------------------------------------------

    def _on_end(self, child: Child) -> None:
        if not child.alive:
            return
        self._on_control(child)  # its last messages
        self._unregister(child.sentinel)
        if child.control is not None:
            self._unregister(child.control)
        pid = child.pid
        how = child.reap()
        self._rings.sever(child)
        if self._mesh is not None:
            self._mesh.sever(child)
        self._shares.gone(child)
        if self._barrier is not None:
            self._barrier.gone(child)
        self._stop_if_all_are_away(child)
        if self._stop is not None:
            if how:
                log.error("%s (pid %d) %s while stopping", child.title, pid, how)
                self._exit_status = 1
            return
        log.error("%s (pid %d) %s", child.title, pid, how or "ended unasked")
        self._plan_restart(child, self._clock())

    def _plan_restart(self, child: Child, now: float) -> None:
        if child.role == "gateway":
            delay_s = restarts.auxiliary_delay_s(child, now)
            tell_due(self._acceptors, delay_s)
            if len(child.deaths) > 1:
                log.warning(
                    "%s died %d times, is started again in %g s; messages are served without it",
                    child.title, len(child.deaths), delay_s,
                )  # fmt: skip
        else:
            if child.role == "worker":
                self._disk_failing.pop(child.index, None)
            found = restarts.delay_s(child, now)
            if found is None:
                log.error(
                    "giving up: %s died %d times within %g s", child.title, len(child.deaths), restarts.DEATHS_WINDOW_S
                )
                self._exit_status = 1
                self._begin_stop(now)
                return
            delay_s = found
        child.restart_at = now + delay_s
        self._tell_status()

    # --- stages -----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        if self._stage is Stage.RECOVERING and all(worker.serving for worker in self._workers):
            self._stage = Stage.STARTING
            # First, so that who can connect to a protocol can connect to its monitoring too.
            listens = self._listen_for_gateway()
            for acceptor in self._acceptors:
                if acceptor.role == "gateway":
                    self._start_gateway(acceptor, listens)
                else:
                    self._start_acceptor(acceptor)
        if self._stage is Stage.STARTING and all(map(self._is_settled, [*self._acceptors, *self._workers])):
            self._stage = Stage.SERVING
            announce(self._options, self._addresses, self._shards, len(self._workers))
            self._operator.serving(self._options, self._listeners)
            self._notifier.ready(self._status())
        if self._stage is Stage.STOPPING_ACCEPTORS and not any(acceptor.alive for acceptor in self._acceptors):
            self._stage = Stage.STOPPING_WORKERS
            refuse(self._listeners, served=False)  # one that was still loading has listened since
            for worker in self._workers:
                worker.send({"do": "stop"})
        if self._stage is Stage.STOPPING_WORKERS and not any(worker.alive for worker in self._workers):
            self._stage = Stage.STOPPED
            log.info("stopped")

    def _is_settled(self, child: Child) -> bool:
        """Whether the child serves, or need not be waited for: a gateway that is not needed yet, or has died more than
        once."""
        return child.serving or (child.role == "gateway" and (self._standby.waits or len(child.deaths) > 1))

    def _tell_status(self) -> None:
        if self._stage is Stage.SERVING:
            self._notifier.status(self._status())

    def _status(self) -> str:
        # A gateway that has not died is one that is not needed yet, or begins.
        down = [child.title for child in [*self._workers, *self._acceptors] if not child.serving and child.deaths]
        parts = [f"restarting {', '.join(down)}"] if down else []
        parts += [f"{title} does not answer" for title in self._liveness.hanging()]
        parts += [f"mq-worker-{index}: the disk refuses writes: {why}" for index, why in self._disk_failing.items()]
        return "; ".join(parts or ["serving"]) + (" (draining)" if self._draining else "")

    def _begin_stop(self, now: float) -> None:
        if self._stop is not None:
            return
        self._stage = Stage.STOPPING_ACCEPTORS
        self._stop = Stop(now, self._stop_timeout_s)
        self._notifier.stopping("stopping")
        self._standby.end()
        for child in [*self._acceptors, *self._workers]:
            child.restart_at = None
        refuse(self._listeners, served=True)
        for acceptor in self._acceptors:
            acceptor.send({"do": "stop"})

    def _stop_if_all_are_away(self, child: Child) -> None:
        if self._operator.are_all_away(child):
            log.info("all clients that could go elsewhere are gone: stopping")
            self._begin_stop(self._clock())

    def _kill_all(self, stop: Stop, why: str) -> None:
        left = self._left()
        log.error("%s: killing %s", why, ", ".join(child.title for child in left))
        self._exit_status = 1
        stop.all_are_killed()
        for child in left:
            child.kill()

    def _left(self) -> list[Child]:
        return [child for child in [*self._acceptors, *self._workers] if child.alive]

    @property
    def _stop_timeout_s(self) -> float:
        return self._seconds("stop-timeout")

    def _seconds(self, option: str) -> float:
        """The value, in seconds, of a duration in the section [broker]."""
        return self._number(option) / 1e9

    def _number(self, option: str) -> int:
        """The value of a number or duration (in nanoseconds) in the section [broker]."""
        number = self._options.settings["broker"][option]
        assert isinstance(number, int)
        return number

    def _say_what_is_waited_for(self, taken_s: float) -> None:
        """First acceptors and gateway send out what they have, then workers write and sync what they have."""
        if self._stage is Stage.STOPPING_ACCEPTORS:
            waited_for = [child for child in self._acceptors if child.alive]
        else:
            waited_for = self._left()
        titles = ", ".join(child.title for child in waited_for)
        log.info(
            "stopping for %.0f s, waiting for %s; what is left after %g s is killed",
            taken_s, titles, self._stop_timeout_s,
        )  # fmt: skip
        self._notifier.stopping(f"stopping, waiting for {titles}")

    # --- time and signals -------------------------------------------------------------------------------------------

    def _wait_s(self) -> float | None:
        times: list[float | None] = []
        times += [self._liveness.due_at, self._notifier.alive_at] if self._stop is None else self._stop.due_at
        if self._barrier is not None:
            times.append(self._barrier.due_at)
        for child in [*self._acceptors, *self._workers]:
            times += child.restart_at, child.kill_at
        first = min((at for at in times if at is not None), default=None)
        return None if first is None else max(0.0, first - self._clock())

    def _let_time_pass(self, now: float) -> None:
        if self._barrier is not None:
            self._barrier.look(now)
        is_due = self._liveness.due_at <= now and self._stop is None
        if self._stop is None:
            self._notifier.alive(now)
        if is_due:
            self._log_file.rotate_if_long([*self._acceptors, *self._workers])
            if self._liveness.look([*self._workers, *self._acceptors], now):
                self._tell_status()
        for child in [*self._workers, *self._acceptors]:
            if child.restart_at is not None and child.restart_at <= now:
                self._start_again(child)
            if child.kill_at is not None and child.kill_at <= now:
                child.kill_at = None
                log.error("%s (pid %d) has closed its control socket and goes on: killing it", child.title, child.pid)
                child.kill()
        if self._stop is not None and self._stop.is_overdue(now):
            self._kill_all(self._stop, f"not stopped within {self._stop_timeout_s:g} s")
        if self._stop is not None and self._stage is not Stage.STOPPED and self._stop.is_to_be_said(now):
            self._say_what_is_waited_for(self._stop.has_taken_s(now))

    def _reload(self) -> None:
        self._options = self._operator.reload(self._options, self._acceptors, self._workers)

    def _on_signal(self, wake: socket.socket) -> None:
        for number in wake.recv(64):
            name = signal.Signals(number).name
            if number == signal.SIGUSR1 and self._options.log_file.path:
                self._log_file.reopen([*self._acceptors, *self._workers])
            elif number == signal.SIGUSR1:
                board.drain(self._board_fd)
                self._draining = True
                log.info("%s: drain mode, new messages are refused from now on", name)
                self._tell_status()
            elif number == signal.SIGHUP:
                self._reload()
            elif number == signal.SIGUSR2 and self._stop is None:
                self._operator.send_clients_away(self._listeners, self._acceptors)
            elif self._stop is not None:
                if self._stop.is_asked_again(self._clock()):
                    self._kill_all(self._stop, f"{name} again")
            else:
                log.info("%s: stopping", name)
                self._begin_stop(self._clock())

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Turns signals into bytes on a socket that the selector watches: nothing is done inside a handler."""
        ours, wake = socket.socketpair()
        ours.setblocking(False)
        wake.setblocking(False)
        before_fd = signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, _noted) for number in SUPERVISOR_SIGNALS}
        self._selector.register(wake, selectors.EVENT_READ, partial(self._on_signal, wake))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before_fd)
            ours.close()
            wake.close()

    def _unregister(self, watched: int | Control) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(watched)


def _noted(number: int, frame: FrameType | None) -> None:
    """Does nothing: the byte on the wake-up socket holds the signal's number."""
