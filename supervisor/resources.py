"""What the broker takes before any of its processes runs: sockets, the data directory with its lock, the board.

In this order, since those that keep out a second broker come first. All of it is given back when the broker ends. Must
never: start a process that stays.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mq_shards.ringbuf import board, listening
from mq_shards.shards import last_run
from mq_shards.shards.data_directory import DataDirectory
from mq_shards.shards.last_run import LastRun
from mq_shards.shards.paths import META
from mq_shards.shards.store_error import explained
from mq_shards.supervisor import inherited, privileges, unix_sockets
from mq_shards.supervisor.barrier import Barrier
from mq_shards.supervisor.beside import beside
from mq_shards.supervisor.listeners import BACKLOG, Listener, listen_on
from mq_shards.supervisor.options.defaults import DEFAULT_SHARDS
from mq_shards.supervisor.options.listen import Listen
from mq_shards.supervisor.options.options import Options, shards_in_memory, worker_count

log: Final = logging.getLogger(__name__)


class StartError(Exception):
    """One line for the operator: why the broker cannot run."""


@dataclass(slots=True, eq=False, repr=False)
class Resources:
    """What the broker owns before it has a process."""

    listeners: list[Listener]
    directory: DataDirectory | None  # None: messages are kept in memory only
    shards: int
    workers: int  # how many processes the shards are divided among
    board_fd: int
    barrier: Barrier | None  # None: there is no data directory
    backups: socket.socket | None  # where backups ask for the barrier
    last_run: LastRun | None

    @property
    def data_dir(self) -> str | None:
        return None if self.directory is None else str(self.directory.path)

    @property
    def addresses(self) -> list[Listen]:
        return [listener.address for listener in self.listeners]

    def listen_for_gateway(self) -> bool:
        """Whether all its sockets listen. If not, the gateway, which tries the same, says why and is started again."""
        try:
            for listener in self.listeners:
                if listener.address.by_gateway:
                    listening.begin(listener.socket_of(0), BACKLOG)
        except OSError:
            return False
        return True


def take(options: Options, stack: contextlib.ExitStack, load: Callable[[], object]) -> Resources:
    """`stack` gives all of it back. `load` loads what the processes will need: the disk is not waited for meanwhile.
    Raises StartError, ListenError, StoreError, OptionsError, or OSError when memory or
    descriptors are short."""
    listeners = _take_sockets(options, stack)
    with _data_directory_made(options):
        load()
    cores = len(os.sched_getaffinity(0))
    directory, barrier, backups, last = _open_data(options, stack)
    shards = shards_in_memory(options, cores) if directory is None else directory.shards
    workers = worker_count(options.workers, options.acceptors, shards, cores)
    board_fd = board.create()
    stack.callback(os.close, board_fd)
    return Resources(listeners, directory, shards, workers, board_fd, barrier, backups, last)


def _take_sockets(options: Options, stack: contextlib.ExitStack) -> list[Listener]:
    """Also becomes the user that the broker runs as, once it has the ports for which it may have to be root."""
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
    listeners = listen_on(options.listen, options.acceptors, access, passed)
    options.check_doors([listener.address for listener in listeners])
    for number, one in enumerate(passed):
        if not one.taken:
            log.warning("socket %d of the service manager (%s) is not used", number, one.name or "without a name")
    for listener in listeners:
        stack.callback(listener.close)
    if user is not None:
        try:
            privileges.become(user, serves_http=options.gateway)
        except ValueError as error:
            raise StartError(str(error)) from None
        options.check_files()
    return listeners


def _data_directory_made(options: Options) -> contextlib.AbstractContextManager[None]:
    """Has a data directory that is new made beside what is done in this context."""
    path = options.data_dir
    if path is None or os.path.lexists(path / META):
        return contextlib.nullcontext()
    return beside(lambda: DataDirectory.open_or_create(path, options.shards, DEFAULT_SHARDS, begun=True).close())


def _open_data(
    options: Options, stack: contextlib.ExitStack
) -> tuple[DataDirectory | None, Barrier | None, socket.socket | None, LastRun | None]:
    """Locks the data directory, if there is one."""
    if options.data_dir is None:
        return None, None, None, None
    directory = DataDirectory.open_or_create(options.data_dir, options.shards, DEFAULT_SHARDS, begun=True)
    stack.callback(directory.close)
    barrier = Barrier(directory.shards)
    backups = barrier.listen(options.data_dir)
    if backups is not None:
        stack.callback(backups.close)
    with explained(f"{options.data_dir / last_run.NAME} cannot be read"):
        last = LastRun.look(options.data_dir)
    if last.why_lost:
        log.info("all seqs and ids go on far behind what is there, so that none is given out twice: %s", last.why_lost)
    return directory, barrier, backups, last
