"""What an operator can ask of a running broker: to read its options anew, or to send its clients elsewhere. Also the
files that tell where it listens.

The supervisor decides when; this module keeps the state and compares the options.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

from mq_shards.acceptor.option_kinds import OptionsError, shown
from mq_shards.acceptor.protocols.table import PROTOCOLS
from mq_shards.acceptor.secure_options import OPTIONS as SECURE_OPTIONS
from mq_shards.supervisor import contents
from mq_shards.supervisor.child import Child
from mq_shards.supervisor.listeners import Listener
from mq_shards.supervisor.log_file import LogFile
from mq_shards.supervisor.options.options import Options

# Fields of Options that a reload replaces.
_REPLACED: Final = ("settings", "contents", "files", "users", "log_file", "warnings")

log = logging.getLogger(__name__)


class Operator:
    """Does what the operator asks for, and keeps what has to be remembered."""

    def __init__(self, log_file: LogFile, reread: Callable[[], Options] | None) -> None:
        self._log_file: Final = log_file
        self._reread: Final = reread
        self.reload_error = ""  # why the last reload changed nothing; "": it succeeded
        self._files: list[str] = []
        self._sent_away_from: set[int] | None = None  # acceptors that still have clients; None: not in lame duck mode

    def serving(self, options: Options, listeners: Sequence[Listener]) -> None:
        addresses = [one.address for one in listeners if not one.address.path]
        for protocol in PROTOCOLS.values():
            listening = [(address.protocol, address.address) for address in addresses]
            self._files += protocol.write_files(protocol.settings_of(options.settings), listening)

    def end(self) -> None:
        for path in self._files:
            with contextlib.suppress(OSError):
                Path(path).unlink()

    def reload(self, options: Options, acceptors: Sequence[Child], workers: Sequence[Child]) -> Options:
        """Returns the options that hold from now on: those that `reread` returns or, when anything is wrong with them
        (it may raise OptionsError), the old ones unchanged."""
        try:
            wanted = reload(options, self._reread)
            self._use_log_file(wanted, [*acceptors, *workers])
        except ReloadError as error:
            log.error("cannot reload, nothing is changed: %s", error)
            self.reload_error = str(error)
            return options
        try:
            _tell(wanted, acceptors)
        except OSError as error:  # memory or descriptors are short; some may have been told: the next reload tells all
            self.reload_error = error.strerror or str(error)
            log.error("cannot reload: %s", self.reload_error)
            return options
        self.reload_error = ""
        say_changes(options, wanted)
        return wanted

    def _use_log_file(self, wanted: Options, children: Sequence[Child]) -> None:
        try:
            self._log_file.use(wanted.log_file, children)
        except OSError as error:
            raise ReloadError(f"cannot open the log file {wanted.log_file.path}: {error.strerror}") from None

    def send_clients_away(self, listeners: list[Listener], acceptors: Sequence[Child]) -> None:
        """Lame duck mode: acceptors tell clients to go elsewhere and cut them one after the other. The listeners of
        those clients are closed, and removed from `listeners`."""
        ducks = [listener for listener in listeners if listener.address.has_lame_duck]
        if self._sent_away_from is not None or not ducks:
            return
        names = ", ".join(sorted({listener.address.protocol for listener in ducks}))
        log.info("entering lame duck mode: no new clients on %s", names)
        for listener in ducks:
            listeners.remove(listener)
            listener.close()
        self._sent_away_from = {one.index for one in acceptors if one.role == "acceptor" and one.alive}
        for acceptor in acceptors:
            acceptor.send({"do": "lame-duck"})

    def are_all_away(self, acceptor: Child) -> bool:
        """Notes that `acceptor` has no such clients any more, or is dead. Returns whether it was the last."""
        if not self._sent_away_from or acceptor.role != "acceptor":
            return False
        self._sent_away_from.discard(acceptor.index)
        return not self._sent_away_from


def _tell(wanted: Options, acceptors: Sequence[Child]) -> None:
    for acceptor in acceptors:
        if acceptor.role == "acceptor":
            contents.configure(acceptor, wanted.contents)
        contents.tell_users(acceptor, wanted.users)
        contents.reload(acceptor, {"do": "reload", "settings": wanted.settings}, wanted.files)


# --- reload -----------------------------------------------------------------------------------------------------------


class ReloadError(Exception):
    """One line: why nothing was changed."""


def reload(options: Options, reread: Callable[[], Options] | None) -> Options:
    """Returns the new options. Raises ReloadError, also if an option differs that only a restart can change."""
    if reread is None:
        raise ReloadError("there are no options to be read")
    try:
        wanted = reread()
    except OptionsError as error:
        raise ReloadError(str(error)) from None
    if (options.users is None) != (wanted.users is None):
        raise ReloadError("only a restart can begin to ask who somebody is, or cease to")
    fixed = [*_changed_beside_sections(options, wanted), *_fixed_in_sections(options, wanted)]
    if fixed:
        raise ReloadError(f"only a restart can change {', '.join(fixed)}")
    for warning in wanted.warnings:
        log.warning("%s", warning)
    new = {name: getattr(wanted, name) for name in _REPLACED if name != "warnings"}
    return replace(options, **new)


def _changed_beside_sections(options: Options, wanted: Options) -> list[str]:
    names = (field.name for field in fields(Options) if field.name not in _REPLACED)
    return [name.replace("_", "-") for name in names if getattr(options, name) != getattr(wanted, name)]


def _fixed_in_sections(options: Options, wanted: Options) -> list[str]:
    return [f"{section}.{name}" for section, name in changes(options, wanted) if name not in _reloadable(section)]


def _reloadable(section: str) -> Collection[str]:
    if section == "tls":
        return SECURE_OPTIONS
    return PROTOCOLS[section].reloadable if section in PROTOCOLS else ()


def changes(before: Options, after: Options) -> list[tuple[str, str]]:
    """Sections and names of the options that differ."""
    return [
        (section, name)
        for section, table in before.settings.items()
        for name, value in table.items()
        if after.settings[section][name] != value
    ]


def say_changes(before: Options, after: Options) -> None:
    changed = changes(before, after)
    for section, name in changed:
        is_secret = section in PROTOCOLS and name in PROTOCOLS[section].secrets
        log.info("reloaded: %s.%s = %s", section, name, "[...]" if is_secret else shown(after.settings[section][name]))
    log.info("users, certificates and options read anew; options that have changed: %d", len(changed))
