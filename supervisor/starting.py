"""Starts a process and tells it all that it needs: its options, its files, its rings, its sockets.

Which messages these are stands in supervisor.py. When to start one is not decided here.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Final

from mq_shards.ringbuf.control import Message
from mq_shards.supervisor import contents, standby
from mq_shards.supervisor.calls import join_by_calls
from mq_shards.supervisor.child import Child
from mq_shards.supervisor.kept import share
from mq_shards.supervisor.listeners import BACKLOG, Listener
from mq_shards.supervisor.options.options import Options
from mq_shards.supervisor.options.schemes import SECURE
from mq_shards.supervisor.processes import Processes
from mq_shards.supervisor.resources import Resources

log: Final = logging.getLogger(__name__)


class Starter:
    def __init__(
        self,
        resources: Resources,
        processes: Processes,
        gateway_standby: standby.Standby,
        started: Callable[[Child], None],
        clock: Callable[[], float],
    ) -> None:
        """`started` is called for each new process, before it is told anything."""
        self._resources: Final = resources
        self._processes: Final = processes
        self._standby: Final = gateway_standby
        self._started: Final = started
        self._clock: Final = clock
        self._started_wall_ns: Final = time.time_ns()
        self._instance: Final = os.urandom(8).hex()

    def start(self, child: Child, options: Options) -> None:
        """Raises OSError when processes, memory or descriptors are short: a process may then live that is not told all
        that it needs."""
        child.started_at = self._clock()
        child.start(options.log_level, options.log_json)
        self._started(child)
        log.debug("%s started (pid %d)", child.title, child.pid)
        if child.role == "worker":
            self._tell_worker(child, options)
        else:
            self._tell_acceptor(child, options)
        child.send({"do": "go"})

    def start_serving(self, options: Options) -> None:
        """Starts acceptors and gateway; the gateway only if it has work, or cannot be waited with. Otherwise it is
        started when somebody comes to it."""
        # First, so that who can connect to a protocol can connect to its monitoring too.
        listens = self._resources.listen_for_gateway()
        for acceptor in self._processes.acceptors:
            if acceptor.role == "gateway" and listens and not self._gateway_has_work(options):
                self._wait_with(acceptor)
            else:
                self.start(acceptor, options)

    def _gateway_has_work(self, options: Options) -> bool:
        protocols = {address.protocol for address in self._resources.addresses}
        return standby.has_work(protocols, options.settings, self._resources.data_dir)

    def _wait_with(self, gateway: Child) -> None:
        listening, handovers = self.sockets_of_gateway()
        self._standby.wait([*listening, *handovers])
        join_by_calls(gateway, self._processes.acceptors, self._standby)

    def sockets_of_gateway(self) -> tuple[list[socket.socket], list[socket.socket]]:
        """Those at which clients connect to it, and those by which acceptors hand connections over to it."""
        resources, processes = self._resources, self._processes
        listening = [listener.socket_of(0) for listener in resources.listeners if listener.address.by_gateway]
        return listening, processes.handovers.ends_of_gateway(processes.acceptors, resources.addresses)

    def _tell_worker(self, worker: Child, options: Options) -> None:
        resources, processes = self._resources, self._processes
        own = list(range(worker.index, resources.shards, resources.workers))
        start: Message = {
            "do": "start",
            "index": worker.index,
            "workers": resources.workers,
            "acceptors": len(processes.acceptors),
            "shards": resources.shards,
            "own": own,
            "data_dir": resources.data_dir,
            # In memory there is nothing to sync, and no reply should wait for it.
            "sync": "never" if resources.data_dir is None else options.sync,
            "damage": options.damage,
            "lost_end": resources.last_run is not None and bool(resources.last_run.why_lost),
            "new": resources.directory is not None and resources.directory.new,
            "kept_segments": self._kept_segments(options),
            **_common(worker, options),
        }
        worker.send(start, [resources.board_fd, worker.wake_fd])
        for acceptor in processes.acceptors:
            processes.rings.offer(acceptor, worker)
        processes.kept.tell(worker, set(own))

    def _kept_segments(self, options: Options) -> int:
        children = len(self._processes.workers) + len(self._processes.acceptors)
        return share(children, len(self._resources.listeners) * options.acceptors, self._resources.workers)

    def _tell_acceptor(self, acceptor: Child, options: Options) -> None:
        resources, processes = self._resources, self._processes
        start: Message = {
            "do": "start",
            "index": acceptor.index,
            "workers": resources.workers,
            "acceptors": options.acceptors,
            "shards": resources.shards,
            "started_wall_ns": self._started_wall_ns,
            "instance": self._instance,
            "gateway": processes.has_gateway,
            **_common(acceptor, options),
        }
        if acceptor.role == "gateway":
            start["addresses"] = [address._asdict() for address in resources.addresses]
            start["data_dir"] = resources.data_dir
            start["sync"] = options.sync
            start["again"] = bool(acceptor.deaths)
        contents.start(acceptor, start, [resources.board_fd, acceptor.wake_fd], options.files)
        if acceptor.role == "acceptor":
            contents.configure(acceptor, options.contents)
        contents.tell_users(acceptor, options.users)
        for worker in processes.workers:
            if worker.alive:
                processes.rings.offer(acceptor, worker)
                processes.rings.join(acceptor, worker)
        if processes.mesh is not None:
            processes.mesh.join(acceptor)
        join_by_calls(acceptor, processes.acceptors, self._standby)
        processes.handovers.tell(acceptor, processes.acceptors, resources.addresses)
        for listener in resources.listeners:
            if listener.address.is_served_by(acceptor.role, acceptor.index):
                _tell_listener(acceptor, listener, options)
        if acceptor.role == "acceptor":
            processes.shares.tell(acceptor)


def _common(child: Child, options: Options) -> Message:
    return {
        "settings": options.settings,
        "title": child.title,
        "log_level": options.log_level,
        "log_json": options.log_json,
    }


def _tell_listener(acceptor: Child, listener: Listener, options: Options) -> None:
    address = listener.address
    listen: Message = {
        "do": "listen",
        "protocol": address.spoken,
        "scheme": address.protocol,
        "secure": address.protocol in SECURE,
        "host": address.host,
        "name": listener.name,
        "port": address.port,
        "user": address.user,
        "cert": address.cert,
        "key": address.key,
        "open": address.protocol in options.insecure,
        "backlog": BACKLOG,
    }
    acceptor.send(listen, [listener.socket_of(acceptor.index).fileno()])
