"""Forks the commands of mq-shards from one process that has loaded their modules, for the tests.

Most of what a start costs is the loading of modules, 0.2 s of processor, and the tests start thousands of brokers. What
is started runs as it does otherwise; left out are the interpreter's own start and end, and the imports. Tests of these
start a program.

Run as a program this is that process. It is asked over its standard input, a socket: see tests/starting.py.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from mq_shards.gateway.console import http
from mq_shards.supervisor.options import command_line

REQUEST_BYTES = 1 << 20
STREAMS = (0, 1, 2)
ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("acceptor", "gateway", "ringbuf", "shards", "supervisor")


def main() -> int:
    asked = socket.socket(fileno=os.dup(0))
    load()
    gc.collect()
    gc.freeze()
    while True:
        data, fds = received(asked)
        if not data:
            return 0
        request = json.loads(data)
        if "ended" in request:
            asked.send(str(status_of(request["ended"])).encode())
            continue
        begun = os.fork()
        if begun == 0:
            begin(request, fds)
        asked.send(str(begun).encode())
        for fd in fds:
            os.close(fd)


def load() -> None:
    """All that a broker may load of its own, and with it what that needs. What cannot be loaded, a broker that wants it
    will say."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = ".".join(("mq_shards", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    # What they keep once they have it, and is the same for all.
    command_line.parser_of_options()
    http.pages()


def status_of(pid: int) -> int | None:
    """Of a process that was begun here. None: it runs. Until it is asked for, its number is no other's."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def received(asked: socket.socket) -> tuple[bytes, list[int]]:
    fds = array.array("i")
    data, ancillary, _, _ = asked.recvmsg(REQUEST_BYTES, socket.CMSG_LEN(len(STREAMS) * fds.itemsize))
    for _level, _kind, some in ancillary:
        fds.frombytes(some)
    return data, list(fds)


def begin(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """As a program begins: with its streams, its arguments, its environment, and in a session of its own."""
    status: Any = 1
    try:
        for stream, fd in zip(STREAMS, fds, strict=True):
            os.dup2(fd, stream)
        os.closerange(len(STREAMS), os.sysconf("SC_OPEN_MAX"))
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(request["environment"])
        module = importlib.import_module(request["module"])
        sys.argv = [str(module.__file__), *request["arguments"]]
        status = module.main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # to take modules apart, that is to copy the memory they are in, takes longer than all before


if __name__ == "__main__":
    sys.exit(main())
