"""What an operator asks of a broker that runs: that it reads its options anew, or sends clients elsewhere; and the
files that say where it is.

The supervisor does it; here is what there is to know and to compare.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

from mq_shards.acceptor.option_kinds import OptionsError, shown
from mq_shards.acceptor.protocols.table import PROTOCOLS
from mq_shards.acceptor.secure_options import OPTIONS as SECURE_OPTIONS
from mq_shards.supervisor import contents
from mq_shards.supervisor.child import Child
from mq_shards.supervisor.listeners import Listener
from mq_shards.supervisor.options.options import Options

_REPLACED: Final = ("settings", "contents", "files", "users", "warnings")  # by a reload

log = logging.getLogger(__name__)


class Operator:
    """What the supervisor does for it, and remembers."""

    def __init__(self, options: Options, reread: Callable[[], Options] | None) -> None:
        self._reread: Final = reread
        self.reload_error = ""  # why nothing was changed the last time
        self._files: list[str] = []
        self._sent_away_from: set[int] | None = None  # acceptors that still have clients, in lame duck mode

    def serving(self, options: Options, listeners: Sequence[Listener]) -> None:
        addresses = [one.address for one in listeners if not one.address.path]
        for protocol in PROTOCOLS.values():
            listening = [(address.protocol, address.address) for address in addresses]
            self._files += protocol.write_files(protocol.settings_of(options.settings), listening)

    def end(self) -> None:
        for path in self._files:
            with contextlib.suppress(OSError):
                Path(path).unlink()

    def reload(self, options: Options, acceptors: Iterable[Child]) -> Options:
        """The options that hold from then on, as `reread` has them (it may raise OptionsError): all, or nothing is
        changed."""
        try:
            wanted = reload(options, self._reread)
        except ReloadError as error:
            log.error("cannot reload, nothing is changed: %s", error)
            self.reload_error = str(error)
            return options
        self.reload_error = ""
        for acceptor in acceptors:
            if acceptor.role == "acceptor":
                contents.configure(acceptor, wanted.contents)
            contents.tell_users(acceptor, wanted.users)
            contents.reload(acceptor, {"do": "reload", "settings": wanted.settings}, wanted.files)
        say_changes(options, wanted)
        return wanted

    def send_clients_away(self, listeners: list[Listener], acceptors: Sequence[Child]) -> None:
        """Clients that can go elsewhere are told, and cut one after the other; what they came to is closed, and taken
        out."""
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
        """That one has no clients any more, or is dead; whether it was the last."""
        if not self._sent_away_from or acceptor.role != "acceptor":
            return False
        self._sent_away_from.discard(acceptor.index)
        return not self._sent_away_from


# --- reload -----------------------------------------------------------------------------------------------------------


class ReloadError(Exception):
    """One line: why nothing was changed."""


def reload(options: Options, reread: Callable[[], Options] | None) -> Options:
    """The options that hold from now on, all of which may be changed while running. Raises ReloadError."""
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
    log.info("options read anew: %d have changed", len(changed))
