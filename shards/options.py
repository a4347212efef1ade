"""What can be set, and how it is read: command line, configuration file, --set.

The tables here are the one place where options, their limits and their defaults stand; --help is made from them.
The command line wins over the file, the file over the defaults. Anything unknown, ill-typed or out of range is an
OptionsError of one line that names the culprit. Nothing here opens a socket or a data directory.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from shards import VERSION
from shards.journal import LEVELS


@dataclass(frozen=True, slots=True)
class Protocol:
    port: int  # the usual one
    example: str  # a shell command that tries it


# The protocols of this version; a line here makes one known to --listen, to the defaults and to --help.
PROTOCOLS: Final[Mapping[str, Protocol]] = {
    "beanstalk": Protocol(11300, r"printf 'put 0 0 60 5\r\nhello\r\nreserve\r\nquit\r\n' | nc {host} {port}"),
}
LOOPBACK: Final = "127.0.0.1"

MAX_WORKERS: Final = 64  # BOARD_MAX_WORKERS in csrc/board.h
MAX_ACCEPTORS: Final = 64  # BOARD_MAX_ACCEPTORS
MAX_SHARDS: Final = 4096  # in shards/store.py too
MAX_LISTENS: Final = 16  # MAX_LISTENERS in csrc/bounds.h
DEFAULT_SHARDS: Final = 64
DEFAULT_ACCEPTORS: Final = 1
DEFAULT_DATA_DIR: Final = "./data"
SYNC_MODES: Final = ("always", "interval", "never")
DEFAULT_SYNC: Final = "interval"
DEFAULT_LOG_LEVEL: Final = "info"

COUNTS: Final = ("workers", "acceptors", "shards")
# The keys a file may have beside its sections.
TOP_LEVEL: Final = (*COUNTS, "data-dir", "memory", "sync", "listen", "log-level", "log-json")

Settings: TypeAlias = dict[str, dict[str, int]]
Given: TypeAlias = tuple[str, object]  # where it was set, and the value found there


class OptionsError(Exception):
    """One line for the operator: which option, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Number:
    """A whole-number option of a section."""

    default: int
    minimum: int
    maximum: int
    meaning: str
    power_of_two: bool = False
    clamped: bool = False  # too large is warned about and lowered, not refused


SECTIONS: Final[Mapping[str, Mapping[str, Number]]] = {
    "beanstalk": {
        # beanstalkd -z has this default and this maximum, and lowers what is above it with a warning.
        "max-job-size": Number(65535, 0, 1 << 30, "bytes of the largest job body", clamped=True),
    },
    "log": {
        "sync-interval": Number(50, 1, 60_000, "milliseconds between syncs with --sync interval"),
        "retention-hours": Number(24, 0, 87_600, "hours for which finished messages stay readable"),
        "retention-bytes": Number(1 << 30, 0, 1 << 50, "bytes of finished messages kept, per shard"),
    },
    "broker": {
        "ring-bytes": Number(
            4 << 20, 64 << 10, 1 << 30, "bytes of each ring (two per acceptor and worker)", power_of_two=True
        ),
        "worker-spin-us": Number(100, 0, 1_000_000, "microseconds a worker looks for requests before it sleeps"),
        "acceptor-spin-us": Number(5, 0, 1_000_000, "microseconds an acceptor looks for replies before it sleeps"),
        "max-connections": Number(65536, 1, 65536, "connections of each acceptor"),  # MAX_CONNECTIONS, csrc/bounds.h
    },
}


@dataclass(frozen=True, slots=True)
class Listen:
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Options:
    """Everything the supervisor needs to know. `data_dir` None is --memory; a count of None is not given."""

    workers: int | None = None
    acceptors: int = DEFAULT_ACCEPTORS
    shards: int | None = None
    data_dir: Path | None = Path(DEFAULT_DATA_DIR)
    sync: str = DEFAULT_SYNC
    listen: tuple[Listen, ...] = tuple(Listen(name, LOOPBACK, protocol.port) for name, protocol in PROTOCOLS.items())
    settings: Settings = field(default_factory=lambda: default_settings())
    log_level: str = DEFAULT_LOG_LEVEL
    log_json: bool = False
    warnings: tuple[str, ...] = ()


def default_settings() -> Settings:
    return {section: {name: number.default for name, number in table.items()} for section, table in SECTIONS.items()}


def worker_count(wanted: int | None, acceptors: int, shards: int, cores: int) -> int:
    """How many workers to run: what was asked for, or a core for each beside the acceptors'."""
    if wanted is None:
        return max(1, min(cores - acceptors, shards, MAX_WORKERS))
    if wanted > shards:
        raise OptionsError(f"--workers: {wanted} workers for {shards} shards, some would have none")
    return wanted


def parse(arguments: Sequence[str]) -> Options:
    """Reads the command line and the file it names. Raises OptionsError; --help and --version raise SystemExit."""
    given: dict[str, Any] = vars(_parser().parse_args(arguments))
    config: str | None = given.pop("config")
    sets: list[str] = given.pop("set") or []
    top: dict[str, Given] = {}
    numbers: dict[tuple[str, str], Given] = {}  # by section and option
    if config is not None:
        _read_file(config, top, numbers)
    # --data-dir and --memory exclude each other, so giving one takes back what the file says about the other.
    if given["data-dir"] is not None or given["memory"] is not None:
        top.pop("data-dir", None)
        top.pop("memory", None)
    for name, value in given.items():
        if value is not None:
            top[name] = (f"--{name}", _typed(value) if name in COUNTS else value)
    for text in sets:
        key, value = _read_set(text)
        numbers[key] = ("--set", value)
    return _build(top, numbers)


def parse_listen(text: str, where: str = "--listen") -> Listen:
    """SCHEME://HOST[:PORT], an IPv6 address in brackets."""
    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*)://(\[[^\[\]]+\]|[^:/\[\]\s]+)(?::([0-9]+))?/?", text)
    if match is None:
        raise OptionsError(f'{where}: "{text}" is not SCHEME://HOST:PORT (IPv6: SCHEME://[ADDRESS]:PORT)')
    scheme, host, port_text = match[1].lower(), match[2].strip("[]"), match[3]
    if scheme not in PROTOCOLS:
        raise OptionsError(f'{where}: "{scheme}" is not a protocol of this version (it has: {", ".join(PROTOCOLS)})')
    port = PROTOCOLS[scheme].port if port_text is None else int(port_text)
    if port > 65535:
        raise OptionsError(f'{where}: port {port} of "{text}" is not between 0 and 65535')
    return Listen(scheme, host, port)


def _build(top: Mapping[str, Given], numbers: Mapping[tuple[str, str], Given]) -> Options:
    warnings: list[str] = []
    settings = default_settings()
    for (section, name), (where, value) in numbers.items():
        settings[section][name] = _setting(f"{where}: {section}.{name}", value, SECTIONS[section][name], warnings)

    def count(name: str, maximum: int) -> int | None:
        return None if name not in top else _between(top[name][0], _whole(*top[name]), 1, maximum)

    memory = _flag(*top["memory"]) if "memory" in top else False
    if memory and "data-dir" in top:
        raise OptionsError(f"{top['data-dir'][0]} and {top['memory'][0]}: only one of them is possible")
    listen = Options().listen
    if "listen" in top:
        listen = _listens(*top["listen"])
    return Options(
        workers=count("workers", MAX_WORKERS),
        acceptors=count("acceptors", MAX_ACCEPTORS) or DEFAULT_ACCEPTORS,
        shards=count("shards", MAX_SHARDS),
        data_dir=None if memory else _path(*top.get("data-dir", ("", DEFAULT_DATA_DIR))),
        sync=_choice(*top.get("sync", ("", DEFAULT_SYNC)), SYNC_MODES),
        listen=listen,
        settings=settings,
        log_level=_choice(*top.get("log-level", ("", DEFAULT_LOG_LEVEL)), LEVELS),
        log_json=_flag(*top["log-json"]) if "log-json" in top else False,
        warnings=tuple(warnings),
    )


def _read_file(name: str, top: dict[str, Given], numbers: dict[tuple[str, str], Given]) -> None:
    try:
        content = tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionsError(f"--config: cannot read {name}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionsError(f"--config: {name} is not TOML: {error}") from None
    for key, value in content.items():
        if key in SECTIONS:
            if not isinstance(value, dict):
                raise OptionsError(f"{name}: {key} is a section, write [{key}]")
            for option, setting in value.items():
                _known(name, key, option)
                numbers[key, option] = (name, setting)
        elif isinstance(value, dict):
            raise OptionsError(f"{name}: [{key}] is not a section (there are: {', '.join(SECTIONS)})")
        elif key in TOP_LEVEL:
            top[key] = (f"{name}: {key}", value)
        else:
            raise OptionsError(f'{name}: "{key}" is not an option (there are: {", ".join(TOP_LEVEL)})')


def _read_set(text: str) -> tuple[tuple[str, str], int | str]:
    path, equals, value = text.partition("=")
    section, dot, option = path.strip().partition(".")
    if not equals or not dot:
        raise OptionsError(f'--set: "{text}" is not SECTION.OPTION=VALUE')
    if section not in SECTIONS:
        raise OptionsError(f'--set: "{section}" is not a section (there are: {", ".join(SECTIONS)})')
    _known("--set", section, option)
    return (section, option), _typed(value.strip())


def _typed(text: str) -> int | str:
    """What TOML would have made of it: the command line has only text."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,100}", text) else text


def _known(where: str, section: str, option: str) -> None:
    if option not in SECTIONS[section]:
        there_are = ", ".join(SECTIONS[section])
        raise OptionsError(f'{where}: "{option}" is not an option of [{section}] (there are: {there_are})')


def _setting(where: str, value: object, number: Number, warnings: list[str]) -> int:
    result = _whole(where, value)
    if number.clamped and result > number.maximum:
        warnings.append(f"{where}: {result} is too large, {number.maximum} is used")
        return number.maximum
    _between(where, result, number.minimum, number.maximum)
    if number.power_of_two and result & (result - 1):
        raise OptionsError(f"{where}: {result} is not a power of two")
    return result


def _whole(where: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise OptionsError(f"{where}: {_shown(value)} is not a whole number")


def _between(where: str, value: int, minimum: int, maximum: int) -> int:
    if not minimum <= value <= maximum:
        raise OptionsError(f"{where}: {value} is not between {minimum} and {maximum}")
    return value


def _flag(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise OptionsError(f"{where}: {_shown(value)} is not true or false")
    return value


def _choice(where: str, value: object, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise OptionsError(f"{where}: {_shown(value)} is not one of {', '.join(choices)}")
    return value


def _path(where: str, value: object) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise OptionsError(f"{where}: {_shown(value)} is not a path")
    return Path(value)


def _listens(where: str, value: object) -> tuple[Listen, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise OptionsError(f"{where}: {_shown(value)} is not a list of SCHEME://HOST:PORT")
    if len(value) > MAX_LISTENS:
        raise OptionsError(f"{where}: {len(value)} addresses, at most {MAX_LISTENS} are possible")
    listens = tuple(parse_listen(text, where) for text in value)
    for place, listen in enumerate(listens):
        # Port 0 is a different port each time.
        if listen.port and any((listen.host, listen.port) == (other.host, other.port) for other in listens[:place]):
            raise OptionsError(f"{where}: {listen.host} port {listen.port} is given twice")
    return listens


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionsError(f"{message} (mq-shards --help shows what there is)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mq-shards",
        usage="mq-shards [--workers N] [--data-dir DIR | --memory] [--listen SCHEME://HOST:PORT]... [OPTION]...",
        description="A message broker for beanstalkd clients: acceptor processes own the connections, worker\n"
        "processes own the queues and their logs, and a supervisor keeps them all running.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    usual = ", ".join(str(listen) for listen in Options().listen)

    def add(name: str, metavar: str, meaning: str, action: str = "store") -> None:
        parser.add_argument(f"--{name}", dest=name, metavar=metavar, action=action, help=meaning)

    def add_flag(name: str, meaning: str) -> None:
        parser.add_argument(f"--{name}", dest=name, default=None, action="store_true", help=meaning)

    add("workers", "N", f"worker processes, 1 to {MAX_WORKERS} (default: one for each core that the acceptors leave)")
    add("acceptors", "M", f"acceptor processes, 1 to {MAX_ACCEPTORS} (default: {DEFAULT_ACCEPTORS})")
    add(
        "shards",
        "S",
        f"shards of a new data directory, 1 to {MAX_SHARDS}; fixed from then on (default: {DEFAULT_SHARDS})",
    )
    add("data-dir", "DIR", f"where the messages are kept; created if missing (default: {DEFAULT_DATA_DIR})")
    add_flag("memory", "keep messages in memory only: they outlive a worker that crashes, not the broker")
    add(
        "sync",
        "MODE",
        "when a write is forced to disk: always (before it is acknowledged), interval (in the background, every "
        f"log.sync-interval) or never (when the kernel sees fit) (default: {DEFAULT_SYNC})",
    )
    add(
        "listen",
        "SCHEME://HOST:PORT",
        f"an address to listen on; may be repeated; IPv6 in brackets, port 0 for any free one (default: {usual})",
        "append",
    )
    add("config", "FILE", "a TOML file: its top-level keys are these options, its sections are listed below")
    add("set", "SECTION.OPTION=VALUE", "set one option of a section; may be repeated", "append")
    add("log-level", "LEVEL", f"{', '.join(LEVELS)} (default: {DEFAULT_LOG_LEVEL})")
    add_flag("log-json", "log JSON objects instead of text")
    parser.add_argument("--version", action="version", version=f"mq-shards {VERSION}", help="show the version and exit")
    parser.add_argument("--help", "-h", action="help", help="show this and exit")
    return parser


def _epilog() -> str:
    lines = ["sections:"]
    for section, table in SECTIONS.items():
        lines.append(f"  [{section}]")
        for name, number in table.items():
            limits = f"default {number.default}, {number.minimum} to {number.maximum}"
            power = ", a power of two" if number.power_of_two else ""
            lines.append(f"    {name:<16} {number.meaning}")
            lines.append(f"    {'':<16} ({limits}{power})")
    tries = [f"    {protocol.example.format(host=LOOPBACK, port=protocol.port)}" for protocol in PROTOCOLS.values()]
    return "\n".join([*lines, EXAMPLES, "  try it:", *tries, ENDS])


EXAMPLES: Final = """
examples:
  mq-shards                                   all protocols on 127.0.0.1, messages in ./data
  mq-shards --workers 7 --data-dir /var/lib/mq-shards --sync always
  mq-shards --memory --listen beanstalk://0.0.0.0:11300 --listen 'beanstalk://[::]:11300'
  mq-shards --config mq.toml --set beanstalk.max-job-size=1048576

  a configuration file:
    workers = 7
    data-dir = "/var/lib/mq-shards"
    listen = ["beanstalk://0.0.0.0:11300"]
    [log]
    retention-hours = 48

"""
ENDS: Final = """
signals: SIGTERM and SIGINT stop cleanly (a second one at once), SIGUSR1 starts drain mode: no new messages are taken.
exit status: 0 after a clean stop, 1 for a failure, 2 for a bad option.
"""
