"""The command line: what --help says."""

from __future__ import annotations

import argparse
import contextlib
import os
from functools import cache
from typing import Final, NoReturn

from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.acceptor.protocols.table import PROTOCOLS
from mq_shards.shards.meta import MAX_SHARDS
from mq_shards.supervisor import VERSION
from mq_shards.supervisor.journal import LEVELS
from mq_shards.supervisor.moving.table import IMPORTS, SERVERS
from mq_shards.supervisor.options.defaults import (
    DEFAULT_ACCEPTORS,
    DEFAULT_DAMAGE,
    DEFAULT_DATA_DIR,
    DEFAULT_LOG_LEVEL,
    DEFAULT_SHARDS,
    DEFAULT_SYNC,
    MAX_ACCEPTORS,
    MAX_WORKERS,
    OWN_CONFIGS,
)
from mq_shards.supervisor.options.listen import USUAL
from mq_shards.supervisor.options.sections import SECTIONS


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """argparse makes a formatter for each option, to check it, and would load `shutil` for the terminal's width."""

    def __init__(self, prog: str) -> None:
        columns = 0
        with contextlib.suppress(ValueError):
            columns = int(os.environ.get("COLUMNS", ""))
        if columns <= 0:
            with contextlib.suppress(OSError):
                columns = os.get_terminal_size().columns
        super().__init__(prog, width=(columns if columns > 0 else 80) - 2)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionsError(f"{message} (mq-shards --help shows what there is)")


@cache
def parser_of_options() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mq-shards",
        usage=USAGE,
        description=f"A message broker for clients of {_systems()}: acceptor processes own the\n"
        "connections, worker processes own the queues and their logs, and a supervisor keeps them all running.",
        epilog=_epilog(),
        formatter_class=_Formatter,
        allow_abbrev=False,
        add_help=False,
    )
    usual = ", ".join(str(listen) for listen in USUAL)

    def add(name: str, metavar: str, meaning: str, action: str = "store") -> None:
        parser.add_argument(f"--{name}", dest=name, metavar=metavar, action=action, help=meaning)

    def add_flag(name: str, meaning: str) -> None:
        parser.add_argument(f"--{name}", dest=name, default=None, action="store_true", help=meaning)

    add("workers", "N", f"worker processes, 1 to {MAX_WORKERS} (default: one for each core that the acceptors leave)")
    add("acceptors", "M", f"acceptor processes, 1 to {MAX_ACCEPTORS} (default: {DEFAULT_ACCEPTORS})")
    add("shards", "S", f"shards of a new data directory, 1 to {MAX_SHARDS}; then fixed (default: {DEFAULT_SHARDS})")
    add("data-dir", "DIR", f"where the messages are kept; created if missing (default: {DEFAULT_DATA_DIR})")
    add_flag("memory", "keep messages in memory only: they outlive a worker that crashes, not the broker")
    add(
        "sync",
        "MODE",
        "when a write is forced to disk: always (before it is acknowledged), interval (in the background, every "
        f"log.sync-interval) or never (when the kernel sees fit) (default: {DEFAULT_SYNC})",
    )
    add(
        "damage",
        "MODE",
        "what to do when segments of the log are missing or foreign: serve what is left, or refuse to start "
        f"(default: {DEFAULT_DAMAGE})",
    )
    add(
        "listen",
        "SCHEME://HOST:PORT",
        "an address to listen on; may be repeated; IPv6 in brackets, no host for all, port 0 for any free one; "
        f"SCHEME://unix:/PATH for a socket file, SCHEME://systemd:NAME for a socket of systemd's (default: {usual})",
        "append",
    )
    add("config", "FILE", "a TOML file: its top-level keys are these options, its sections are listed below")
    for option, protocol in OWN_CONFIGS.items():
        add(option, "FILE", f"a configuration file of {PROTOCOLS[protocol].config_of}'s; what is set here wins")
    add("set", "SECTION.OPTION=VALUE", "set one option of a section; may be repeated", "append")
    add("users", "FILE", "who may do what: users, their passwords, tokens and certificates, and rights by topic")
    add("insecure", "SCHEME", "its listeners are open to all, whatever else is secured; may be repeated", "append")
    add("user", "USER[:GROUP]", "become this user once the addresses are bound, if started by root")
    add("log-level", "LEVEL", f"{', '.join(LEVELS)} (default: {DEFAULT_LOG_LEVEL})")
    add_flag("log-json", "log JSON objects instead of text")
    add("log-file", "FILE", "log to the end of this file, which SIGUSR1 reopens (default: to stderr)")
    add("log-file-limit", "BYTES", "rename the log file and begin a new one when it has more (default: 0, never)")
    add("log-file-count", "N", "how many log files to keep, with the one in use (default: 0, all)")
    parser.add_argument("--version", action="version", version=f"mq-shards {VERSION}", help="show the version and exit")
    parser.add_argument("--help", "-h", action="help", help="show this and exit")
    return parser


def _epilog() -> str:
    lines = ["sections:"]
    for section, table in SECTIONS.items():
        if not table:  # a protocol without options
            continue
        lines.append(f"  [{section}]")
        width = max(len(name) for name in table)
        for name, kind in table.items():
            lines.append(f"    {name:<{width}} {kind.meaning}")
            lines.append(f"    {'':<{width}} ({kind.limits()})")
    tries = [f"    {listen.example}" for listen in USUAL]
    return "\n".join([*lines, *_examples(), "", "  try it:", *tries, ENDS])


def _systems() -> str:
    *others, last = (protocol.system for protocol in PROTOCOLS.values() if protocol.system)
    return f"{', '.join(others)} and {last}"


def _examples() -> list[str]:
    usages = [*USAGES, *(usage for protocol in PROTOCOLS.values() for usage in protocol.usages)]
    usual = [f'"{name}://0.0.0.0:{protocol.port}"' for name, protocol in PROTOCOLS.items() if protocol.usual]
    file = [*TOP_LINES, f"listen = [{', '.join(usual[:3])}]"]
    for name, protocol in PROTOCOLS.items():
        if protocol.setting_lines:
            file += [f"[{name}]", *protocol.setting_lines]
    lines = ["", "examples:", *(f"  mq-shards {usage}".rstrip() for usage in usages)]
    return [*lines, "", "  a configuration file:", *(f"    {line}" for line in [*file, *LOG_LINES])]


USAGE: Final = (
    "mq-shards [--workers N] [--data-dir DIR | --memory] [--listen SCHEME://HOST:PORT]... [OPTION]...\n"
    f"       mq-shards as {' | '.join(SERVERS)} ARGUMENT...\n"
    f"       mq-shards import {' | '.join(IMPORTS)} DIR, backup DATA_DIR TO, restore FROM DATA_DIR\n"
    "       mq-shards check-config [OPTION]..., password, token\n"
    "       mq-shards top | topics | peek | tail | publish | consume | bench  (each with --help)"
)
# Examples of --help that hold for every protocol.
USAGES: Final = (
    "                                  all protocols on 127.0.0.1, messages in ./data",
    "--workers 7 --data-dir /var/lib/mq-shards --sync always",
)
TOP_LINES: Final = ("workers = 7", 'data-dir = "/var/lib/mq-shards"')
LOG_LINES: Final = ("[log]", "retention-hours = 48")
ENDS: Final = """
signals: SIGTERM and SIGINT stop cleanly (a second one at once). SIGUSR1 starts drain mode: no new messages are taken;
with --log-file it reopens that file instead.
exit status: 0 after a clean stop, 1 for a failure, 2 for a bad option.
"""
