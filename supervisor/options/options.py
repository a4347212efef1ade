"""All options, and how they are read: command line, configuration file, --set.

The command line wins over the file, the file over the defaults. Anything unknown, ill-typed or out of range is an
OptionsError of one line that names the culprit. Nothing here opens a socket or a data directory. The options of the
sections are in supervisor/options/sections.py.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeAlias

from mq_shards.acceptor import certificate_times, named_files
from mq_shards.acceptor.access import users_file
from mq_shards.acceptor.access.rights import Users
from mq_shards.acceptor.access.users_file import NAME
from mq_shards.acceptor.option_kinds import (
    File,
    OptionsError,
    Setting,
    TextList,
    between,
    choice,
    flag,
    number_or_text,
    path,
    shown,
    whole,
)
from mq_shards.acceptor.protocol import NO_LOG_FILE, LogFileTerms, OwnConfig
from mq_shards.acceptor.protocols.table import PROTOCOLS
from mq_shards.gateway import services
from mq_shards.gateway.services import SERVICES
from mq_shards.supervisor import VERSION
from mq_shards.supervisor.journal import LEVELS
from mq_shards.supervisor.moving.table import IMPORTS, SERVERS
from mq_shards.supervisor.options.doors import Doors, check_doors, check_names
from mq_shards.supervisor.options.schemes import OTHER_SCHEMES, SECURE, spoken
from mq_shards.supervisor.options.sections import INSTEAD, SECTIONS


class Scheme(Protocol):
    @property
    def port(self) -> int: ...

    @property
    def example(self) -> str: ...


# The schemes of --listen, in the order of --help: the acceptors' protocols, then the gateway's services.
SCHEMES: Final[Mapping[str, Scheme]] = {**PROTOCOLS, **SERVICES}
EVERY_SCHEME: Final[Mapping[str, Scheme]] = {**SCHEMES, **OTHER_SCHEMES}
LOOPBACK: Final = "127.0.0.1"

MAX_WORKERS: Final = 64  # BOARD_MAX_WORKERS in csrc/ringbuf/board.h
MAX_ACCEPTORS: Final = 63  # BOARD_MAX_ACCEPTORS, less the gateway's place
MAX_SHARDS: Final = 4096  # in shards/store.py too
MAX_UNIX_PATH_BYTES: Final = 107  # sun_path, see unix(7)
MAX_LISTENS: Final = 16  # MAX_LISTENERS in csrc/acceptor/bounds.h
WILDCARDS: Final = ("", "0.0.0.0", "::")
DEFAULT_SHARDS: Final = 64
DEFAULT_ACCEPTORS: Final = 1
DEFAULT_DATA_DIR: Final = "./data"
SYNC_MODES: Final = ("always", "interval", "never")
DEFAULT_SYNC: Final = "interval"
DAMAGE_MODES: Final = ("serve", "refuse")
DEFAULT_DAMAGE: Final = "serve"
DEFAULT_LOG_LEVEL: Final = "info"
MAX_LOG_FILE: Final = (1 << 63) - 1  # bytes, or files: as much as another server's file may say

COUNTS: Final = ("workers", "acceptors", "shards")
LOG_FILE_NUMBERS: Final = ("log-file-limit", "log-file-count")
# Options that name a configuration file in another server's format, and the protocol that reads it.
OWN_CONFIGS: Final = {f"{name}-config": name for name, protocol in PROTOCOLS.items() if protocol.config_of}
MAX_NAMED: Final = 10  # an error message lists the options of a section if they are no more
# The keys that a file may have outside its sections.
TOP_LEVEL: Final = (
    *COUNTS, "data-dir", "memory", "sync", "damage", "listen", "user", "users", "insecure", "log-level", "log-json",
    "log-file", *LOG_FILE_NUMBERS, *OWN_CONFIGS,
)  # fmt: skip

Settings: TypeAlias = dict[str, dict[str, Setting]]
Given: TypeAlias = tuple[str, object]  # where the option was set, and its value


class Listen(NamedTuple):
    """Where to listen: a host and a port, the path of a unix socket, or a socket from the service manager."""

    protocol: str
    host: str  # "": all addresses of this host
    port: int
    path: str = ""
    inherited: str | None = None  # name of a systemd socket; "": the first that is left; None: it is none
    user: str = ""  # the user of clients that do not log in; "": none
    both: bool = False  # dual-stack: one socket for all IPv6 and IPv4 addresses
    cert: str = ""  # file of the certificate to show instead of that of the section [tls]; "": that
    key: str = ""

    @property
    def address(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        if self.inherited is not None:
            return f"systemd:{self.inherited}" if self.inherited else "systemd"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def host_name(self) -> str | bytes:
        """The host for getaddrinfo: as bytes, since for a str Python would load its encoder of host names."""
        return self.host.encode() if self.host.isascii() else self.host

    @property
    def by_gateway(self) -> bool:
        return self.spoken in SERVICES

    @property
    def spoken(self) -> str:
        """The protocol or service that is spoken there."""
        return spoken(self.protocol)

    @property
    def early(self) -> bool:
        """Whether clients may connect before they are served: they wait then."""
        return not self.by_gateway and PROTOCOLS[self.spoken].listens_early

    @property
    def single(self) -> bool:
        """Whether one process alone serves it: the gateway, or the first acceptor."""
        return self.by_gateway or PROTOCOLS[self.spoken].single

    def is_served_by(self, role: str, index: int) -> bool:
        """Whether the gateway, or the acceptor of that index, serves it."""
        if role == "gateway" or self.by_gateway:
            return role == "gateway" and self.by_gateway
        return index == 0 or not self.single

    @property
    def hands_over(self) -> bool:
        """Whether acceptors hand some of its connections to the gateway."""
        return self.spoken in PROTOCOLS and PROTOCOLS[self.spoken].hands_over

    @property
    def comes_by_others(self) -> bool:
        """Whether the other acceptors hand its connections to the first one."""
        return self.spoken in PROTOCOLS and PROTOCOLS[self.spoken].comes_by_others

    @property
    def meshed(self) -> bool:
        """Whether its clients talk to clients of other acceptors."""
        return self.spoken in PROTOCOLS and PROTOCOLS[self.spoken].meshed

    @property
    def has_lame_duck(self) -> bool:
        """Whether its clients can be sent to another server of a cluster."""
        return self.spoken in PROTOCOLS and PROTOCOLS[self.spoken].has_lame_duck

    @property
    def example(self) -> str:
        """A shell command that tries it from this host, over TCP."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)
        address = Listen(self.protocol, host, self.port).address
        return EVERY_SCHEME[self.protocol].example.format(host=host, port=self.port, address=address)

    def __str__(self) -> str:
        return f"{self.protocol}://{self.address}" + (f"?user={self.user}" if self.user else "")


@dataclass(frozen=True, slots=True)
class Options:
    """Everything the supervisor needs to know. `data_dir` None: --memory; `workers` or `shards` None: not given."""

    workers: int | None = None
    acceptors: int = DEFAULT_ACCEPTORS
    shards: int | None = None
    data_dir: Path | None = Path(DEFAULT_DATA_DIR)
    sync: str = DEFAULT_SYNC
    damage: str = DEFAULT_DAMAGE
    listen: tuple[Listen, ...] = tuple(
        Listen(name, LOOPBACK, scheme.port)
        for name, scheme in SCHEMES.items()
        if name not in PROTOCOLS or PROTOCOLS[name].usual
    )
    settings: Settings = field(default_factory=lambda: default_settings())
    contents: Mapping[str, bytes] = field(default_factory=dict)  # other servers' configuration files, by protocol
    files: named_files.Files = field(default_factory=dict, repr=False)  # files that options name, as they were read
    user: str = ""  # the user to become; "": none
    users: Users | None = None  # users and their rights; None: everybody may do everything
    insecure: tuple[str, ...] = ()  # schemes whose listeners may be open to everybody
    log_level: str = DEFAULT_LOG_LEVEL
    log_json: bool = False
    log_file: LogFileTerms = NO_LOG_FILE
    warnings: tuple[str, ...] = ()

    def check_doors(self, bound: Sequence[Listen]) -> None:
        """Checks the listeners as `bound`: now the addresses of systemd sockets are known too. Raises OptionsError."""
        doors = Doors(bound, self.settings, self.users, self.insecure, self.contents)
        check_names(doors)
        check_doors(doors)

    def check_files(self) -> None:
        """Reads certificates again: after a change of user they may be unreadable. Raises OptionsError."""
        _check_secure(self.listen, self.settings)
        _check_protocols(self.settings)

    @property
    def gateway(self) -> bool:
        """Whether a gateway is needed."""
        asked = any(PROTOCOLS[name].asks_gateway(content) for name, content in self.contents.items())
        return asked or services.is_needed([listen.spoken for listen in self.listen], self.settings)


def default_settings() -> Settings:
    return {section: {name: kind.default for name, kind in table.items()} for section, table in SECTIONS.items()}


def shards_in_memory(options: Options, cores: int) -> int:
    """1 for a single worker: more gain nothing, and ids count 1, 2, 3. A data directory may get more workers later."""
    alone = worker_count(options.workers, options.acceptors, DEFAULT_SHARDS, cores) == 1
    return options.shards or (1 if alone else DEFAULT_SHARDS)


def worker_count(wanted: int | None, acceptors: int, shards: int, cores: int) -> int:
    """How many workers to run: as many as asked for, or one for each core that the acceptors leave."""
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
    sections: dict[tuple[str, str], Given] = {}  # keyed by section and option
    if config is not None:
        _read_file(config, top, sections)
    # --data-dir and --memory exclude each other, so either of them overrides both in the file.
    if given["data-dir"] is not None or given["memory"] is not None:
        top.pop("data-dir", None)
        top.pop("memory", None)
    for name, value in given.items():
        if value is not None:
            top[name] = (f"--{name}", number_or_text(value) if name in (*COUNTS, *LOG_FILE_NUMBERS) else value)
    for text in sets:
        _read_set(text, sections)
    return _build(top, sections)


def parse_listen(text: str, where: str = "--listen") -> Listen:
    """Reads SCHEME://HOST[:PORT] (IPv6 in brackets, no host for all), SCHEME://unix:PATH or SCHEME://systemd[:NAME]."""
    scheme_text, separator, address = text.partition("://")
    scheme = scheme_text.lower()
    address, question, query = address.partition("?")
    said = dict(part.partition("=")[::2] for part in query.split("&")) if question else {}
    both = "both" in said
    user, cert, key = (said.get(name, "") for name in ("user", "cert", "key"))
    takes_files = scheme in SECURE
    if not _is_said_well(said, query, takes_files=takes_files):
        more = ", ?cert=FILE&key=FILE" if takes_files else ""
        raise OptionsError(f'{where}: behind "{address}" stands ?user=NAME, ?both{more} or nothing, not "?{query}"')
    match = re.fullmatch(r"(\[[^\[\]]+\]|[^:/\[\]\s]*)(?::([0-9]+))?/?", address)
    special = address.partition(":")[0] if address.startswith(("unix:", "systemd")) else ""
    if not separator or not address or (match is None and not special) or address == "/":
        raise OptionsError(f"{where}: {shown(text)} is not SCHEME://HOST:PORT (IPv6: SCHEME://[ADDRESS]:PORT)")
    if scheme not in EVERY_SCHEME:
        there_are = ", ".join(EVERY_SCHEME)
        raise OptionsError(f'{where}: "{scheme}" is not a protocol of this version (it has: {there_are})')
    if special and both:
        raise OptionsError(f"{where}: ?both stands behind 0.0.0.0 or [::], not behind {address}")
    if special == "unix":
        path_ = _unix_path(where, text, address.partition(":")[2])
        return Listen(scheme, "", 0, path=path_, user=user, cert=cert, key=key)
    if special == "systemd":
        return Listen(scheme, "", 0, inherited=address.partition(":")[2], user=user, cert=cert, key=key)
    assert match is not None
    host, port_text = match[1].strip("[]"), match[2]
    if both and host not in WILDCARDS:
        raise OptionsError(f"{where}: ?both stands behind 0.0.0.0 or [::], not behind {address}")
    port = EVERY_SCHEME[scheme].port if port_text is None else int(port_text)
    if port > 65535:
        raise OptionsError(f'{where}: port {port} of "{text}" is not between 0 and 65535')
    listen = Listen(scheme, host, port, user=user, cert=cert, key=key)
    return on_both(listen) if both else listen


def _is_said_well(said: Mapping[str, str], query: str, *, takes_files: bool) -> bool:
    """Whether the query of an address is valid: known names, each once, and each with a possible value."""
    known = {"both", "user", "cert", "key"} if takes_files else {"both", "user"}
    return (
        said.keys() <= known
        and len(said) == len(query.split("&") if said else ())
        and ("both" not in said or "both" in query.split("&"))
        and ("user" not in said or NAME.fullmatch(said["user"]) is not None)
        and bool(said.get("cert")) == bool(said.get("key")) == ("cert" in said) == ("key" in said)
    )


def on_both(listen: Listen) -> Listen:
    """Listens as servers in Go do: a wildcard host stands for all IPv4 and all IPv6 addresses."""
    return listen._replace(host=listen.host or "0.0.0.0", both=True) if listen.host in WILDCARDS else listen


def _unix_path(where: str, text: str, path_: str) -> str:
    if not path_.startswith("/") or not path_.isprintable() or len(path_.encode()) > MAX_UNIX_PATH_BYTES:
        raise OptionsError(
            f"{where}: {shown(text)} is not SCHEME://unix:/PATH, absolute and of {MAX_UNIX_PATH_BYTES} bytes at most"
        )
    return path_


def _build(top: Mapping[str, Given], sections: Mapping[tuple[str, str], Given]) -> Options:
    warnings: list[str] = []
    own = _read_own_configs(top)
    for protocol, config in own.items():
        warnings += config.warnings
        sections = {**{(protocol, option): given for option, given in config.options.items()}, **sections}
    settings = default_settings()
    for (section, name), (where, value) in sections.items():
        settings[section][name] = SECTIONS[section][name].parse(f"{where}: {section}.{name}", value, warnings)
    _offer_tls(settings, sections)
    listen = Options().listen
    if "listen" in top:
        listen = _listens(*top["listen"])
    for config in own.values():
        listen = _with_own(listen, [on_both(parse_listen(text)) for text in config.listen], "listen" in top)
    files = _read_files(listen, settings)
    with named_files.kept(files):
        _check_secure(listen, settings)
        _check_protocols(settings)
    warnings += certificate_times.remarks(files, time.time())

    def count(name: str, maximum: int) -> int | None:
        return None if name not in top else between(top[name][0], whole(*top[name]), 1, maximum)

    memory = flag(*top["memory"]) if "memory" in top else False
    if memory and "data-dir" in top:
        raise OptionsError(f"{top['data-dir'][0]} and {top['memory'][0]}: only one of them is possible")
    users, insecure = _users(top), _insecure(top)
    warnings += services.without_effect([address.spoken for address in listen], settings)
    check_doors(Doors(listen, settings, users, insecure, {name: one.content for name, one in own.items()}))
    return Options(
        workers=count("workers", MAX_WORKERS),
        acceptors=count("acceptors", MAX_ACCEPTORS) or DEFAULT_ACCEPTORS,
        shards=_shards(count("shards", MAX_SHARDS), settings),
        data_dir=None if memory else path(*top.get("data-dir", ("", DEFAULT_DATA_DIR))),
        sync=choice(*top.get("sync", ("", DEFAULT_SYNC)), SYNC_MODES),
        damage=choice(*top.get("damage", ("", DEFAULT_DAMAGE)), DAMAGE_MODES),
        listen=listen,
        settings=settings,
        contents={protocol: config.content for protocol, config in own.items()},
        files=files,
        user=str(path(*top["user"])) if "user" in top else "",
        users=users,
        insecure=insecure,
        log_level=choice(*top.get("log-level", ("", DEFAULT_LOG_LEVEL)), LEVELS),
        log_json=flag(*top["log-json"]) if "log-json" in top else False,
        log_file=_log_file(top, own),
        warnings=tuple(warnings),
    )


def _log_file(top: Mapping[str, Given], own: Mapping[str, OwnConfig]) -> LogFileTerms:
    """What the file of another server says of it; what our own options say wins."""
    terms = next((config.log_file for config in own.values()), NO_LOG_FILE)
    where, named = top.get("log-file", ("log_file", terms.path))
    return LogFileTerms(
        str(path(where, named)) if named or "log-file" in top else "",
        _log_file_number(top, "log-file-limit", terms.limit_bytes),
        _log_file_number(top, "log-file-count", terms.max_files),
    )


def _log_file_number(top: Mapping[str, Given], option: str, otherwise: int) -> int:
    return between(top[option][0], whole(*top[option]), 0, MAX_LOG_FILE) if option in top else otherwise


def _users(top: Mapping[str, Given]) -> Users | None:
    where, found = top.get("users", ("", None))
    return found if found is None or isinstance(found, Users) else users_file.read_file(str(path(where, found)))


def _insecure(top: Mapping[str, Given]) -> tuple[str, ...]:
    where, found = top.get("insecure", ("", []))
    if not isinstance(found, list) or not all(isinstance(scheme, str) for scheme in found):
        raise OptionsError(f"{where}: {shown(found)} is not a list of schemes")
    for scheme in found:
        choice(where, scheme, tuple(EVERY_SCHEME))
    return tuple(dict.fromkeys(found))


def _read_own_configs(top: Mapping[str, Given]) -> dict[str, OwnConfig]:
    found: dict[str, OwnConfig] = {}
    for option, protocol in OWN_CONFIGS.items():
        if option not in top:
            continue
        name = str(path(*top[option]))
        try:
            found[protocol] = PROTOCOLS[protocol].read_config(name)
        except ValueError as error:
            raise OptionsError(str(error)) from None
    return found


def _with_own(listen: tuple[Listen, ...], own: Sequence[Listen], given: bool) -> tuple[Listen, ...]:
    """Adds the listeners of another server's file: --listen wins over it by scheme, the file over the defaults."""
    schemes = {one.protocol for one in own}
    if given:
        there = {one.protocol for one in listen}
        return (*listen, *(one for one in own if one.protocol not in there))
    return (*(one for one in listen if one.protocol not in schemes), *own)


def _read_files(listen: Sequence[Listen], settings: Settings) -> named_files.Files:
    """The files that options name and that exist: a missing one is reported where it is needed."""
    paths = [one.cert for one in listen] + [one.key for one in listen]
    for section, table in SECTIONS.items():
        paths += [str(settings[section][name]) for name, kind in table.items() if isinstance(kind, File)]
    found = {}
    for path_ in filter(None, paths):
        with contextlib.suppress(OSError):
            found[path_] = named_files.read(path_)
    return found


def _check_secure(listen: Sequence[Listen], settings: Settings) -> None:
    shown = dict.fromkeys((one.cert, one.key) for one in listen if one.protocol in SECURE)
    if settings["tls"]["cert"] and settings["tls"]["key"]:
        shown[("", "")] = None
    if shown:
        _check_certificates(settings, shown)


def _check_certificates(settings: Settings, pairs: Iterable[tuple[str, str]]) -> None:
    """Checks pairs of certificate and key; empty names stand for those of the section [tls]."""
    from mq_shards.acceptor.secure import secure_context  # imported late: it loads the ssl library

    for cert, key in pairs:
        try:
            secure_context(settings["tls"], cert, key)
        except ValueError as error:
            raise OptionsError(str(error)) from None


def _offer_tls(settings: Settings, said: Collection[tuple[str, str]]) -> None:
    """Makes the certificate of the section [tls] the default of protocols that have TLS options of their own, where
    these are not set."""
    cert, key = (str(settings["tls"][name]) for name in ("cert", "key"))
    if not cert or not key:
        return
    for name, protocol in PROTOCOLS.items():
        for own in protocol.own_tls:
            section = settings[name]
            if (name, own.cert) in said or (name, own.key) in said:
                continue
            is_demanded = any(section[demand] != protocol.options[demand].default for demand in own.demands)
            if own.only_demanded and not is_demanded:
                continue
            section |= {own.cert: cert, own.key: key}
            if own.optional and not is_demanded:
                section[own.optional] = True


def _shards(given: int | None, settings: Settings) -> int | None:
    """The number of shards that was given, or that the options of a protocol ask for."""
    for name, protocol in PROTOCOLS.items():
        wanted = protocol.shards(settings.get(name, {}))
        if wanted is not None and given not in (None, wanted):
            raise OptionsError(f"--shards: {given} are given, and the options of [{name}] ask for {wanted}")
        given = wanted or given
    return given


def _check_protocols(settings: Settings) -> None:
    """Checks here what each acceptor would fail on after the start, such as a certificate that cannot be used."""
    for protocol in PROTOCOLS.values():
        try:
            protocol.check(protocol.settings_of(settings))
        except ValueError as error:
            raise OptionsError(str(error)) from None


def _read_file(name: str, top: dict[str, Given], sections: dict[tuple[str, str], Given]) -> None:
    import tomllib  # imported late: not every broker has a file

    try:
        text = named_files.read(name).decode()
        content = tomllib.loads(text)
    except OSError as error:
        raise OptionsError(f"--config: cannot read {name}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionsError(f"--config: {name} is not TOML: {error}") from None
    if any(isinstance(content.get(key), dict) for key in (users_file.USERS, users_file.GROUPS)):
        tables = {key: content.pop(key, {}) for key in (users_file.USERS, users_file.GROUPS)}
        top["users"] = (name, users_file.read_tables(name, text, tables))
    for key, value in content.items():
        if key in SECTIONS:
            if not isinstance(value, dict):
                raise OptionsError(f"{name}: {key} is a section, write [{key}]")
            for option, setting in value.items():
                _known(name, key, option)
                sections[key, option] = (name, setting)
        elif isinstance(value, dict):
            raise OptionsError(f"{name}: [{key}] is not a section (there are: {', '.join(SECTIONS)})")
        elif key in TOP_LEVEL:
            top[key] = (f"{name}: {key}", value)
        else:
            raise OptionsError(f'{name}: "{key}" is not an option (there are: {", ".join(TOP_LEVEL)})')


def _read_set(text: str, sections: dict[tuple[str, str], Given]) -> None:
    key, equals, value = text.partition("=")
    section, dot, option = key.strip().partition(".")
    if not equals or not dot:
        raise OptionsError(f'--set: "{text}" is not SECTION.OPTION=VALUE')
    if section not in SECTIONS:
        raise OptionsError(f'--set: "{section}" is not a section (there are: {", ".join(SECTIONS)})')
    _known("--set", section, option)
    kind = SECTIONS[section][option]
    typed = kind.typed(value.strip())
    before, others = sections.get((section, option), ("", []))
    if isinstance(kind, TextList) and before == "--set":
        assert isinstance(others, list) and isinstance(typed, list)
        typed = others + typed
    sections[section, option] = ("--set", typed)


def _known(where: str, section: str, option: str) -> None:
    table = SECTIONS[section]
    if option in table:
        return
    usual = option.replace("_", "-")  # some servers write - on their command line and _ in their file
    if usual in table:
        raise OptionsError(f'{where}: "{option}" is written "{usual}" here')
    if usual in INSTEAD.get(section, {}):
        raise OptionsError(f'{where}: "{option}" is not an option of [{section}]: {INSTEAD[section][usual]}')
    there_are = f"there are: {', '.join(table)}" if len(table) <= MAX_NAMED else "mq-shards --help shows them"
    raise OptionsError(f'{where}: "{option}" is not an option of [{section}] ({there_are})')


def _listens(where: str, value: object) -> tuple[Listen, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise OptionsError(f"{where}: {shown(value)} is not a list of SCHEME://HOST:PORT")
    if len(value) > MAX_LISTENS:
        raise OptionsError(f"{where}: {len(value)} addresses, at most {MAX_LISTENS} are possible")
    listens = tuple(parse_listen(text, where) for text in value)
    for place, listen in enumerate(listens):
        # Port 0 may be given twice: it becomes a different port each time.
        if listen.port and any((listen.host, listen.port) == (other.host, other.port) for other in listens[:place]):
            raise OptionsError(f"{where}: {listen.host} port {listen.port} is given twice")
        if listen.path and any(listen.path == other.path for other in listens[:place]):
            raise OptionsError(f"{where}: {listen.path} is given twice")
    return listens


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


def _parser() -> argparse.ArgumentParser:
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
    usual = ", ".join(str(listen) for listen in Options().listen)

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
        lines.append(f"  [{section}]")
        width = max(len(name) for name in table)
        for name, kind in table.items():
            lines.append(f"    {name:<{width}} {kind.meaning}")
            lines.append(f"    {'':<{width}} ({kind.limits()})")
    tries = [f"    {listen.example}" for listen in Options().listen]
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
