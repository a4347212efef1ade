"""Socket pairs between acceptors and the gateway, for calls (ringbuf/calls.py): one for each two processes."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from mq_shards.supervisor.child import Child


def join_by_calls(started: Child, acceptors: Sequence[Child]) -> None:
    """A new gateway with every acceptor that is there, a new acceptor with the gateway, which is the last of them.

    Who dies is noticed at the other end of its sockets.
    """
    gateway = acceptors[-1]
    if gateway.role != "gateway" or not gateway.alive:
        return
    for acceptor in acceptors[:-1] if started is gateway else (started,):
        if not acceptor.alive:
            continue
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with here, there:
            acceptor.send({"do": "calls"}, [here.fileno()])
            gateway.send({"do": "calls", "acceptor": acceptor.index}, [there.fileno()])
