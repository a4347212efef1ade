"""Python loads this in each process of a broker whose PYTHONPATH has this folder: the process tells what it holds.

Who connects to the socket INSIDE/PID is answered with JSON: numbers by name. Those of the core come from the library
HOLDINGS, which is made of tests/holdings.c. Both are variables of the environment.
"""

import asyncio
import collections
import ctypes
import fcntl
import gc
import heapq
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

HIGH_FD = 500  # where no process of a broker puts descriptors that it knows by number
LOOK_S = 0.02
ROOM = 1 << 14
ASKED = {"mq_shards.shards.worker.Worker": ("worker_holdings", "_worker"),
         "mq_shards.acceptor.engine.Engine": ("acceptor_holdings", "_acceptor")}  # fmt: skip


def begin() -> None:
    threading.Thread(target=serve, daemon=True).start()


def begin_in_child() -> None:
    """A process of the broker closes all descriptors that it does not know, first of all: it is waited for."""
    with socket.socket(socket.AF_UNIX) as low:
        unknown = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
    threading.Thread(target=serve, args=[unknown], daemon=True).start()


def serve(unknown: int | None = None) -> None:
    while unknown is not None and Path(f"/proc/self/fd/{unknown}").exists():
        time.sleep(LOOK_S)
    with socket.socket(socket.AF_UNIX) as low:
        listener = socket.socket(fileno=fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, HIGH_FD))
    listener.bind(f"{os.environ['INSIDE']}/{os.getpid()}")
    listener.listen()
    while True:
        with listener.accept()[0] as asking:
            asking.sendall(json.dumps(found()).encode())


def found() -> dict[str, int]:
    for loop in [one for one in gc.get_objects() if isinstance(one, asyncio.BaseEventLoop) and one.is_running()]:
        sweep(loop)
    gc.collect()
    objects = gc.get_objects()
    holds = {
        "blocks": sys.getallocatedblocks(),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        **core(objects),
    }
    kinds = collections.Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in objects)
    return holds | {kind: count for kind, count in kinds.items() if kind.startswith("mq_shards.")}


def sweep(loop: Any) -> None:  # noqa: ANN401
    """Has a loop forget timers that are cancelled, which it would do later."""
    done = threading.Event()

    def drop() -> None:
        for timer in loop._scheduled:
            timer._scheduled = not timer._cancelled
        loop._scheduled = [timer for timer in loop._scheduled if not timer._cancelled]
        heapq.heapify(loop._scheduled)
        loop._timer_cancelled_count = 0
        done.set()

    loop.call_soon_threadsafe(drop)
    done.wait()


def core(objects: list[Any]) -> dict[str, int]:
    module = sys.modules.get("mq_shards.csrc._core")
    total: collections.Counter[str] = collections.Counter()
    for one in objects:
        name, field = ASKED.get(f"{type(one).__module__}.{type(one).__qualname__}", ("", ""))
        if module is None or not name:
            continue
        place = ctypes.c_void_p(int(module.ffi.cast("uintptr_t", getattr(one, field))))
        out = ctypes.create_string_buffer(ROOM)
        getattr(ctypes.CDLL(os.environ["HOLDINGS"]), name)(place, out, ctypes.c_size_t(ROOM))
        for line in out.value.decode().splitlines():
            key, _, count = line.rpartition(" ")
            total[key] += int(count)
    return total


if "INSIDE" in os.environ:
    os.register_at_fork(after_in_child=begin_in_child)
    begin()
