"""Socket pairs between acceptors and the gateway, for calls (ringbuf/calls.py): one for each two processes."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from mq_shards.supervisor.child import Child
from mq_shards.supervisor.standby import Standby


def tell_due(acceptors: Sequence[Child], delay_s: float) -> None:
    """Tells the acceptors when the gateway, the last of them, is to be started again: what cannot wait is refused."""
    for acceptor in acceptors[:-1]:
        if acceptor.alive:
            acceptor.send({"do": "calls-due", "delay_s": delay_s})


def join_by_calls(started: Child, acceptors: Sequence[Child], standby: Standby) -> None:
    """Joins a new gateway to every live acceptor, or a new acceptor to the gateway, which is the last of `acceptors`.

    When a process dies, the other end of its sockets notices. Until the gateway has begun, `standby` keeps its ends:
    what an acceptor asks waits there.
    """
    gateway = acceptors[-1]
    if gateway.role != "gateway" or not (gateway.alive or standby.waits):
        return
    for acceptor in acceptors[:-1] if started is gateway else (started,):
        if not acceptor.alive:
            continue
        there = standby.take(acceptor.index)
        if there is None:
            here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with here:
                acceptor.send({"do": "calls"}, [here.fileno()])
        if standby.waits:
            standby.keep(acceptor.index, there)
            continue
        with there:
            gateway.send({"do": "calls", "acceptor": acceptor.index}, [there.fileno()])
