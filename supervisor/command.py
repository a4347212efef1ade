"""The mq-shards command: finds which command is meant, loads its modules, and runs it.

Before anything else is loaded, SIGINT gets its default action, as SIGTERM has: the process ends at once, without a word
(130 and 143 for a shell). Otherwise a ^C would be an exception in the middle of an import: a traceback, and a crash if
it comes while some compiled modules are set up. A command that runs is ended by the exception, since it may have to
clean up; that is without a word too.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence

INTERRUPTED = 130
# The commands that are clients of a running broker; their options are in supervisor/terminal/command.py.
CLIENTS = ("top", "topics", "peek", "tail", "publish", "consume", "bench")


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    gc.disable()  # all that is loaded stays: to look through it for garbage is a tenth of the time
    _open_what_is_closed()
    if isinstance(sys.stdout, io.TextIOWrapper) and (sys.stdout.encoding != "utf-8" or sys.stdout.errors == "strict"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack the characters of a name or a body
    heard_by = signal.getsignal(signal.SIGINT)
    if heard_by is signal.default_int_handler:  # otherwise we were started with SIGINT ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        command = _command(given, hiding=arguments is None)
        if command is None:
            from mq_shards.supervisor import serve

            # The supervisor turns the collector on again when all is loaded, and takes signals as soon as it has
            # something to clean up.
            return serve.main(given)
    finally:
        gc.enable()
        signal.signal(signal.SIGINT, heard_by)
    try:
        return command(given)
    except KeyboardInterrupt:
        return INTERRUPTED


def _open_what_is_closed() -> None:
    """Otherwise a socket or a log would get the number of a stream that we were started without, and what is written to
    stderr."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None and os.open(os.devnull, os.O_RDWR) == number:  # the lowest that is free
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _command(given: list[str], hiding: bool) -> Callable[[list[str]], int] | None:
    """The function that runs the command, with its modules loaded; None: no command, so the broker is to be served."""
    name = given[0] if given else ""
    if name in CLIENTS:
        from mq_shards.supervisor.terminal import command

        if hiding:
            command.hide(given)
        return command.main
    if name == "import":
        from mq_shards.supervisor.terminal.importing import command as importing

        return lambda words: importing.main(words[1:])
    if name in ("password", "token"):
        from mq_shards.supervisor.terminal import proofs

        return proofs.main
    if name in ("backup", "restore"):
        from mq_shards.supervisor.terminal import backup

        return backup.main
    return None


if __name__ == "__main__":
    sys.exit(main())
