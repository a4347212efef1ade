"""All options, and how they are read: command line, configuration file, --set.

The command line wins over the file, the file over the defaults. Anything unknown, ill-typed or out of range is an
OptionsError of one line that names the culprit. Nothing here opens a socket or a data directory. The options of the
sections are in supervisor/options/sections.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from mq_shards.acceptor import certificate_times, named_files
from mq_shards.acceptor.access import users_file
from mq_shards.acceptor.access.rights import Users
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
from mq_shards.shards.meta import MAX_SHARDS
from mq_shards.supervisor.journal import LEVELS
from mq_shards.supervisor.options.command_line import parser_of_options
from mq_shards.supervisor.options.defaults import (
    COUNTS,
    DAMAGE_MODES,
    DEFAULT_ACCEPTORS,
    DEFAULT_DAMAGE,
    DEFAULT_DATA_DIR,
    DEFAULT_LOG_LEVEL,
    DEFAULT_SHARDS,
    DEFAULT_SYNC,
    LOG_FILE_NUMBERS,
    MAX_ACCEPTORS,
    MAX_LOG_FILE,
    MAX_WORKERS,
    OWN_CONFIGS,
    SYNC_MODES,
)
from mq_shards.supervisor.options.doors import Doors, check_doors, check_names
from mq_shards.supervisor.options.listen import EVERY_SCHEME, USUAL, Listen, on_both, parse_listen, parse_listens
from mq_shards.supervisor.options.schemes import SECURE
from mq_shards.supervisor.options.sections import INSTEAD, SECTIONS

MAX_NAMED: Final = 10  # an error message lists the options of a section if they are no more

Settings: TypeAlias = dict[str, dict[str, Setting]]
Given: TypeAlias = tuple[str, object]  # where the option was set, and its value


@dataclass(slots=True)
class Options:
    """Everything the supervisor needs to know. `data_dir` None: --memory; `workers` or `shards` None: not given."""

    workers: int | None = None
    acceptors: int = DEFAULT_ACCEPTORS
    shards: int | None = None
    data_dir: Path | None = Path(DEFAULT_DATA_DIR)
    sync: str = DEFAULT_SYNC
    damage: str = DEFAULT_DAMAGE
    listen: tuple[Listen, ...] = USUAL
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
    given: dict[str, Any] = vars(parser_of_options().parse_args(arguments))
    config: str | None = given.pop("config")
    sets: list[str] = given.pop("set") or []
    top: dict[str, Given] = {}
    sections: dict[tuple[str, str], Given] = {}  # keyed by section and option
    if config is not None:
        _read_file(config, tuple(given), top, sections)
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
        listen = parse_listens(*top["listen"])
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
    workers, acceptors = count("workers", MAX_WORKERS), count("acceptors", MAX_ACCEPTORS) or DEFAULT_ACCEPTORS
    shards = _shards(count("shards", MAX_SHARDS), settings)
    if workers is not None and shards is not None:
        worker_count(workers, acceptors, shards, 1)
    return Options(
        workers=workers,
        acceptors=acceptors,
        shards=shards,
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
    for one, other in (("cert", "key"), ("key", "cert")):
        if settings["tls"][one]:
            shown[("", "")] = None
            if not settings["tls"][other]:  # else protocols with a TLS of their own would go without
                raise OptionsError(f"tls.{one} is set, so tls.{other} must be too")
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


def _read_file(
    name: str, top_level: Sequence[str], top: dict[str, Given], sections: dict[tuple[str, str], Given]
) -> None:
    """`top_level`: the keys that it may have outside of sections."""
    import tomllib  # imported late: not every broker has a file

    try:
        text = named_files.read(name).decode("utf-8-sig")
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
        elif key in top_level:
            top[key] = (f"{name}: {key}", value)
        else:
            raise OptionsError(f'{name}: "{key}" is not an option (there are: {", ".join(top_level)})')


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
