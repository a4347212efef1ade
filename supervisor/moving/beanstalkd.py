"""beanstalkd's command line (1.13's), as its own getopt reads it."""

from __future__ import annotations

import getopt
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor.moving.translation import ANY_ADDRESS, Translation, port_of

FLAGS: Final = "b:cf:Fhl:np:s:u:vVz:"
SIZES: Final = ("-f", "-s", "-z")
BINLOG: Final = ("binlog.*",)
LONGEST_SYNC_MS: Final = 60_000
PORT: Final = "11300"
HELP: Final = """\
Use: mq-shards as beanstalkd [OPTIONS] [-- OPTIONS OF MQ-SHARDS]

Options:
 -b DIR   keep jobs in DIR/mq-shards (without it they are in memory only)
 -f MS    fsync at most once every MS milliseconds (default is 50ms);
          use -f0 for "always fsync"
 -F       never fsync
 -l ADDR  listen on address (default is 0.0.0.0), or unix:PATH
 -p PORT  listen on port (default is 11300)
 -u USER  become user and group
 -z BYTES set the maximum job size in bytes (default is 65535)
 -s BYTES has no effect: a log segment has 64 MiB
 -v       show version information
 -V       increase verbosity
 -h       show this help
"""


def translate(arguments: Sequence[str], version: str) -> Translation:
    """Translates beanstalkd's arguments. Raises OptionsError."""
    try:
        flags, rest = getopt.getopt(list(arguments), FLAGS)
    except getopt.GetoptError as error:
        raise OptionsError(f"beanstalkd: {error.msg}") from None
    if rest:
        raise OptionsError(f'beanstalkd takes no "{rest[0]}"')
    t = Translation()
    given = dict(flags)
    if "-h" in given or "-v" in given:
        t.said = HELP if "-h" in given else f"mq-shards {version}, as beanstalkd\n"
        return t
    for flag, value in flags:
        if flag in SIZES:
            _size(value, flag)
    _listen(t, given)
    _keep(t, flags, given)
    if "-z" in given:
        t.setting("beanstalk.max-job-size", str(_size(given["-z"], "-z")))
    if "-u" in given:
        t.option("user", given["-u"])
    if "-V" in given:
        t.option("log-level", "debug")
    if "-s" in given:
        t.notes.append("-s has no effect: a log segment has 64 MiB")
    return t


def _size(text: str, flag: str) -> int:
    """Reads a number as beanstalkd's scanf does. Raises OptionsError."""
    number = text.lstrip().removeprefix("+")
    if not number.isascii() or not number.isdigit():
        raise OptionsError(f'{flag}: "{text}" is not a number')
    return int(number)


def _listen(t: Translation, given: dict[str, str]) -> None:
    if os.environ.get("LISTEN_PID") == str(os.getpid()):
        t.option("listen", "beanstalk://systemd")
        return
    host = given.get("-l", ANY_ADDRESS)
    if host.startswith("unix:"):
        t.option("listen", f"beanstalk://unix:{Path(host.removeprefix('unix:')).absolute()}")
        return
    # To beanstalkd 0.0.0.0 is IPv4 only, and :: is both.
    t.listen("beanstalk", host, port_of(given.get("-p", PORT), "-p"), ("::",))


def _keep(t: Translation, flags: Sequence[tuple[str, str]], given: dict[str, str]) -> None:
    """Where and how safely jobs are kept. Of -f and -F the last one counts."""
    if "-b" not in given:
        t.option("memory")
        return
    t.keep_in(given["-b"], BINLOG, "beanstalkd")
    flag, value = next(((flag, value) for flag, value in reversed(flags) if flag in ("-f", "-F")), ("-f", "50"))
    if flag == "-F":
        t.option("sync", "never")
        return
    interval = _size(value, "-f")
    if interval == 0:
        t.option("sync", "always")
        return
    if interval > LONGEST_SYNC_MS:
        t.notes.append(f"-f {interval}: {LONGEST_SYNC_MS} ms is the longest here")
    t.option("sync", "interval")
    t.setting("log.sync-interval", str(min(interval, LONGEST_SYNC_MS)))
